/**
 * Providers behind webhooks, Huawei Push Kit and WNS. The library of Standard Webhooks verifies signatures, jsonwebtoken
 * verifies tokens for Huawei, and the strict fakes check every header and field.
 */

import assert from 'node:assert/strict'
import { createPublicKey } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import { createSecureServer } from 'node:http2'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'

import jwt from 'jsonwebtoken'
import { Webhook } from 'standardwebhooks'

import { issueFromAuthority } from '../lib/certificate.mjs'
import { Node } from '../lib/node.mjs'
import { DevPush, addCredential, unique } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
const NEXT_SECRET = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX'

let push, node
before(async () => {
  push = await DevPush.start()
  node = await push.node({ services: ['webhook', 'hms', 'wns'] })
})
after(async () => {
  await node?.stop()
  await push?.stop()
})

const outcome = (id, device, wanted) =>
  until(`${wanted} in the trace`, async () => (await node.api.trace(id, device)).steps.some((step) => step.outcome === wanted))

/** A provider that verifies each request with `verify`, and answers it with `answer(recipients, number)`. */
async function provider(answer, verify = (body, headers) => new Webhook(SECRET).verify(body, headers)) {
  const batches = []
  const server = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8')
    request.on('data', (chunk) => (body += chunk))
    request.on('end', () => {
      try {
        const batch = verify(body, request.headers)
        const recipients = batch.messages.flatMap((message) => message.recipients)
        batches.push({ batch, recipients, id: request.headers['webhook-id'] })
        const { status = 204, headers = {}, body: text = '' } = answer(recipients, batches.length) ?? {}
        response.writeHead(status, headers).end(text)
      } catch (error) {
        batches.push({ error })
        response.writeHead(401).end()
      }
    })
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { batches, url: `http://127.0.0.1:${server.address().port}/push`, stop: () => server.close() }
}

async function device(name, address) {
  const registered = await node.api.register({ user: unique('user'), device: unique('device') })
  const path = `/v1/devices/${registered.device}/push-tokens/webhook/${name}`
  await node.api.call('PUT', path, { body: { token: address } })
  return registered
}

const message = (devices, name, title) => ({
  to: { devices: devices.map((one) => one.device) },
  notification: { title, body: 'b' },
  data: { n: 1 },
  collapse_key: 'k',
  push: { token: `webhook/${name}`, webhook: { template: 't' } },
})

describe('a provider behind a webhook', () => {
  test('gets batches that the library of Standard Webhooks verifies, during a rotation with either secret', async () => {
    const verify = (body, headers) => {
      new Webhook(SECRET).verify(body, headers)
      return new Webhook(NEXT_SECRET).verify(body, headers)
    }
    const mail = await provider(() => undefined, verify)
    const name = unique('mail')
    await addCredential(node, { service: 'webhook', name, url: mail.url, secret: NEXT_SECRET, previous_secret: SECRET })
    const devices = [await device(name, 'ann@example.com'), await device(name, 'bob@example.com')]
    const title = unique('title')
    const { id } = await node.api.publish(message(devices, name, title))
    for (const one of devices) await outcome(id, one.device, 'pushed')
    const { batch } = mail.batches[0]
    assert.equal(batch.type, 'push.batch')
    assert.equal(batch.provider, name)
    const { recipients, expires_at, ...content } = batch.messages[0]
    assert.deepEqual(content, {
      notification_id: id,
      notification: { title, body: 'b' },
      data: { n: 1 },
      urgency: 'normal',
      collapse_key: 'k',
      options: { template: 't' },
    })
    assert.ok(Date.parse(expires_at) > Date.now())
    const all = mail.batches.flatMap((one) => one.recipients)
    assert.deepEqual(all.map((one) => one.token).sort(), ['ann@example.com', 'bob@example.com'])
    assert.deepEqual(all.map((one) => one.device).sort(), devices.map((one) => one.device).sort())
    mail.stop()
  })

  test('decides about each recipient, and a repetition has the same id', async () => {
    const mail = await provider((recipients, number) => {
      if (number === 1) return { status: 200, body: 'OK' }
      const results = recipients
        .filter((one) => one.token !== 'good@example.com')
        .map(({ id, token }) => ({ id, result: token.split('@')[0] }))
      return results.length === 0 ? undefined : { status: 200, body: JSON.stringify({ results }) }
    })
    const name = unique('mail')
    await addCredential(node, { service: 'webhook', name, url: mail.url, secret: SECRET })
    const [good, gone, bad] = [
      await device(name, 'good@example.com'),
      await device(name, 'invalid_token@example.com'),
      await device(name, 'rejected@example.com'),
    ]
    const { id } = await node.api.publish(message([good, gone, bad], name, unique('title')))
    await outcome(id, good.device, 'pushed')
    await outcome(id, gone.device, 'push_token_gone')
    await outcome(id, bad.device, 'push_refused')
    const ids = new Map()
    for (const one of mail.batches.flatMap((batch) => batch.recipients)) {
      ids.set(one.token, (ids.get(one.token) ?? new Set()).add(one.id))
    }
    assert.ok([...ids.values()].every((one) => one.size === 1), JSON.stringify([...ids]))
    const { push_tokens: tokens } = await node.api.call('GET', `/v1/devices/${gone.device}/push-tokens`)
    assert.deepEqual(tokens, [], 'the invalid token is removed')
    mail.stop()
  })
})

for (const service of ['webhook', 'hms', 'wns']) {
  test(`the fake of ${service} accepts a push with typed fields`, async () => {
    const [pushToken] = await push.tokens(service)
    const registered = await node.api.register({ user: unique('user'), device: unique('device'), push_token: pushToken })
    const title = unique('<"&>')
    const { id } = await node.api.publish({
      to: { devices: [registered.device] },
      notification: { title, body: 'b', url: 'https://example.com/', badge: 3, actions: [{ id: 'a', title: 'A' }] },
      data: { n: 1 },
      collapse_key: 'a key',
      urgency: 'high',
      push: { mode: 'always' },
    })
    await outcome(id, registered.device, 'pushed')
    const got = await push.accepted(service)
    assert.ok(got.some((one) => one.title === title), JSON.stringify(got.map((one) => one.title)))
    const other = await node.api.publish({ to: { devices: [registered.device] }, data: { n: 2 }, push: { mode: 'always' } })
    await outcome(other.id, registered.device, 'pushed')
  })
}

test('jsonwebtoken verifies the PS256 token that Huawei gets', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-hms-'))
  const [ca, cert, key] = ['ca.pem', 'cert.pem', 'key.pem'].map((name) => join(folder, name))
  issueFromAuthority(ca, cert, key)
  const received = []
  const server = createSecureServer({ cert: readFileSync(cert), key: readFileSync(key) }, (request, response) => {
    request.resume()
    received.push({ path: request.url, headers: request.headers })
    response.end(JSON.stringify({ code: '80000000', msg: 'Success', requestId: 'r' }))
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  const own = await Node.start({ args: ['--set', `egress.ca_file=${ca}`] })
  try {
    const credential = { ...push.info.credentials.hms, endpoint: `https://localhost:${server.address().port}` }
    await addCredential(own, credential)
    const registered = await own.api.register({ device: unique('device'), push_token: { service: 'hms', token: 'IQAAAAx' } })
    const { id } = await own.api.publish({
      to: { devices: [registered.device] },
      notification: { title: 'T', body: 'B' },
      push: { mode: 'always' },
    })
    await until('the push', async () => (await own.api.notification(id)).counts.pushed === 1)
    const { project_id, private_key, sub_account, key_id } = credential.service_account
    const [{ path, headers }] = received
    assert.equal(path, `/v3/${project_id}/messages:send`)
    assert.equal(headers['push-type'], '0')
    const token = headers.authorization.replace(/^Bearer /, '')
    const { header, payload } = jwt.verify(token, createPublicKey(private_key), {
      algorithms: ['PS256'],
      audience: 'https://oauth-login.cloud.huawei.com/oauth2/v3/token',
      issuer: sub_account,
      complete: true,
    })
    assert.equal(header.kid, key_id)
    assert.equal(payload.exp - payload.iat, 3600)
  } finally {
    await own.stop()
    server.close()
    rmSync(folder, { recursive: true, force: true })
  }
})
