/**
 * Every verb of every device protocol: its effect before a log-in, with credentials that must not open a
 * session, and from a device of another app that targets the victim's topics, users and notifications.
 *
 * The tables of verbs below are compared with the parsers' sources, so that no new verb is forgotten.
 */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { connect as tcp } from 'node:net'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { client as xmppClient, xml } from '@xmpp/client'
import mqtt from 'mqtt'
import { io } from 'socket.io-client'
import WebSocket from 'ws'

import { api } from '../lib/api.mjs'
import { Device } from '../lib/device.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { Node, freePort } from '../lib/node.mjs'
import { until, within } from '../lib/until.mjs'

globalThis.WebSocket ??= WebSocket

const PROTOCOL = fileURLToPath(new URL('../../crates/protocol/src/', import.meta.url))
const PUBSUB = 'http://jabber.org/protocol/pubsub'
const ARCHIVE = 'urn:xmpp:mam:2'
const TOPIC = 'secret-topic'
const SECRET = { victim: 'v'.repeat(40), attacker: 'a'.repeat(40) }

let node, ports, operator, victim
const apps = {}

before(async () => {
  ports = { mqtt: await freePort(), xmpp: await freePort() }
  const args = ['--mqtt', `127.0.0.1:${ports.mqtt}`, '--xmpp', `127.0.0.1:${ports.xmpp}`]
  // Many log-ins fail from one address here; verification.test.mjs tests the limit on failures.
  node = await Node.start({ args: [...args, '--set', 'auth.failures_per_client=1000000'] })
  operator = api(`http://127.0.0.1:${node.adminPort}`, readFileSync(join(node.data, 'operator.token'), 'utf8').trim())
  for (const name of ['victim', 'attacker']) {
    await operator.call('POST', '/v1/apps', { body: { name, jwt_secret: SECRET[name] }, status: 201 })
    const { key, id } = await operator.call('POST', `/v1/apps/${name}/keys`, { body: { name: 'k', scopes: ['publish', 'devices', 'read', 'admin'] }, status: 201 })
    apps[name] = { key, id, provider: api(node.http, key) }
    // Devices may publish in both apps: a verb that is always refused would prove nothing.
    await apps[name].provider.call('PATCH', `/v1/apps/${name}`, { body: { client_publish: ['#'] } })
  }
  victim = await connectVictim()
})
after(async () => {
  victim?.device.socket.terminate()
  await node?.stop()
})

/** The victim: connected, subscribed, with one unacknowledged notification. */
async function connectVictim() {
  const { provider } = apps.victim
  const registered = await provider.register({ device: 'shared-id', user: 'owner', topics: [TOPIC] })
  await provider.publish({ to: { topic: TOPIC }, retain: true, data: 'retained of victim' })
  const pending = (await provider.publish({ to: { devices: ['shared-id'] }, data: 'pending of victim' })).id
  const device = await Device.connect(node.ws, registered.token)
  const received = new Set()
  device.socket.on('message', (text) => received.add(JSON.parse(text).data))
  for (const frame of device.queue) received.add(frame.data)
  return { ...registered, device, received, pending }
}

/** Checks that the victim is still connected, receives its topic and still has its unacknowledged notification. */
async function victimIsWell() {
  const marker = `marker ${Math.random()}`
  await apps.victim.provider.publish({ to: { topic: TOPIC }, when: 'connected', data: marker })
  await until('the victim to receive its topic', () => {
    assert.equal(victim.device.close, undefined, 'the victim was disconnected')
    return victim.received.has(marker)
  })
  const inbox = await apps.victim.provider.me(victim.token).inbox()
  assert.ok(inbox.messages.some(({ id }) => id === victim.pending), 'unacknowledged messages of the victim are still in its inbox')
  const { counts } = await apps.victim.provider.notification(victim.pending)
  assert.equal(counts.acked ?? 0, 0)
}

// -- credentials ---------------------------------------------------------------------------------------------------

async function badCredentials() {
  const { provider } = apps.victim
  const revoked = await provider.register({ device: 'revoked', user: 'owner' })
  await provider.call('POST', '/v1/devices/revoked/revoke')
  const deleted = await provider.register({ device: 'deleted', user: 'owner' })
  await provider.call('DELETE', '/v1/devices/deleted')
  const claims = { sub: 'owner', device: 'shared-id', aud: 'victim', iat: now() - 5, exp: now() + 600 }
  return {
    nonsense: { device: 'shared-id', token: 'nonsense' },
    'a forged device token': { device: 'shared-id', token: `${victim.token.slice(0, -4)}AAAA` },
    'an expired JWT': { device: 'shared-id', token: hs256(SECRET.victim, { ...claims, exp: now() - 60 }) },
    "a JWT for the victim, signed by the attacker": { device: 'shared-id', token: hs256(SECRET.attacker, claims) },
    'the token of a revoked device': { device: 'revoked', token: revoked.token },
    'the token of a deleted device': { device: 'deleted', token: deleted.token },
    'an API key': { device: 'shared-id', token: apps.victim.key },
  }
}

/** Each function tries to log in and returns whether it succeeded. */
const logIns = {
  native: (credential) => native(credential, 'header'),
  'native, by query': (credential) => native(credential, 'query'),
  'native, by frame': (credential) => native(credential, 'frame'),
  'SSE, by header': (credential) => sse('/v1/events', { authorization: `Bearer ${credential.token}` }),
  'SSE, by query': (credential) => sse(`/v1/events?token=${encodeURIComponent(credential.token)}`),
  'Socket.IO, WebSocket': (credential) => socketIo(credential, 'websocket'),
  'Socket.IO, polling': (credential) => socketIo(credential, 'polling'),
  'MQTT 3.1.1': (credential) => mqttLogIn(credential, { protocolVersion: 4 }),
  'MQTT 5': (credential) => mqttLogIn(credential, { protocolVersion: 5 }),
  'MQTT over WebSocket': (credential) => mqttLogIn(credential, { protocolVersion: 5 }, `${node.ws}/mqtt`),
  XMPP: (credential) => xmppLogIn(credential, `xmpp://127.0.0.1:${ports.xmpp}`),
  'XMPP over WebSocket': (credential) => xmppLogIn(credential, `${node.ws}/xmpp`),
}

async function native({ token }, via) {
  const device = Device.open(node.ws, token, { via })
  const first = await Promise.race([device.next().catch(() => undefined), device.closed.then(() => undefined)])
  device.socket.terminate()
  return first?.t === 'ready'
}

async function sse(path, headers) {
  const answer = await fetch(node.http + path, { headers })
  await answer.body?.cancel()
  return answer.status === 200
}

async function socketIo({ token }, transport) {
  const socket = io(node.http, { auth: { token }, transports: [transport], forceNew: true, reconnection: false })
  const open = await within('an answer', new Promise((resolve) => {
    socket.once('connect', () => resolve(true))
    socket.once('connect_error', () => resolve(false))
    socket.once('disconnect', () => resolve(false))
  }))
  socket.disconnect()
  return open
}

async function mqttLogIn({ device, token }, options, url = `mqtt://127.0.0.1:${ports.mqtt}`) {
  const client = mqtt.connect(url, { ...options, username: device, password: token, clientId: 'victim-client', reconnectPeriod: 0 })
  const open = await within('an answer', new Promise((resolve) => {
    client.once('connect', () => resolve(true))
    client.once('error', () => resolve(false))
    client.once('close', () => resolve(false))
  }))
  client.end(true)
  return open
}

async function xmppLogIn({ device, token }, service) {
  const xmpp = xmppClient({ service, domain: 'localhost', credentials: (authenticate) => authenticate({ username: device, password: token }, 'PLAIN') })
  xmpp.reconnect.stop()
  xmpp.timeout = 5_000
  const open = await within('an answer', new Promise((resolve) => {
    xmpp.once('online', () => resolve(true))
    xmpp.on('error', () => resolve(false))
    xmpp.start().catch((error) => error.name === 'TimeoutError' || resolve(false))
  }))
  await xmpp.stop().catch(() => {})
  return open
}

describe('log-ins', () => {
  test('every protocol admits a device of the app', async () => {
    const { provider } = apps.victim
    for (const [protocol, logIn] of Object.entries(logIns)) {
      assert.ok(await logIn(await provider.register({ user: 'guest' })), protocol)
    }
  })

  test('no protocol opens a session with a bad credential, and the victim is not disturbed', async () => {
    for (const [what, credential] of Object.entries(await badCredentials())) {
      for (const [protocol, logIn] of Object.entries(logIns)) {
        assert.equal(await logIn(credential), false, `${protocol} with ${what}`)
      }
    }
    await victimIsWell()
  })

  test("another app's device cannot take the victim's place by its id", async () => {
    const attacker = await apps.attacker.provider.register({ device: 'shared-id', user: 'owner' })
    for (const [protocol, logIn] of Object.entries(logIns)) {
      assert.ok(await logIn(attacker), protocol)
      await victimIsWell()
    }
  })
})

// -- before a log-in -------------------------------------------------------------------------------------------------

const nativeVerbs = {
  connect: () => ({ t: 'connect', token: 'nonsense' }),
  ack: () => ({ t: 'ack', ids: [victim.pending] }),
  presence: () => ({ t: 'presence', state: 'idle' }),
  sub: () => ({ t: 'sub', topics: [TOPIC] }),
  unsub: () => ({ t: 'unsub', topics: [TOPIC] }),
  ping: () => ({ t: 'ping' }),
  token: () => ({ t: 'token', token: victim.token }),
}

/** `[first byte, body]` of each packet except CONNECT that a client may send, and of those it may not send. */
const mqttPackets = {
  ConnAck: [0x20, [0, 0]],
  Publish: [0x30, [0, 12, ...Buffer.from(TOPIC), 0x78]],
  PubAck: [0x40, [0, 1]],
  PubRec: [0x50, [0, 1]],
  PubRel: [0x62, [0, 1]],
  PubComp: [0x70, [0, 1]],
  Subscribe: [0x82, [0, 1, 0, 12, ...Buffer.from(TOPIC), 0]],
  SubAck: [0x90, [0, 1, 0]],
  Unsubscribe: [0xa2, [0, 1, 0, 12, ...Buffer.from(TOPIC)]],
  UnsubAck: [0xb0, [0, 1]],
  PingReq: [0xc0, []],
  PingResp: [0xd0, []],
  Disconnect: [0xe0, []],
  Auth: [0xf0, []],
}

const socketIoEvents = {
  subscribe: () => ({ topics: [TOPIC] }),
  unsubscribe: () => ({ topics: [TOPIC] }),
  ack: () => ({ ids: [victim.pending] }),
  presence: () => ({ state: 'idle' }),
  token: () => ({ token: victim.token }),
}

/** Requests of a device over XMPP, by namespace of the parsers' table; `undefined`: not a request of a device. */
const xmppRequests = {
  BIND: () => xml('bind', { xmlns: 'urn:ietf:params:xml:ns:xmpp-bind' }),
  SESSION: () => xml('session', { xmlns: 'urn:ietf:params:xml:ns:xmpp-session' }),
  ROSTER: () => xml('query', { xmlns: 'jabber:iq:roster' }),
  PING: () => xml('ping', { xmlns: 'urn:xmpp:ping' }),
  DISCO_INFO: () => xml('query', { xmlns: 'http://jabber.org/protocol/disco#info', node: TOPIC }),
  DISCO_ITEMS: () => xml('query', { xmlns: 'http://jabber.org/protocol/disco#items' }),
  PUBSUB: () => xml('pubsub', { xmlns: PUBSUB }, xml('items', { node: TOPIC, max_items: '10' })),
  PUBSUB_OWNER: () => xml('pubsub', { xmlns: `${PUBSUB}#owner` }, xml('delete', { node: TOPIC })),
  REGISTER: () => xml('query', { xmlns: 'jabber:iq:register' }),
  VERSION: () => xml('query', { xmlns: 'jabber:iq:version' }),
  CARD: () => xml('vCard', { xmlns: 'vcard-temp' }),
  CARBONS: () => xml('enable', { xmlns: 'urn:xmpp:carbons:2' }),
  ARCHIVE: () => xml('query', { xmlns: ARCHIVE }),
  PUSH: () => xml('enable', { xmlns: 'urn:xmpp:push:0', jid: 'pubsub.localhost', node: TOPIC }),
}
const xmppNoRequests = [
  'STREAM', 'CLIENT', 'FRAMING', 'STREAM_ERRORS', 'STANZA_ERRORS', 'TLS', 'SASL', 'SASL2', 'BIND2', 'SM', 'CSI',
  'PUBSUB_ERRORS', 'PUBSUB_EVENT', 'RECEIPTS', 'DELAY', 'JSON', 'CAPABILITIES', 'HINTS', 'PRE_APPROVAL', 'REGISTER_FEATURE', 'XML', 'XMLNS', 'NOTIFICATION',
  'FORWARD', 'CHAT_STATES', 'RESULT_SET', 'STANZA_ID', 'FORM', 'ROSTER_VERSIONS',
]

/** All output to a raw connection until it ends. */
function conversation(port, ...pieces) {
  const socket = tcp(port, '127.0.0.1')
  let told = Buffer.alloc(0)
  socket.on('data', (chunk) => (told = Buffer.concat([told, chunk])))
  socket.on('error', () => {})
  for (const piece of pieces) socket.write(piece)
  return within('the connection to end', new Promise((resolve) => socket.once('close', () => resolve(told))))
}

describe('the tables of verbs are complete', () => {
  const source = (path) => readFileSync(join(PROTOCOL, path), 'utf8')

  test('native frames', () => {
    const names = [...source('native/frame_type.rs').matchAll(/^\s+\w+ => "(\w+)",/gm)].map(([, name]) => name)
    assert.deepEqual(Object.keys(nativeVerbs).sort(), names.sort())
  })

  test('MQTT packets', () => {
    const body = /pub enum PacketType \{([^}]*)\}/.exec(source('mqtt/packet_type.rs'))[1]
    const names = [...body.matchAll(/(\w+) = \d+/g)].map(([, name]) => name)
    assert.deepEqual(['Connect', ...Object.keys(mqttPackets)].sort(), names.sort())
  })

  test('Socket.IO events', () => {
    const names = [...source('socket_io/client_event.rs').matchAll(/"(\w+)" => \(Kind::/g)].map(([, name]) => name)
    assert.deepEqual(Object.keys(socketIoEvents).sort(), names.sort())
  })

  test('XMPP namespaces', () => {
    const names = [...source('xmpp/namespace.rs').matchAll(/pub const (\w+): &str/g)].map(([, name]) => name)
    assert.deepEqual([...Object.keys(xmppRequests), ...xmppNoRequests].sort(), names.sort())
  })
})

describe('before a log-in', () => {
  test('every native frame is rejected', async () => {
    for (const [name, frame] of Object.entries(nativeVerbs)) {
      const device = new Device(new WebSocket(`${node.ws}/v1/connect`, 'noroshi.v1'))
      device.socket.once('open', () => device.send(frame()))
      const answer = await device.next()
      const wanted = name === 'connect' ? { t: 'close', reason: 'unauthorized' } : { t: 'error', code: 'not_connected' }
      assert.deepEqual({ ...answer, ...wanted }, answer, `${name}: ${JSON.stringify(answer)}`)
      device.socket.terminate()
    }
    await victimIsWell()
  })

  test('every MQTT packet ends the connection', async () => {
    for (const [name, [first, body]] of Object.entries(mqttPackets)) {
      const told = await conversation(ports.mqtt, Buffer.from([first, body.length, ...body]))
      // [MQTT-3.1.0-1]: the first packet is CONNECT; on any other the node closes without a packet.
      assert.equal(told.length, 0, `${name}: ${told.toString('hex')}`)
    }
    await victimIsWell()
  })

  test('every Socket.IO event ends the session', async () => {
    for (const [name, argument] of Object.entries(socketIoEvents)) {
      const socket = new WebSocket(`${node.ws}/socket.io/?EIO=4&transport=websocket`)
      const told = []
      socket.on('message', (text) => {
        told.push(text.toString())
        if (told.length === 1) socket.send(`42${JSON.stringify([name, argument()])}`)
      })
      await within('the session to end', new Promise((resolve) => socket.once('close', resolve)))
      assert.ok(!told.some((text) => /^4(0|3\d*\[\{"ok":true)/.test(text)), `${name}: ${told}`)
    }
    await victimIsWell()
  })

  test('every XMPP request ends the stream', async () => {
    const open = "<stream:stream to='localhost' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
    for (const [name, request] of Object.entries(xmppRequests)) {
      const told = (await conversation(ports.xmpp, open, String(xml('iq', { type: 'get', id: '1' }, request())))).toString()
      assert.match(told, /<stream:error>.*not-authorized/s, `${name}: ${told}`)
    }
    await victimIsWell()
  })
})

// -- a device of another app ---------------------------------------------------------------------------------------

/** Both apps use the same names. The attacker receives messages of its own app, and none of the victim's before them. */
async function hearsOnlyItsOwn(received) {
  await apps.victim.provider.publish({ to: { topic: TOPIC }, data: 'live of victim' })
  await apps.victim.provider.publish({ to: { users: ['owner'] }, data: 'direct of victim' })
  const marker = `marker of attacker ${Math.random()}`
  await apps.attacker.provider.publish({ to: { topic: TOPIC }, data: marker })
  await until('the marker', () => received.some((text) => text.includes(marker)))
  assert.deepEqual(received.filter((text) => text.includes('of victim')), [])
}

describe('a device of another app', () => {
  let attacker
  before(async () => (attacker = await apps.attacker.provider.register({ device: 'shared-id', user: 'owner' })))

  test('every native frame stays in its app', async () => {
    const device = await Device.connect(node.ws, attacker.token)
    const received = []
    device.socket.on('message', (text) => received.push(text.toString()))
    for (const [name, frame] of Object.entries(nativeVerbs)) {
      if (name === 'connect' || name === 'unsub') continue
      device.send(frame())
    }
    await hearsOnlyItsOwn(received)
    // The victim's token does not renew another device's session.
    assert.ok(received.some((text) => /"t":"error".*unauthorized/.test(text)), received.join('\n'))
    device.send(nativeVerbs.unsub())
    device.socket.terminate()
    await victimIsWell()
  })

  test('every Socket.IO event stays in its app', async () => {
    const socket = io(node.http, { auth: { token: attacker.token }, transports: ['websocket'], forceNew: true, reconnection: false })
    const received = []
    socket.on('notification', (message) => received.push(JSON.stringify(message)))
    await within('the client to connect', new Promise((resolve, reject) => socket.once('connect', resolve).once('connect_error', reject)))
    const answers = {}
    for (const [name, argument] of Object.entries(socketIoEvents)) {
      if (name !== 'unsubscribe') answers[name] = await within(name, socket.emitWithAck(name, argument()))
    }
    assert.equal(answers.token.ok, false)
    await hearsOnlyItsOwn(received)
    assert.equal((await socket.emitWithAck('unsubscribe', socketIoEvents.unsubscribe())).ok, true)
    socket.disconnect()
    await victimIsWell()
  })

  test('every MQTT filter and packet stays in its app', async () => {
    const client = mqtt.connect(`mqtt://127.0.0.1:${ports.mqtt}`, { protocolVersion: 5, username: 'shared-id', password: attacker.token, reconnectPeriod: 0 })
    const received = []
    client.on('message', (topic, payload) => received.push(`${topic} ${payload}`))
    client.on('error', () => {})
    await within('CONNACK', new Promise((resolve) => client.once('connect', resolve)))
    for (const filter of [TOPIC, '#', '+', `$share/g/${TOPIC}`, '$share/g/#', '$noroshi/inbox']) {
      await client.subscribeAsync(filter, { qos: 1 }).catch(() => {})
    }
    await client.publishAsync(TOPIC, 'published of attacker', { qos: 1, retain: true })
    await client.publishAsync(TOPIC, '', { qos: 1, retain: true })
    await hearsOnlyItsOwn(received)
    await client.unsubscribeAsync(TOPIC)
    await client.endAsync()
    await victimIsWell()
    const retained = await apps.victim.provider.call('GET', `/v1/topics/${TOPIC}/retained`)
    assert.match(JSON.stringify(retained.data), /of victim/)
    assert.ok(![...victim.received].some((data) => String(data).includes('of attacker')), 'the victim received nothing of another app')
  })

  test('every XMPP request stays in its app', async () => {
    const xmpp = xmppClient({ service: `xmpp://127.0.0.1:${ports.xmpp}`, domain: 'localhost', credentials: (authenticate) => authenticate({ username: 'shared-id', password: attacker.token }, 'PLAIN') })
    xmpp.reconnect.stop()
    xmpp.timeout = 5_000
    const [received, answers, errors] = [[], [], []]
    xmpp.on('stanza', (stanza) => (stanza.is('iq') ? answers : received).push(String(stanza)))
    xmpp.on('error', (error) => errors.push(error))
    const online = new Promise((resolve) => xmpp.once('online', resolve))
    xmpp.start().catch(() => {})
    await within('the client to be online', online)
    await xmpp.send(xml('presence'))
    const full = xmpp.jid.toString()
    const subscribe = xml('pubsub', { xmlns: PUBSUB }, xml('subscribe', { node: TOPIC, jid: full }))
    const publish = xml('pubsub', { xmlns: PUBSUB }, xml('publish', { node: TOPIC }, xml('item', {}, xml('json', { xmlns: 'urn:xmpp:json:0' }, '"published of attacker"'))))
    const behind = xml('query', { xmlns: ARCHIVE }, xml('set', { xmlns: 'http://jabber.org/protocol/rsm' }, xml('after', {}, victim.pending)))
    const requests = [
      ...Object.entries(xmppRequests).map(([name, request]) => [name, 'get', request()]),
      ['subscribe', 'set', subscribe],
      ['publish', 'set', publish],
      // For the device with the victim's name in the attacker's app, and for another one.
      ...['shared-id@localhost', 'owner@localhost'].flatMap((to) => [[`archive of ${to}`, 'set', xmppRequests.ARCHIVE(), to], [`archive of ${to} behind`, 'set', behind, to]]),
      ...['CARD', 'CARBONS'].map((name) => [`${name} set`, 'set', xmppRequests[name](), 'shared-id@localhost']),
    ]
    for (const [name, type, request, whom] of requests) {
      const to = whom ?? (name.startsWith('PUBSUB') || type === 'set' || name.startsWith('DISCO') ? 'pubsub.localhost' : 'localhost')
      await xmpp.send(xml('iq', { type, id: `verb-${name}`, to }, request))
      await until(`an answer to ${name}`, () => answers.some((answer) => answer.includes(`"verb-${name}"`)))
    }
    const answer = (name) => answers.find((answer) => answer.includes(`"verb-${name}"`))
    assert.match(answer('archive of shared-id@localhost'), /<fin .*<count>0<\/count>/)
    assert.match(answer('archive of shared-id@localhost behind'), /<item-not-found /)
    for (const name of ['archive of owner@localhost', 'archive of owner@localhost behind', 'CARD set', 'CARBONS set']) {
      assert.match(answer(name), /<service-unavailable /, name)
    }
    await xmpp.send(xml('message', { to: 'shared-id@localhost', type: 'chat' }, xml('body', {}, 'talk of attacker')))
    await hearsOnlyItsOwn(received)
    assert.deepEqual(answers.filter((answer) => answer.includes('of victim')), [])
    assert.deepEqual(errors, [])
    await xmpp.stop().catch(() => {})
    await victimIsWell()
    assert.ok(![...victim.received].some((data) => String(data).includes('of attacker')), 'the victim received nothing of another app')
  })
})
