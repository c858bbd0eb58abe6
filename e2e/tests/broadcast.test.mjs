/**
 * Broadcast channels of APNs: created, bound, sent to and deleted through the API and the command line, with the strict
 * fakes of Apple's two hosts. The fakes themselves are checked with node-apn, a client that knows channels.
 */

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, describe, test } from 'node:test'

import apn from '@parse/node-apn'

import { api } from '../lib/api.mjs'
import { Device } from '../lib/device.mjs'
import { DevPush, operatorToken, unique } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

const BUNDLE = 'com.example.app'

let push, node
before(async () => {
  push = await DevPush.start()
  node = await push.node({ services: ['apns', 'apns-sandbox'] })
})
after(async () => {
  await node?.stop()
  await push?.stop()
})

const channels = '/v1/push/channels'
const name = () => unique('c')

const create = (body, status = 201) => node.api.call('POST', channels, { body, status })
const broadcast = (channel, body = {}, options = {}) =>
  node.api.call('POST', `${channels}/${channel}/broadcasts`, {
    body: { event: 'update', content_state: { score: 1 }, ...body }, status: 202, ...options,
  })
const state = (id) => node.api.call('GET', `/v1/push/broadcasts/${id}`)
const ended = (id) =>
  until(`the end of broadcast ${id}`, async () => {
    const found = await state(id)
    return found.state === 'waiting' ? undefined : found
  })
/** The broadcasts that Apple accepted for a channel. */
const sent = (channel, service = 'apns') => push.accepted(service, channel.apns_id)
const problem = async (promise) => {
  const error = await promise.then(() => assert.fail('accepted'), (error) => error)
  return { status: error.status, code: error.body?.code, field: error.body?.field, detail: error.body?.detail }
}

describe('the fakes of Apple', () => {
  let provider
  before(() => {
    const { apns } = push.info.credentials
    const at = (origin) => Number(new URL(push.info.origins[origin]).port)
    provider = new apn.Provider({
      token: { key: apns.key, keyId: apns.key_id, teamId: apns.team_id },
      ca: push.info.ca,
      production: true,
      address: 'localhost', port: at('apns'),
      manageChannelsAddress: 'localhost', manageChannelsPort: at('apns-channels'),
    })
  })
  after(() => provider?.shutdown())

  const managed = async (note, action, bundle = BUNDLE) => {
    const { sent, failed } = await provider.manageChannels(Object.assign(new apn.Notification(), note), bundle, action)
    assert.equal(sent.length + failed.length, 1, JSON.stringify({ sent, failed }))
    return sent[0] ?? { failed: failed[0].response?.reason ?? failed[0] }
  }
  const make = (policy) => managed({ requestId: randomUUID(), payload: { 'message-storage-policy': policy, 'push-type': 'LiveActivity' } }, 'create')
  const cast = async (note, bundle = BUNDLE) => {
    const full = { pushType: 'liveactivity', expiry: 0, event: 'update', timestamp: 1_800_000_000, contentState: { a: 1 }, ...note }
    const { sent, failed } = await provider.broadcast(Object.assign(new apn.Notification(), full), bundle)
    return sent[0] ?? { failed: failed[0].response?.reason ?? failed[0] }
  }

  test('let node-apn create, read, list and delete a channel', async () => {
    const made = await make(1)
    const id = made['apns-channel-id']
    assert.match(id, /^[A-Za-z0-9+/]+=*$/, JSON.stringify(made))
    const read = await managed({ channelId: id }, 'read')
    assert.deepEqual([read['message-storage-policy'], read['push-type']], [1, 'LiveActivity'])
    assert.ok((await managed({}, 'readAll')).channels.includes(id))
    await managed({ channelId: id }, 'delete')
    assert.ok(!(await managed({}, 'readAll')).channels.includes(id))
    assert.deepEqual(await managed({ channelId: id }, 'read'), { failed: 'ChannelNotRegistered' })
  })

  test('let node-apn broadcast, and check what it sends', async () => {
    const none = (await make(0))['apns-channel-id']
    const latest = (await make(1))['apns-channel-id']
    const requestId = randomUUID()
    assert.equal((await cast({ channelId: none, requestId }))['apns-request-id'], requestId)
    assert.ok((await cast({ channelId: latest, expiry: 2_000_000_000 }))['apns-request-id'])
    const refused = async (note, reason, bundle) => assert.deepEqual(await cast(note, bundle), { failed: reason })
    await refused({ channelId: none, expiry: 2_000_000_000 }, 'BadExpirationDate')
    await refused({ channelId: none, pushType: 'alert' }, 'InvalidPushType')
    await refused({ channelId: none, pushType: undefined }, 'MissingPushType')
    await refused({}, 'MissingChannelId')
    await refused({ channelId: 'no base64!' }, 'BadChannelId')
    await refused({ channelId: Buffer.from('unknown').toString('base64') }, 'ChannelNotRegistered')
    await refused({ channelId: none, priority: 7 }, 'BadPriority')
    await refused({ channelId: none, event: 'start' }, 'StrictPayload')
    await refused({ channelId: none, contentState: { a: 'x'.repeat(5_120) } }, 'PayloadTooLarge')
    await refused({ channelId: none }, 'TopicMismatch', 'org.stranger.app')
    await refused({ channelId: none }, 'FeatureNotEnabled', 'com.example.nobroadcast')
    assert.deepEqual(await managed({ payload: { 'message-storage-policy': 7 } }, 'create'), { failed: 'StrictBody' })
    assert.deepEqual(await managed({}, 'read'), { failed: 'MissingChannelId' })
  })
})

describe('a channel', () => {
  test('is created once, shown, bound, unbound and deleted', async () => {
    const topic = unique('game/')
    const body = { name: name(), storage: 'latest', topic }
    const made = await create(body)
    assert.deepEqual(
      [made.name, made.environment, made.bundle_id, made.storage, made.topic, made.waiting],
      [body.name, 'production', BUNDLE, 'latest', topic, 0],
    )
    assert.deepEqual(await create(body, 200), made)
    assert.equal((await push.accepted('apns-channels')).filter((one) => one.token === made.apns_id).length, 1)
    const shown = await node.api.call('GET', `${channels}/${body.name}`)
    assert.deepEqual(shown, { ...made, broadcasts: [] })
    const { channels: listed } = await node.api.call('GET', channels)
    assert.deepEqual(listed.find((one) => one.name === body.name), made)

    const differs = async (more, field) => {
      const refused = await problem(create({ ...body, ...more }))
      assert.deepEqual([refused.status, refused.code, refused.field], [409, 'already_exists', field])
    }
    await differs({ storage: 'none' }, 'storage')
    await differs({ environment: 'sandbox' }, 'environment')
    await differs({ topic: 'other' }, 'topic')
    await differs({ name: name() }, 'topic')

    const free = await node.api.call('PATCH', `${channels}/${body.name}`, { body: { topic: null } })
    assert.equal(free.topic, null)
    await node.api.call('DELETE', `${channels}/${body.name}`, { status: 204 })
    assert.equal((await problem(node.api.call('DELETE', `${channels}/${body.name}`))).status, 404)
    const { channels: left } = await node.api.call('GET', '/v1/push/apns-channels')
    assert.ok(!left.some((one) => one.apns_id === made.apns_id))
  })

  test('has an environment of its own', async () => {
    const made = await create({ name: name(), environment: 'sandbox' })
    const { id } = await broadcast(made.name)
    assert.equal((await ended(id)).state, 'sent')
    assert.equal((await sent(made, 'apns-sandbox')).length, 1)
    const { channels: listed } = await node.api.call('GET', '/v1/push/apns-channels?environment=sandbox')
    assert.deepEqual(listed.find((one) => one.apns_id === made.apns_id), { apns_id: made.apns_id, name: made.name })
  })

  test('whose creation got no answer is listed as unknown, and the name is free', async () => {
    const one = name()
    await push.behave({ service: 'apns-channels', next: [{ do: 'disconnect' }] })
    const lost = await problem(create({ name: one }))
    assert.deepEqual([lost.status, lost.code], [502, 'push_service_failed'])
    assert.match(lost.detail, /may have done/)
    const made = await create({ name: one })
    const { channels: listed } = await node.api.call('GET', '/v1/push/apns-channels')
    const orphans = listed.filter((channel) => channel.name === null)
    const known = new Set((await push.accepted('apns-channels')).map((got) => got.token))
    assert.ok(orphans.some((orphan) => known.has(orphan.apns_id)))
    assert.ok(listed.some((channel) => channel.name === one && channel.apns_id === made.apns_id))
    const path = (id) => `/v1/push/apns-channels/${encodeURIComponent(id)}`
    for (const orphan of orphans) await node.api.call('DELETE', path(orphan.apns_id), { status: 204 })
    const mine = await problem(node.api.call('DELETE', path(made.apns_id)))
    assert.deepEqual([mine.status, mine.code], [409, 'wrong_state'])
    const { channels: left } = await node.api.call('GET', '/v1/push/apns-channels')
    assert.ok(left.every((channel) => channel.name !== null))
  })

  test('that exists at Apple is adopted', async () => {
    const made = await create({ name: name(), storage: 'latest' })
    await node.api.call('DELETE', `${channels}/${made.name}?forget=true`, { status: 204 })
    const wrong = await problem(create({ name: name(), apns_id: made.apns_id, storage: 'none' }))
    assert.deepEqual([wrong.status, wrong.field], [409, 'storage'])
    const adopted = await create({ name: name(), apns_id: made.apns_id })
    assert.deepEqual([adopted.apns_id, adopted.storage], [made.apns_id, 'latest'])
    const unknown = await problem(create({ name: name(), apns_id: 'dW5rbm93bg==' }))
    assert.deepEqual([unknown.status, unknown.code], [404, 'not_found'])
  })

  test('has errors that say what to do', async () => {
    const answers = async (script, status, code) => {
      await push.behave({ service: 'apns-channels', next: [script] })
      const refused = await problem(create({ name: name() }))
      assert.deepEqual([refused.status, refused.code], [status, code], refused.detail)
      return refused
    }
    await answers({ status: 403, reason: 'FeatureNotEnabled' }, 502, 'push_service_rejected')
    await answers({ status: 400, reason: 'CannotCreateChannelConfig' }, 409, 'limit_exceeded')
    await answers({ status: 429, reason: 'TooManyRequests' }, 429, 'too_many_requests')
    await answers({ status: 500 }, 502, 'push_service_failed')
    assert.equal((await problem(create({ name: 'No Label' }))).field, 'name')
  })
})

describe('a broadcast', () => {
  test('reaches Apple with its headers and payload', async () => {
    const made = await create({ name: name(), storage: 'latest' })
    const { id } = await broadcast(made.name, { timestamp: '2027-01-15T09:30:00Z', priority: 5, relevance: 0.5, alert: { title: 'Goal', sound: 'default' } })
    const end = await ended(id)
    assert.deepEqual([end.state, end.attempts, end.reason, end.notification], ['sent', 1, null, null])
    const [got] = await sent(made)
    assert.equal(got.id, id)
    assert.deepEqual(JSON.parse(got.payload), {
      aps: { timestamp: 1_800_005_400, event: 'update', 'content-state': { score: 1 }, 'relevance-score': 0.5, alert: { title: 'Goal', sound: 'default' } },
    })
    assert.equal(got.headers['apns-priority'], '5')
    assert.ok(Number(got.headers['apns-expiration']) > Date.now() / 1_000)
    const shown = await node.api.call('GET', `${channels}/${made.name}`)
    assert.deepEqual(shown.broadcasts.map((one) => [one.id, one.state]), [[id, 'sent']])
  })

  test('is stored nowhere at Apple if the channel stores nothing', async () => {
    const made = await create({ name: name() })
    await ended((await broadcast(made.name)).id)
    assert.equal((await sent(made))[0].headers['apns-expiration'], '0')
  })

  test('is tried again after a failure, in order, with the same id', async () => {
    const made = await create({ name: name() })
    await push.behave({ service: 'apns', tokens: { [made.apns_id]: { count: 1, status: 503, retry_after_s: 1 } } })
    const ids = []
    for (let score = 0; score < 3; score++) ids.push((await broadcast(made.name, { content_state: { score } })).id)
    for (const id of ids) assert.equal((await ended(id)).state, 'sent')
    assert.equal((await state(ids[0])).attempts, 2)
    assert.deepEqual((await sent(made)).map((got) => got.id), ids)
    assert.equal((await push.received('apns', made.apns_id))[0].id, ids[0])
    // Each attempt is recorded.
    const { requests } = await state(ids[0])
    assert.deepEqual(requests.map(({ response, headers, reason }) => [response.status, headers['apns-channel-id'], headers['apns-request-id'], reason !== undefined]), [[503, made.apns_id, ids[0], true], [200, made.apns_id, ids[0], false]])
    assert.deepEqual(requests[1].body.aps['content-state'], { score: 0 })
    assert.match(requests[1].url, new RegExp(`/4/broadcasts/apps/${BUNDLE}$`))
    assert.equal(requests[1].headers.authorization, undefined)
    const { stdout } = await node.cli('explain', ids[0], '--requests')
    assert.match(stdout, /POST https?:[^]*=> 503[^]*POST https?:[^]*=> 200/)
    assert.match((await node.cli('explain', ids[0])).stdout, /attempts +2[^]*503[^]*200/)
  })

  test('that Apple rejects is refused with its reason', async () => {
    const made = await create({ name: name() })
    await push.behave({ service: 'apns', tokens: { [made.apns_id]: { status: 400, reason: 'ChannelNotRegistered' } } })
    const { id } = await broadcast(made.name)
    const end = await ended(id)
    assert.deepEqual([end.state, end.reason], ['refused', 'ChannelNotRegistered'])
  })

  test('that is replaceable gives way to a newer one', async () => {
    const made = await create({ name: name() })
    await push.behave({ service: 'apns', tokens: { [made.apns_id]: { count: 1, status: 503, retry_after_s: 2 } } })
    const ids = []
    for (let score = 0; score < 4; score++) {
      ids.push((await broadcast(made.name, { content_state: { score }, replaceable: true })).id)
      if (score === 0) await until('the first attempt', async () => (await push.received('apns', made.apns_id)).length > 0)
    }
    const ends = []
    for (const id of ids) ends.push((await ended(id)).state)
    assert.deepEqual(ends, ['replaced', 'replaced', 'replaced', 'sent'])
  })

  test('ends with its time to live', async () => {
    const made = await create({ name: name() })
    await push.behave({ service: 'apns', tokens: { [made.apns_id]: { status: 503 } } })
    const { id } = await broadcast(made.name, { ttl: '2s' })
    assert.equal((await ended(id)).state, 'expired')
  })

  test('with an idempotency key is accepted once', async () => {
    const made = await create({ name: name() })
    const headers = { 'idempotency-key': 'k' }
    const first = await broadcast(made.name, {}, { headers })
    const again = await node.api.raw('POST', `${channels}/${made.name}/broadcasts`, { body: { event: 'update', content_state: { score: 1 } }, headers })
    assert.deepEqual([again.status, again.body.id, again.headers.get('idempotent-replayed')], [202, first.id, 'true'])
    const other = await problem(broadcast(made.name, { content_state: {} }, { headers }))
    assert.deepEqual([other.status, other.code], [409, 'idempotency_conflict'])
    await ended(first.id)
    assert.equal((await sent(made)).length, 1)
  })

  test('that is invalid or too large is not accepted', async () => {
    const made = await create({ name: name() })
    assert.equal((await problem(broadcast(made.name, { event: 'start' }))).field, 'event')
    assert.equal((await problem(broadcast(made.name, { dismiss_at: '2027-01-15T09:30:00Z' }))).field, 'dismiss_at')
    const large = await problem(broadcast(made.name, { content_state: { a: 'x'.repeat(5_200) } }))
    assert.deepEqual([large.status, large.code], [413, 'push_payload_too_large'])
    assert.equal((await problem(broadcast(name()))).status, 404)
    assert.equal((await node.api.call('GET', `${channels}/${made.name}`)).waiting, 0)
  })
})

describe('a notification to a topic', () => {
  test('reaches sockets and the channel of its topic with one request', async () => {
    const topic = unique('game/')
    const made = await create({ name: name(), topic })
    const { token } = await node.api.register({ user: unique('u'), device: unique('d'), topics: [topic] })
    const device = await Device.connect(node.ws, token)
    try {
      const { id } = await node.api.publish({
        to: { topic }, data: { home: 1 }, push: { broadcast: { event: 'update', content_state: { home: 1 } } },
      })
      const got = await device.msg()
      assert.deepEqual([got.id, got.data], [id, { home: 1 }])
      const end = await until('the broadcast', async () => {
        const { broadcasts } = await node.api.notification(id)
        return broadcasts?.[0]?.state === 'sent' ? broadcasts[0] : undefined
      })
      assert.deepEqual([end.channel, end.notification], [made.name, id])
      const [one] = await sent(made)
      assert.deepEqual(JSON.parse(one.payload).aps['content-state'], { home: 1 })
      // Without the field nothing is broadcast.
      const plain = await node.api.publish({ to: { topic }, data: { home: 2 } })
      assert.equal((await device.msg()).id, plain.id)
      assert.equal((await node.api.notification(plain.id)).broadcasts, undefined)
      assert.equal((await sent(made)).length, 1)
    } finally {
      await device.leave()
    }
  })

  test('is refused if no channel is bound to the topic', async () => {
    const cast = { broadcast: { event: 'update', content_state: {} } }
    const nobody = await problem(node.api.publish({ to: { topic: unique('t') }, data: 1, push: cast }))
    assert.deepEqual([nobody.status, nobody.code, nobody.field], [409, 'wrong_state', 'push.broadcast'])
    const users = await problem(node.api.publish({ to: { users: ['u'] }, data: 1, push: cast }))
    assert.deepEqual([users.status, users.field], [400, 'push.broadcast'])
    const inside = await problem(node.api.publish({ to: { topic: 't' }, data: 1, push: { broadcast: { event: 'update' } } }))
    assert.deepEqual([inside.status, inside.field], [400, 'push.broadcast.content_state'])
  })
})

describe('others', () => {
  test('see and change nothing', async () => {
    const made = await create({ name: name(), topic: unique('t') })
    const { id } = await broadcast(made.name)
    const admin = api(`http://127.0.0.1:${node.adminPort}`, operatorToken(node))
    const app = unique('app')
    await admin.call('POST', '/v1/apps', { body: { name: app }, status: 201 })
    const key = (of, scopes) => admin.call('POST', `/v1/apps/${of}/keys`, { body: { name: 'k', scopes }, status: 201 })
    const { key: other } = await key(app, ['publish', 'devices', 'read', 'admin'])
    const { key: devicesOnly } = await key('dev', ['devices'])
    const { key: gone, id: goneId } = await key('dev', ['publish', 'read', 'admin'])
    await admin.call('DELETE', `/v1/apps/dev/keys/${goneId}`, { status: 204 })
    const paths = [
      ['GET', channels], ['POST', channels, { name: made.name }], ['GET', `${channels}/${made.name}`],
      ['PATCH', `${channels}/${made.name}`, { topic: null }], ['DELETE', `${channels}/${made.name}`],
      ['POST', `${channels}/${made.name}/broadcasts`, { event: 'end' }], ['GET', `/v1/push/broadcasts/${id}`],
      ['GET', '/v1/push/apns-channels'], ['DELETE', `/v1/push/apns-channels/${encodeURIComponent(made.apns_id)}`],
    ]
    for (const [method, path, body] of paths) {
      for (const token of [null, 'nonsense']) {
        const { status } = await node.api.raw(method, path, { body, token })
        assert.equal(status, 401, `${method} ${path}`)
      }
      // Another app finds nothing of this one, and a key without the scope is refused.
      const foreign = await node.api.raw(method, path, { body, token: other })
      const isOwn = path === channels || path === '/v1/push/apns-channels'
      assert.equal(foreign.status, isOwn && method === 'GET' && path === channels ? 200 : isOwn ? 409 : foreign.status, `${method} ${path}`)
      assert.ok(!foreign.text.includes(made.apns_id) && !foreign.text.includes(id), `${method} ${path}: ${foreign.text}`)
      assert.ok(isOwn || [404, 409].includes(foreign.status), `${method} ${path}: ${foreign.status}`)
      const weak = await node.api.raw(method, path, { body, token: devicesOnly })
      assert.equal(weak.status, 403, `${method} ${path}`)
      const revoked = await node.api.raw(method, path, { body, token: gone })
      assert.equal(revoked.status, 401, `${method} ${path}`)
    }
    assert.equal((await node.api.call('GET', `${channels}/${made.name}`)).topic, made.topic)
  })
})

describe('the command line', () => {
  const run = async (...args) => {
    const { code, stdout, stderr } = await node.cli('channel', ...args, '--json')
    assert.equal(code, 0, stderr)
    return JSON.parse(stdout)
  }

  test('manages channels and sends to them', async () => {
    const [one, topic] = [name(), unique('t')]
    const made = await run('create', one, '--storage', 'latest')
    assert.equal((await run('bind', one, topic)).topic, topic)
    const { id } = await run('broadcast', one, '--state', '{"a":1}', '--title', 'T', '--ttl', '10m')
    assert.equal((await ended(id)).state, 'sent')
    assert.ok((await run('list')).channels.some((channel) => channel.name === one))
    assert.ok((await run('list', '--apple')).channels.some((channel) => channel.apns_id === made.apns_id))
    assert.equal((await run('show', one)).broadcasts.length, 1)
    const table = await node.cli('channel', 'show', one)
    assert.match(table.stdout, new RegExp(`${id}.*sent`))
    const send = await node.cli('send', '--topic', topic, '--data', '1', '--broadcast', '{"event":"end"}', '--json')
    assert.equal(send.code, 0, send.stderr)
    const notification = JSON.parse(send.stdout).id
    await until('the broadcast', async () => (await node.api.notification(notification)).broadcasts[0].state === 'sent')
    const explained = await node.cli('explain', notification)
    assert.match(explained.stdout, new RegExp(`${one}.*sent`))
    assert.match((await node.cli('explain', id)).stdout, /state +sent/)
    assert.equal((await run('unbind', one)).topic, null)
    assert.deepEqual(await run('delete', one), { name: one, deleted: true })
    assert.notEqual((await node.cli('channel', 'show', one)).code, 0)
    assert.match((await node.cli('channel', '--help')).stdout, /broadcast/)
  })
})

test('metrics count broadcasts', async () => {
  const text = await (await node.admin('/metrics')).text()
  assert.match(text, /noroshi_push_broadcasts_total\{result="sent",reason=""\} [1-9]/)
  assert.match(text, /noroshi_push_channels /)
})
