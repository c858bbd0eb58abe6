/**
 * A node as a Web Push service (RFC 8030): the npm package `web-push` posts to the endpoint of a device as to a
 * browser's, and `http_ece` decrypts the messages of the device.
 */

import assert from 'node:assert/strict'
import { createECDH, randomBytes } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { Agent, request } from 'node:https'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import webpush from 'web-push'

import { issueFromAuthority } from '../lib/certificate.mjs'
import { Device } from '../lib/device.mjs'
import { KEY, Node } from '../lib/node.mjs'

const ece = createRequire(import.meta.url)('http_ece')
const SUBJECT = 'mailto:ops@example.com'

const folder = mkdtempSync(join(tmpdir(), 'noroshi-push-resource-'))
let node, ca, agent

before(async () => {
  // `web-push` posts to https only.
  const [authority, cert, key] = ['ca.pem', 'server.pem', 'server.key'].map((name) => join(folder, name))
  issueFromAuthority(authority, cert, key)
  ca = readFileSync(authority)
  agent = new Agent({ ca })
  const env = { NOROSHI__TLS__CERT: cert, NOROSHI__TLS__KEY: key, NOROSHI__WEB_PUSH__ENDPOINT_RATE: '20', NOROSHI__LOG__LEVEL: 'debug' }
  node = await Node.start({ env })
})

after(async () => {
  agent?.destroy()
  await node?.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** An HTTPS request; `{status, headers, body}`. */
function ask(method, url, { token, headers = {}, body } = {}) {
  return new Promise((resolve, reject) => {
    const authorization = token ? { authorization: `Bearer ${token}` } : {}
    const sent = request(new URL(url, `https://127.0.0.1:${node.httpPort}`), { method, agent, headers: { ...authorization, ...headers } })
    sent.once('error', reject)
    sent.once('response', async (answer) => {
      const chunks = await answer.toArray()
      const text = Buffer.concat(chunks).toString()
      resolve({ status: answer.statusCode, headers: answer.headers, body: text.startsWith('{') ? JSON.parse(text) : text })
    })
    sent.end(body)
  })
}

/** A device with an endpoint and the keys of a browser. */
class Receiver {
  static async make(wanted = {}) {
    const receiver = new this()
    const made = await ask('POST', '/v1/devices', { token: KEY })
    assert.equal(made.status, 201)
    ;({ device: receiver.device, token: receiver.token } = made.body)
    receiver.key = createECDH('prime256v1')
    const p256dh = receiver.key.generateKeys('base64url')
    receiver.auth = randomBytes(16).toString('base64url')
    receiver.endpoint = await receiver.ask(wanted)
    receiver.subscription = { endpoint: receiver.endpoint.url, keys: { p256dh, auth: receiver.auth } }
    return receiver
  }

  async ask(wanted) {
    const made = await ask('POST', '/v1/me/endpoints', { token: this.token, body: JSON.stringify(wanted) })
    assert.equal(made.status, 201, JSON.stringify(made.body))
    return made.body
  }

  connect() {
    return Device.connect(`wss://127.0.0.1:${node.httpPort}`, this.token, { ca })
  }

  /** The posted text, from the device's message. */
  open(msg) {
    const pushed = msg.data.web_push
    assert.equal(pushed.endpoint, this.endpoint.id)
    const field = (text, name) => new RegExp(`(?:^|[;,\\s])${name}=([\\w-]+)`).exec(text)?.[1]
    const legacy = { salt: field(pushed.encryption, 'salt'), dh: field(pushed.crypto_key, 'dh') }
    const keys = pushed.content_encoding === 'aesgcm' ? legacy : {}
    const options = { version: pushed.content_encoding, privateKey: this.key, authSecret: this.auth, ...keys }
    return ece.decrypt(Buffer.from(pushed.body, 'base64url'), options).toString()
  }
}

function vapid() {
  const { publicKey, privateKey } = webpush.generateVAPIDKeys()
  return { subject: SUBJECT, publicKey, privateKey }
}

const send = (receiver, data, options) => webpush.sendNotification(receiver.subscription, data, { TTL: 60, agent, ...options })

/** The error status of `web-push`. */
async function refused(sent) {
  const error = await sent.then(() => assert.fail('it was accepted'), (error) => error)
  assert.ok(error instanceof webpush.WebPushError, error)
  return error
}

test('a message is received and decrypted', async () => {
  const receiver = await Receiver.make()
  const device = await receiver.connect()
  for (const contentEncoding of ['aes128gcm', 'aesgcm']) {
    const data = JSON.stringify({ title: '狼煙', contentEncoding })
    const answer = await send(receiver, data, { contentEncoding })
    assert.equal(answer.statusCode, 201)
    assert.ok(answer.headers.location.startsWith(`https://127.0.0.1:${node.httpPort}/push/message/`))
    assert.equal(answer.headers.ttl, '60')
    const msg = await device.msg()
    assert.equal(receiver.open(msg), data)
    assert.equal(msg.ack, true)
    device.ack(msg.id)
  }
  const largest = 'x'.repeat(3_993)
  await send(receiver, largest)
  assert.equal(receiver.open(await device.msg()), largest)
  await device.leave()
})

test('an offline device receives it at its next log-in, a replaced topic once', async () => {
  const receiver = await Receiver.make()
  for (const data of ['one', 'two']) await send(receiver, data, { topic: 'upd' })
  await send(receiver, 'three', { urgency: 'high' })
  await send(receiver, 'now or never', { TTL: 0 })
  const device = await receiver.connect()
  assert.deepEqual((await device.msgs(2)).map((msg) => receiver.open(msg)), ['two', 'three'])
  await send(receiver, 'now', { TTL: 0 })
  assert.equal(receiver.open(await device.msg()), 'now')
  await device.leave()
})

test('an idle device receives urgent messages, and the others when it becomes active', async () => {
  const receiver = await Receiver.make()
  const device = await receiver.connect()
  device.send({ t: 'presence', state: 'idle' })
  await device.settle()
  await send(receiver, 'can wait', { urgency: 'low' })
  await send(receiver, 'nobody looks', { urgency: 'very-low', TTL: 0 })
  await send(receiver, 'cannot wait', { urgency: 'high' })
  const urgent = await device.msg()
  assert.equal(receiver.open(urgent), 'cannot wait')
  device.ack(urgent.id)
  await device.settle()
  device.send({ t: 'presence', state: 'active' })
  assert.equal(receiver.open(await device.msg()), 'can wait')
  await device.leave()
})

test('a bound endpoint accepts its own sender only', async () => {
  const [mine, other] = [vapid(), vapid()]
  const receiver = await Receiver.make({ vapid_key: mine.publicKey, label: 'bound' })
  for (const contentEncoding of ['aes128gcm', 'aesgcm']) {
    assert.equal((await send(receiver, 'x', { vapidDetails: mine, contentEncoding })).statusCode, 201)
    assert.equal((await refused(send(receiver, 'x', { vapidDetails: other, contentEncoding }))).statusCode, 403)
  }
  assert.equal((await refused(send(receiver, 'x'))).statusCode, 401)
})

test('a receipt follows the acknowledgement', async () => {
  const receiver = await Receiver.make()
  const device = await receiver.connect()
  const answer = await send(receiver, 'confirm me', { headers: { Prefer: 'respond-async' } })
  assert.equal(answer.statusCode, 202)
  const receipt = /<(.*)>; rel="urn:ietf:params:push:receipt"/.exec(answer.headers.link)[1]
  const msg = await device.msg()
  assert.equal((await ask('GET', receipt)).status, 202)
  const waiting = ask('GET', receipt, { headers: { Prefer: 'wait=30' } })
  device.ack(msg.id)
  assert.equal((await waiting).status, 204)
  await device.leave()
  const taken = await send(receiver, 'never mind', { headers: { Prefer: 'respond-async' } })
  assert.equal((await ask('GET', taken.headers.location)).status, 405)
  assert.equal((await ask('DELETE', taken.headers.location)).status, 204)
  assert.equal((await ask('GET', /<(.*)>/.exec(taken.headers.link)[1])).status, 410)
})

test('limits of size, rate and lifetime', async () => {
  const receiver = await Receiver.make()
  const { url } = receiver.endpoint
  assert.deepEqual((await ask('GET', url)).body, { unifiedpush: { version: 1 } })
  assert.equal((await refused(send(receiver, 'x'.repeat(4_000)))).statusCode, 413)
  assert.equal((await ask('POST', url, { body: 'x' })).status, 400, 'no TTL')
  let limited
  for (let i = 0; i < 21 && !limited; i++) limited = await send(receiver, 'x').then(() => undefined, (error) => error)
  assert.equal(limited?.statusCode, 429)
  assert.ok(Number(limited.headers['retry-after']) >= 1)
  const other = await receiver.ask({})
  assert.equal((await ask('POST', other.url, { headers: { ttl: '1' }, body: 'x' })).status, 201, 'another endpoint')
  assert.equal((await ask('DELETE', `/v1/me/endpoints/${receiver.endpoint.id}`, { token: receiver.token })).status, 204)
  assert.equal((await refused(send(receiver, 'x'))).statusCode, 410)
  assert.equal((await ask('GET', url)).status, 410)
  assert.equal((await ask('POST', `${url}x`, { headers: { ttl: '1' } })).status, 404, 'never issued')
})

test('endpoints survive a restart, and their secrets are not in the log', async () => {
  const receiver = await Receiver.make()
  await send(receiver, 'before')
  await node.drain()
  await node.spawn()
  await send(receiver, 'after')
  const device = await receiver.connect()
  assert.deepEqual((await device.msgs(2)).map((msg) => receiver.open(msg)), ['before', 'after'])
  await device.leave()
  const secret = receiver.endpoint.url.split('/').at(-1)
  assert.ok(!readFileSync(node.logPath, 'utf8').includes(secret))
})
