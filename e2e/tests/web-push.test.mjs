/**
 * Web Push with npm packages: `web-push-testing` receives a node's pushes, as in a library's own tests, and `web-push`
 * pushes to the fake push service.
 */

import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { connect } from 'node:net'
import { Agent } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer } from 'node:tls'
import { after, before, describe, test } from 'node:test'

import webpush from 'web-push'

import { issueFromAuthority } from '../lib/certificate.mjs'
import { Node, freePort } from '../lib/node.mjs'
import { DevPush, addCredential, unique } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

const require = createRequire(import.meta.url)
const { PushApiModel } = require('web-push-testing/src/PushApiModel.js')
const WebPushTestingServer = require('web-push-testing/src/server.js')

const SUBJECT = 'mailto:ops@example.com'

describe('web-push-testing', () => {
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-web-push-'))
  let testing, tls, node, vapid, origin

  before(async () => {
    const port = await freePort()
    testing = new WebPushTestingServer(new PushApiModel(), port)
    testing.startServer()
    // It only supports http, but push services require https.
    const [ca, cert, key] = ['ca.pem', 'server.pem', 'server.key'].map((name) => join(folder, name))
    issueFromAuthority(ca, cert, key)
    tls = createServer({ cert: readFileSync(cert), key: readFileSync(key), ALPNProtocols: ['http/1.1'] }, (outer) => {
      const inner = connect(port, 'localhost')
      outer.pipe(inner).pipe(outer)
      for (const [one, other] of [[outer, inner], [inner, outer]]) {
        one.on('error', () => other.destroy())
        one.on('close', () => other.destroy())
      }
    })
    await new Promise((resolve) => tls.listen(0, '127.0.0.1', resolve))
    origin = `https://localhost:${tls.address().port}`
    node = await Node.start({ args: ['--set', `egress.ca_file=${ca}`] })
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const shown = await addCredential(node, {
      service: 'webpush',
      private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
      subject: SUBJECT,
    })
    vapid = shown.public_key ?? shown.settings?.public_key
    assert.ok(vapid, JSON.stringify(shown))
    const ask = (path, body) =>
      fetch(`http://localhost:${port}${path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body ?? {}) })
    testing.ask = async (path, body) => {
      const answer = await ask(path, body)
      assert.equal(answer.status, 200, await answer.clone().text())
      return answer.headers.get('content-type').includes('json') ? (await answer.json()).data : undefined
    }
  })

  after(async () => {
    await node?.stop()
    tls?.close()
    testing?._server.close()
    rmSync(folder, { recursive: true, force: true })
  })

  /** A device with a subscription at the service; `{device, token, clientHash}`. */
  async function browser(applicationServerKey) {
    const made = await testing.ask('/subscribe', { userVisibleOnly: 'true', applicationServerKey })
    const endpoint = made.endpoint.replace(/^http:\/\/[^/]+/, origin)
    const push_token = { service: 'webpush', endpoint, keys: made.keys }
    return { ...(await node.api.register({ user: unique('user'), device: unique('device'), push_token })), clientHash: made.clientHash }
  }

  const push = (device, message) => node.api.publish({ to: { devices: [device] }, push: { mode: 'always' }, ...message })

  const outcome = (id, device, wanted) =>
    until(`${wanted} in the trace`, async () => {
      const { steps } = await node.api.trace(id, device)
      return steps.find((step) => step.outcome === wanted)
    })

  test('decrypts pushes with the key of the subscription', async () => {
    const { device, clientHash } = await browser(vapid)
    const notification = { title: '狼煙 🔥', body: '"b"\n' }
    const { id } = await push(device, { notification, data: { n: 1 } })
    await outcome(id, device, 'pushed')
    const { messages } = await testing.ask('/get-notifications', { clientHash })
    assert.deepEqual(messages.map((text) => JSON.parse(text)), [{ id, notification, data: { n: 1 } }])
  })

  test('accepts the largest payload', async () => {
    const { device, clientHash } = await browser(vapid)
    const payload = 'x'.repeat(3_991)
    const { id } = await push(device, { notification: { title: 't' }, push: { mode: 'always', webpush: { payload } } })
    await outcome(id, device, 'pushed')
    const { messages } = await testing.ask('/get-notifications', { clientHash })
    assert.deepEqual(messages, [JSON.stringify(payload)])
  })

  test('reports an expired subscription, which is removed', async () => {
    const { device, token, clientHash } = await browser(vapid)
    await testing.ask(`/expire-subscription/${clientHash}`)
    const { id } = await push(device, { notification: { title: 't' } })
    await outcome(id, device, 'push_token_gone')
    assert.equal((await node.api.me(token).show()).push_token ?? null, null)
  })

  test('rejects a subscription of another key', async () => {
    const { device, clientHash } = await browser(webpush.generateVAPIDKeys().publicKey)
    const { id } = await push(device, { notification: { title: 't' } })
    await outcome(id, device, 'push_refused')
    assert.deepEqual((await testing.ask('/get-notifications', { clientHash })).messages, [])
  })
})

describe('web-push', () => {
  let fakes, agent, vapidDetails
  before(async () => {
    fakes = await DevPush.start()
    agent = new Agent({ ca: fakes.info.ca })
    const { private_key: privateKey } = fakes.info.credentials.webpush
    vapidDetails = { subject: SUBJECT, publicKey: fakes.info.vapid_public_key, privateKey }
  })
  after(async () => {
    agent?.destroy()
    await fakes?.stop()
  })

  const send = (subscription, data, options) =>
    webpush.sendNotification(subscription, data, { vapidDetails, TTL: 60, agent, ...options })

  for (const [name, data] of Object.entries({ text: 'hello', unicode: '狼煙 🔥', 'the most that fits': 'x'.repeat(3_993) })) {
    test(`is accepted by the fake: ${name}`, async () => {
      const [subscription] = await fakes.tokens('webpush')
      const answer = await send(subscription, data, { urgency: 'low', topic: 'score' })
      assert.equal(answer.statusCode, 201)
      const [got] = await fakes.received('webpush', subscription.endpoint)
      assert.equal(got.payload, data)
      assert.deepEqual([got.headers.ttl, got.headers.urgency, got.headers.topic], ['60', 'low', 'score'])
    })
  }

  test('is rejected by the fake with another key than the subscription\'s', async () => {
    const [subscription] = await fakes.tokens('webpush')
    const other = { subject: SUBJECT, ...webpush.generateVAPIDKeys() }
    await assert.rejects(send(subscription, 'x', { vapidDetails: other }), { statusCode: 403 })
  })

  test('is rejected by the fake with the encoding of a draft', async () => {
    const [subscription] = await fakes.tokens('webpush')
    await assert.rejects(send(subscription, 'x', { contentEncoding: 'aesgcm' }), { statusCode: 400 })
  })
})
