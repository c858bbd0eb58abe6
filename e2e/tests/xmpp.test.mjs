/**
 * XMPP with the independent npm client `@xmpp/client`: over TCP with STARTTLS, with direct
 * TLS and over WebSocket; with its own stream management and reconnection.
 */

import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { client, xml } from '@xmpp/client'
import WebSocket from 'ws'

import { api } from '../lib/api.mjs'
import { issue } from '../lib/certificate.mjs'
import { Device } from '../lib/device.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { JWT_SECRET, KEY, Node, freePort } from '../lib/node.mjs'
import { sleep, until, within } from '../lib/until.mjs'

// The client's TLS has no option for trusted certificates; test_xmpp.py checks verification.
process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'
// Node 20 has no WebSocket global.
globalThis.WebSocket ??= WebSocket

const PUBSUB = 'http://jabber.org/protocol/pubsub'

let node, folder, provider, services
before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'noroshi-xmpp-'))
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
  issue(cert, key, 'localhost')
  const [port, tlsPort] = [await freePort(), await freePort()]
  const args = ['--tls-cert', cert, '--tls-key', key, '--set', 'xmpp.plaintext=false']
  args.push('--xmpp', `127.0.0.1:${port}`, '--xmpps', `127.0.0.1:${tlsPort}`)
  node = await Node.start({ args })
  provider = api(`https://127.0.0.1:${node.httpPort}`, KEY)
  services = {
    starttls: `xmpp://127.0.0.1:${port}`,
    tls: `xmpps://127.0.0.1:${tlsPort}`,
    websocket: `wss://127.0.0.1:${node.httpPort}/xmpp`,
  }
})
after(async () => {
  await node?.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** An online, available client; its messages are in `received`, its stream errors in `streamErrors`. */
async function connect(device, { service = services.starttls, reconnects = false } = {}) {
  const xmpp = client({ service, domain: 'localhost', username: device.device, password: device.token })
  if (!reconnects) xmpp.reconnect.stop()
  Object.assign(xmpp, { received: [], streamErrors: [], timeout: 5_000 })
  xmpp.on('stanza', (stanza) => stanza.is('message') && xmpp.received.push(stanza))
  xmpp.on('error', (error) => xmpp.streamErrors.push(error.condition ?? error.message))
  // `start` waits for the server's header only after it has written its own, and misses an earlier one.
  const online = new Promise((resolve, reject) => {
    xmpp.once('online', resolve)
    xmpp.start().catch((error) => error.name === 'TimeoutError' || reject(error))
  })
  xmpp.online = await within('the client to be online', online)
  // Its presence returns once effective (RFC 6121 §4.2.2). A request would work too, but its answer is a stanza
  // that this client's stream management does not count.
  const back = new Promise((resolve) => xmpp.on('stanza', (stanza) => stanza.is('presence') && resolve()))
  await xmpp.send(xml('presence'))
  await within('its own presence', back)
  return xmpp
}

/** Waits until the service has read everything so far. */
const sync = (xmpp) => xmpp.iqCaller.get(xml('ping', 'urn:xmpp:ping'), 'localhost')

/** The payload of a message, from a topic or the inbox. */
function payload(message) {
  const item = message.getChild('event')?.getChild('items')?.getChild('item') ?? message
  return JSON.parse(item.getChild('notification').getChildText('json'))
}

const data = (xmpp) => xmpp.received.map((message) => payload(message).data)

const pubsub = (type, ...children) =>
  xml('iq', { type, to: 'pubsub.localhost' }, xml('pubsub', { xmlns: PUBSUB }, ...children))

for (const name of ['starttls', 'tls', 'websocket']) {
  test(`a device receives its inbox and topics, ${name}`, async () => {
    const device = await provider.register({ user: name, topics: ['news'] })
    const sent = await provider.publish({ to: { users: [name] }, notification: { title: 'Hello', body: 'you' } })
    const xmpp = await connect(device, { service: services[name] })
    assert.equal(xmpp.online.bare().toString(), `${device.device}@localhost`)
    await until('the waiting message', () => xmpp.received.length === 1)
    const [message] = xmpp.received
    assert.deepEqual([message.getChildText('subject'), message.getChildText('body')], ['Hello', 'you'])
    assert.equal(message.attrs.id, sent.id)
    await provider.publish({ to: { topic: 'news' }, data: { n: 1 }, when: 'connected' })
    await until('the topic', () => xmpp.received.length === 2)
    assert.equal(xmpp.received[1].attrs.from, 'pubsub.localhost')
    assert.deepEqual(payload(xmpp.received[1]).data, { n: 1 })
    // The client answers requests for acknowledgement.
    await until('the acknowledgement', async () => (await provider.notification(sent.id)).counts.acked === 1)
    await xmpp.stop()
  })
}

test('an app JWT works as a password, and a wrong one is reported', async () => {
  const token = hs256(JWT_SECRET, { sub: 'jwt-user', device: 'jwt-device', exp: now() + 600 })
  const xmpp = await connect({ device: 'jwt-device', token })
  await provider.publish({ to: { users: ['jwt-user'] }, data: 1, when: 'connected' })
  await until('the message', () => xmpp.received.length === 1)
  await xmpp.stop()
  await assert.rejects(connect({ device: 'jwt-device', token: `${token}x` }), /not-authorized/)
  await assert.rejects(connect({ device: 'other', token }), /not-authorized/)
})

test('presence selects the delivered messages', async () => {
  const device = await provider.register({ user: 'away' })
  const xmpp = await connect(device)
  const publish = (n, when) => provider.publish({ to: { users: ['away'] }, data: n, when })
  await publish(1, 'active')
  await xmpp.send(xml('presence', {}, xml('show', {}, 'away')))
  await sync(xmpp)
  await publish(2, 'active')
  await publish(3, 'connected')
  await until('the third', () => xmpp.received.length === 2)
  await xmpp.send(xml('presence', { type: 'unavailable' }))
  await sync(xmpp)
  await publish(4, 'stored')
  await publish(5, 'connected')
  await sync(xmpp)
  assert.deepEqual(data(xmpp), [1, 3])
  await xmpp.send(xml('presence'))
  await until('the held message', () => xmpp.received.length === 3)
  assert.deepEqual(data(xmpp), [1, 3, 4])
  await xmpp.stop()
})

test('topics are PubSub nodes: subscribe, items, the last item, publish if allowed', async () => {
  const { code, stderr } = await node.cli('apps', 'update', 'dev', '--client-publish', 'open/#')
  assert.equal(code, 0, stderr)
  await provider.publish({ to: { topic: 'open/a' }, data: 'first', retain: true })
  const device = await provider.register()
  const xmpp = await connect(device)
  await xmpp.iqCaller.request(pubsub('set', xml('subscribe', { node: 'open/a', jid: `${device.device}@localhost` })))
  await until('the last item', () => xmpp.received.length === 1)
  const json = xml('json', { xmlns: 'urn:xmpp:json:0' }, JSON.stringify('second'))
  const published = await xmpp.iqCaller.request(pubsub('set', xml('publish', { node: 'open/a' }, xml('item', {}, json))))
  const { id } = published.getChild('pubsub').getChild('publish').getChild('item').attrs
  await until('its own message', () => xmpp.received.length === 2)
  assert.deepEqual(data(xmpp), ['first', 'second'])
  const answer = await xmpp.iqCaller.request(pubsub('get', xml('items', { node: 'open/a' })))
  const items = answer.getChild('pubsub').getChild('items').getChildren('item')
  assert.deepEqual(items.map((item) => payload(item).data), ['first', 'second'])
  assert.equal(items[1].attrs.id, id)
  const closed = pubsub('set', xml('publish', { node: 'closed' }, xml('item', {}, xml('json', { xmlns: 'urn:xmpp:json:0' }, '1'))))
  await assert.rejects(xmpp.iqCaller.request(closed), /forbidden/)
  await xmpp.stop()
})

test('the client resumes a broken session and receives everything once', async () => {
  const device = await provider.register({ user: 'broken' })
  const publish = (n) => provider.publish({ to: { users: ['broken'] }, data: n })
  // The client's own counter is sometimes behind by one: then the first message repeats.
  for (let attempt = 1; ; attempt++) {
    const xmpp = await connect(device, { reconnects: true })
    let resumed = 0
    xmpp.streamManagement.on('resumed', () => (resumed += 1))
    await until('stream management', () => xmpp.streamManagement.enabled)
    await publish('before')
    await until('the first', () => xmpp.received.length >= 1)
    const { jid } = xmpp
    xmpp.socket.socket?.destroy?.() ?? xmpp.socket.destroy()
    await until('the end of the session', async () => (await provider.presence('broken')).broken?.presence !== 'active')
    await publish('meanwhile')
    await until('the second', () => data(xmpp).includes('meanwhile'))
    const received = data(xmpp)
    await xmpp.stop()
    if (resumed === 1 && received.length === 2) {
      assert.equal(xmpp.jid?.toString() ?? jid.toString(), jid.toString())
      return
    }
    assert.ok(attempt < 5, `resumed ${resumed} times, received ${received}`)
  }
})

test('a device has one session across protocols', async () => {
  const device = await provider.register({ user: 'changing' })
  const xmpp = await connect(device)
  const native = await Device.connect(`wss://127.0.0.1:${node.httpPort}`, device.token, { rejectUnauthorized: false })
  await until('the conflict error of the first', () => xmpp.streamErrors.includes('conflict'))
  const again = await connect(device, { service: services.websocket })
  assert.equal((await within('the close of the second', native.closed)).code, 4001)
  await provider.publish({ to: { users: ['changing'] }, data: 'here', when: 'connected' })
  await until('the message', () => again.received.length === 1)
  await again.stop()
})

test('inbox and last items survive a kill of the node', async () => {
  const device = await provider.register({ user: 'patient', topics: ['weather'] })
  await provider.publish({ to: { topic: 'weather' }, data: 'rain', retain: true })
  await provider.publish({ to: { users: ['patient'] }, data: 'kept' })
  await node.kill()
  await sleep(1_000) // an older message carries its delay
  await node.spawn()
  const xmpp = await connect(device)
  await until('both', () => xmpp.received.length === 2)
  assert.deepEqual(data(xmpp).sort(), ['kept', 'rain'])
  const own = xmpp.received.find((message) => payload(message).data === 'kept')
  assert.ok(own.getChild('delay', 'urn:xmpp:delay'), 'it carries its delay')
  await xmpp.stop()
})

test('a drain sends a stream error', async () => {
  const device = await provider.register()
  const xmpp = await connect(device)
  node.terminate()
  await until('the stream error', () => xmpp.streamErrors.length > 0)
  assert.equal(xmpp.streamErrors[0], 'system-shutdown')
  await within('the node to exit', node.exited)
  await node.spawn()
})
