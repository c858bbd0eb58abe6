/**
 * Pushes through APNs, FCM and Web Push with the strict fakes, which check every
 * header, token, size and encryption.
 */

import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { DevPush, addCredential, operatorToken, unique } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

let push, node
before(async () => {
  push = await DevPush.start()
  node = await push.node()
})
after(async () => {
  await node?.stop()
  await push?.stop()
})

/** A registered device of a new user with a push token of the service; `{user, device, token, pushToken}`. */
async function phone(service, options = {}) {
  const [pushToken] = await push.tokens(service, 1, options)
  const user = unique('user')
  const registered = await node.api.register({ user, device: unique('device'), push_token: pushToken })
  return { user, pushToken, device: registered.device, token: registered.token, at: address(pushToken) }
}

/** The name under which the fakes list a token. */
const address = (token) => (token.service === 'webpush' ? token.endpoint : token.token)

const message = (user, title, policy) => ({ to: { users: [user] }, notification: { title, body: 'b' }, data: { n: 1 }, push: policy })

const steps = async (id, device) => (await node.api.trace(id, device)).steps.map((step) => step.outcome)

/** The recorded requests to push services. */
const attempts = async (id, device) => (await node.api.trace(id, device)).attempts ?? []

const outcome = (id, device, wanted) =>
  until(`${wanted} in the trace`, async () => (await steps(id, device)).includes(wanted))

for (const service of ['apns', 'fcm', 'webpush']) {
  describe(service, () => {
    test('accepts a push, and the trace shows it', async () => {
      const { user, device } = await phone(service)
      const title = unique('always')
      const { id } = await node.api.publish(message(user, title, { mode: 'always' }))
      await outcome(id, device, 'pushed')
      const got = (await push.accepted(service)).filter((one) => one.payload.includes(title))
      assert.equal(got.length, 1, JSON.stringify(got))
      assert.ok(got[0].payload.includes(id), 'the push names its notification')
      const state = await node.api.notification(id)
      assert.equal(state.counts.pushed, 1)

      const [request, ...more] = await attempts(id, device)
      assert.equal(more.length, 0)
      assert.deepEqual([Math.floor(request.response.status / 100), request.reason], [2, undefined])
      assert.ok(JSON.stringify(request.body).includes(title), 'the payload, for Web Push before encryption')
      assert.equal(request.headers.authorization, undefined)
      for (const [name, value] of Object.entries(request.headers)) {
        assert.equal(got[0].headers[name], value, `${name} as the push service received it`)
      }
      const { stdout } = await node.cli('explain', id, device, '--requests')
      assert.ok(stdout.includes(`POST ${request.url}`) && stdout.includes(JSON.stringify(title)), stdout)
    })

    test('reports an unregistered token, which is removed, listed, and not used again', async () => {
      const { user, device, token } = await phone(service, { state: { unregistered: { at_ms: Date.now() + 60_000 } } })
      const { id } = await node.api.publish(message(user, unique('gone'), { mode: 'always' }))
      await outcome(id, device, 'push_token_gone')
      const me = await node.api.me(token).show()
      assert.equal(me.push_token ?? null, null)
      const { invalidations } = await node.api.call('GET', '/v1/push/invalidations')
      const told = invalidations.filter((one) => one.device === device)
      assert.equal(told.length, 1, JSON.stringify(invalidations))
      assert.equal(told[0].service, service)
      assert.equal(told[0].removed, true)
      const [refused] = await attempts(id, device)
      assert.ok(refused.reason && refused.response.status >= 400, JSON.stringify(refused))
      const again = await node.api.publish(message(user, unique('again'), { mode: 'always' }))
      await outcome(again.id, device, 'no_push_token')
    })

    test('is temporarily busy, and nothing is lost', async () => {
      const { user, device } = await phone(service)
      await push.behave({ service, next: [{ status: 503, reason: service === 'fcm' ? 'UNAVAILABLE' : 'ServiceUnavailable', retry_after_s: 1 }] })
      const title = unique('busy')
      const { id } = await node.api.publish(message(user, title, { mode: 'always' }))
      await outcome(id, device, 'pushed')
      const got = (await push.accepted(service)).filter((one) => one.payload.includes(title))
      assert.equal(got.length, 1)
      const statuses = (await attempts(id, device)).map((request) => request.response.status)
      assert.equal(statuses.length, 2, JSON.stringify(statuses))
      assert.equal(statuses[0], 503)
    })
  })
}

describe('several tokens', () => {
  test('a push goes to the token that it names', async () => {
    const { user, device, token, at } = await phone('apns')
    const [voip, lamp] = await push.tokens('apns', 2)
    const call = (method, path, body) => node.api.call(method, path, { body, token })
    for (const [path, { service: _, ...body }] of [['voip', voip], ['controls/lamp', lamp]]) {
      await call('PUT', `/v1/me/push-tokens/${path}`, body)
    }
    const listed = await call('GET', '/v1/me/push-tokens')
    assert.deepEqual(
      listed.push_tokens.map((one) => [one.kind, one.name, one.main]),
      [['alert', '', true], ['voip', '', false], ['controls', 'lamp', false]],
    )
    for (const [name, target, type] of [['voip', voip.token, 'voip'], ['controls/lamp', lamp.token, 'controls'], [undefined, at, 'alert']]) {
      const { id } = await node.api.publish(message(user, unique('named'), { mode: 'always', token: name }))
      await outcome(id, device, 'pushed')
      const [got, ...more] = await push.accepted('apns', target)
      assert.equal(more.length, 0)
      assert.equal(got.headers['apns-push-type'], type)
      assert.ok(got.payload.includes(id))
    }
    await call('DELETE', '/v1/me/push-tokens/voip')
    const { id } = await node.api.publish(message(user, unique('gone'), { token: 'voip' }))
    await outcome(id, device, 'no_push_token')
  })
})

describe('fallback', () => {
  test('pushes only to devices that do not acknowledge in time', async () => {
    const [near, far] = [await phone('apns'), await phone('apns')]
    const connected = await Device.connect(node.ws, near.token)
    const title = unique('fallback')
    const { id } = await node.api.publish({
      ...message(near.user, title, { mode: 'fallback', after: '2s' }),
      to: { users: [near.user, far.user] },
    })
    const received = await connected.next()
    assert.equal(received.id, id)
    connected.send({ t: 'ack', ids: [id] })
    await outcome(id, far.device, 'pushed')
    await outcome(id, near.device, 'push_not_needed')
    assert.deepEqual((await push.accepted('apns', near.at)).length, 0)
    assert.deepEqual((await push.accepted('apns', far.at)).length, 1)
    connected.socket.close()
  })

  test('works for topics and for `active` notifications', async () => {
    const [near, far] = [await phone('fcm'), await phone('fcm')]
    const topic = unique('topic')
    for (const one of [near, far]) await node.api.me(one.token).subscribe(topic)
    const connected = await Device.connect(node.ws, near.token)
    for (const when of ['stored', 'active']) {
      const title = unique(when)
      const { id } = await node.api.publish({
        to: { topic },
        when,
        notification: { title },
        push: { mode: 'fallback', after: '1s' },
      })
      const received = await connected.next()
      assert.equal(received.id, id)
      assert.equal(received.ack, true, 'a fallback notification requests an acknowledgement')
      connected.send({ t: 'ack', ids: [id] })
      await outcome(id, far.device, 'pushed')
      await outcome(id, near.device, 'push_not_needed')
    }
    assert.equal((await push.accepted('fcm', near.at)).length, 0)
    assert.equal((await push.accepted('fcm', far.at)).length, 2)
    connected.socket.close()
  })

  test('does not push notifications cancelled in time', async () => {
    const away = await phone('apns')
    const { id } = await node.api.publish(message(away.user, unique('cancelled'), { mode: 'fallback', after: '3s' }))
    await node.api.cancel(id)
    const marker = await node.api.publish(message(away.user, unique('marker'), { mode: 'fallback', after: '4s' }))
    await outcome(marker.id, away.device, 'pushed')
    assert.equal((await push.accepted('apns', away.at)).length, 1)
  })
})

describe('refusals', () => {
  test('a payload over the limit is rejected with its size before acceptance', async () => {
    const { user } = await phone('apns')
    const answer = await node.api.raw('POST', '/v1/notifications', {
      body: { ...message(user, 't', { mode: 'always' }), notification: { title: 't', body: 'x'.repeat(3_900) }, data: 'y'.repeat(3_000) },
    })
    assert.equal(answer.status, 413, answer.text)
    assert.equal(answer.body.code, 'push_payload_too_large')
    assert.match(answer.body.detail, /\d{4}/)
  })

  test('an endpoint in a private network is not contacted', async () => {
    const [made] = await push.tokens('webpush')
    const user = unique('ssrf')
    const { device } = await node.api.register({ user, push_token: { ...made, endpoint: 'https://169.254.169.254/latest/meta-data' } })
    const { id } = await node.api.publish(message(user, unique('ssrf'), { mode: 'always' }))
    await outcome(id, device, 'push_refused')
    const trace = await node.api.trace(id, device)
    const refused = trace.steps.find((step) => step.outcome === 'push_refused')
    assert.ok(refused.reason, JSON.stringify(refused))
  })

  test('a missing credential is reported', async () => {
    const [token] = await push.tokens('apns-sandbox')
    const user = unique('sandbox')
    const { device } = await node.api.register({ user, push_token: token })
    const { id } = await node.api.publish(message(user, unique('none'), { mode: 'always' }))
    await outcome(id, device, 'push_not_configured')
  })
})

describe('credentials', () => {
  test('are sealed on disk and never shown again', async () => {
    const secret = push.info.credentials.apns.key.replaceAll(/-----[A-Z ]+-----|\s/g, '').slice(20, 60)
    const response = await fetch(`http://127.0.0.1:${node.adminPort}/v1/apps/dev/push`, {
      headers: { authorization: `Bearer ${operatorToken(node)}` },
    })
    const text = await response.text()
    assert.equal(response.status, 200)
    assert.equal(JSON.parse(text).credentials.length, 3)
    assert.ok(!text.includes(secret) && !text.includes('PRIVATE'), 'a list without secrets')
    for (const file of readdirSync(node.data)) {
      if (!/noroshi\.db/.test(file)) continue
      assert.ok(!readFileSync(join(node.data, file)).includes(secret), `${file} contains no secret in plain text`)
    }
    assert.ok(!node.log().includes(secret))
  })

  test('a second credential of the same kind requires replace', async () => {
    const problem = await addCredential(node, push.info.credentials.fcm, 409)
    assert.equal(problem.code, 'already_exists')
  })
})
