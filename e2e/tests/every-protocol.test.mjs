/**
 * One session core for all protocols: a device of each, with a third-party client, receives the same
 * notification at the same time; after a kill of the node each receives its inbox and its topic's retained message.
 */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { client as xmppClient, xml } from '@xmpp/client'
import { EventSource } from 'eventsource'
import mqtt from 'mqtt'
import { io } from 'socket.io-client'
import WebSocket from 'ws'

import { Device } from '../lib/device.mjs'
import { Node, freePort } from '../lib/node.mjs'
import { used } from '../lib/raw.mjs'
import { until, within } from '../lib/until.mjs'

const TOPIC = 'every/protocol'
const USER = 'everybody'

let node, ports
before(async () => {
  ports = { mqtt: await freePort(), xmpp: await freePort() }
  node = await Node.start({ args: ['--mqtt', `127.0.0.1:${ports.mqtt}`, '--xmpp', `127.0.0.1:${ports.xmpp}`] })
})
after(() => node?.stop())

/** Each logs in as a device and returns its messages, as objects with `id`, and a function to disconnect. */
const protocols = {
  async native({ token }) {
    const device = await Device.connect(node.ws, token)
    const received = []
    device.socket.on('message', (text) => {
      const frame = JSON.parse(text)
      if (frame.t !== 'msg') return
      received.push(frame)
      if (frame.ack) device.socket.send(JSON.stringify({ t: 'ack', ids: [frame.id] }))
    })
    received.push(...device.queue.filter((frame) => frame.t === 'msg'))
    const early = received.filter((frame) => frame.ack).map(({ id }) => id)
    if (early.length > 0) device.socket.send(JSON.stringify({ t: 'ack', ids: early }))
    return { received, leave: () => device.socket.terminate() }
  },

  async sse({ token }) {
    const source = new EventSource(`${node.http}/v1/events?token=${token}`)
    const received = []
    source.addEventListener('msg', (event) => {
      const message = JSON.parse(event.data)
      received.push(message)
      if (message.ack) node.api.me(token).ack(message.id)
    })
    await until('the stream to be open', () => source.readyState === EventSource.OPEN)
    return { received, leave: () => source.close() }
  },

  'Socket.IO, WebSocket': (device) => socketIo(device, ['websocket']),
  'Socket.IO, long polling': (device) => socketIo(device, ['polling']),
  'MQTT 3.1.1': (device) => mqttClient(device, 4),
  'MQTT 5': (device) => mqttClient(device, 5),

  async xmpp({ device, token }) {
    // By default the client sends no password in plain text; xmpp.test.mjs uses TLS.
    const credentials = (authenticate) => authenticate({ username: device, password: token }, 'PLAIN')
    const xmpp = xmppClient({ service: `xmpp://127.0.0.1:${ports.xmpp}`, domain: 'localhost', credentials })
    xmpp.reconnect.stop()
    xmpp.timeout = 5_000
    xmpp.on('error', () => {})
    const received = []
    xmpp.on('stanza', (stanza) => {
      if (!stanza.is('message')) return
      const item = stanza.getChild('event')?.getChild('items')?.getChild('item') ?? stanza
      received.push(JSON.parse(item.getChild('notification').getChildText('json')))
    })
    const online = new Promise((resolve) => xmpp.once('online', resolve))
    // The client may miss a header that arrives before it waits for one.
    xmpp.start().catch(() => {})
    await within('the client to be online', online)
    await xmpp.send(xml('presence'))
    return { received, leave: () => xmpp.stop().catch(() => {}) }
  },
}

async function socketIo({ token }, transports) {
  const socket = io(node.http, { auth: { token }, transports, forceNew: true, reconnection: false })
  const received = []
  socket.on('notification', (message, ...rest) => {
    received.push(message)
    rest.find((it) => typeof it === 'function')?.()
  })
  await within('the client to connect', new Promise((resolve, reject) => socket.once('connect', resolve).once('connect_error', reject)))
  return { received, leave: () => socket.disconnect() }
}

async function mqttClient({ device, token }, protocolVersion) {
  const client = mqtt.connect(`mqtt://127.0.0.1:${ports.mqtt}`, { protocolVersion, username: device, password: token, reconnectPeriod: 0 })
  const received = []
  client.on('message', (_, payload) => received.push(JSON.parse(payload.toString())))
  client.on('error', () => {})
  await within('CONNACK', new Promise((resolve) => client.once('connect', resolve)))
  await client.subscribeAsync({ '$noroshi/inbox': { qos: 1 } })
  return { received, leave: () => client.end(true) }
}

const devices = {}
const ids = ({ received }) => received.map(({ id }) => id)
const acked = async (id) => (await node.api.notification(id)).counts.acked ?? 0
const count = Object.keys(protocols).length

/** Logs in with every protocol. */
async function all() {
  const entries = Object.entries(protocols).map(async ([name, connect]) => [name, await connect(devices[name])])
  return Object.fromEntries(await Promise.all(entries))
}

async function allHear(clients, id) {
  for (const [name, client] of Object.entries(clients)) await until(`${name} to receive it`, () => ids(client).includes(id))
}

test('a notification published once is received and acknowledged over every protocol', async () => {
  for (const name of Object.keys(protocols)) devices[name] = await node.api.register({ user: USER, topics: [TOPIC] })
  const clients = await all()
  const direct = await node.api.publish({ to: { users: [USER] }, notification: { title: '狼煙' }, data: { n: 1 } })
  await allHear(clients, direct.id)
  for (const [name, { received }] of Object.entries(clients)) {
    const message = received.find(({ id }) => id === direct.id)
    assert.deepEqual([message.notification, message.data], [{ title: '狼煙' }, { n: 1 }], name)
  }
  const topic = await node.api.publish({ to: { topic: TOPIC }, data: { n: 2 } })
  await allHear(clients, topic.id)
  const live = await node.api.publish({ to: { everyone: true }, when: 'connected', data: { n: 3 } })
  await allHear(clients, live.id)
  for (const { id } of [direct, topic]) await until('all to acknowledge', async () => (await acked(id)) === count)
  for (const [name, client] of Object.entries(clients)) {
    assert.equal(new Set(ids(client)).size, client.received.length, `${name} received nothing twice`)
  }
  await Promise.all(Object.values(clients).map(({ leave }) => leave()))
})

test('after a kill of the node, inbox and retained messages arrive at each next log-in', async () => {
  const before = await all()
  const retained = await node.api.publish({ to: { topic: TOPIC }, when: 'connected', retain: true, data: 'retained' })
  await allHear(before, retained.id)
  await Promise.all(Object.values(before).map(({ leave }) => leave()))
  const presence = async () => (await node.api.presence(USER))[USER].presence
  await until('all to be offline', async () => (await presence()) === 'offline')
  const waits = await node.api.publish({ to: { users: [USER] }, data: 'waits' })
  const missed = await node.api.publish({ to: { topic: TOPIC }, data: 'missed' })
  await node.kill()
  await node.spawn()
  const clients = await all()
  for (const { id } of [waits, missed, retained]) await allHear(clients, id)
  for (const { id } of [waits, missed]) await until('all to acknowledge', async () => (await acked(id)) === count)
  await Promise.all(Object.values(clients).map(({ leave }) => leave()))
})

test('a device changes its protocol and keeps its inbox', async () => {
  const device = await node.api.register({ user: 'wanderer' })
  const names = Object.keys(protocols)
  const presence = async () => (await node.api.presence('wanderer')).wanderer.presence
  for (const [turn, name] of names.entries()) {
    await until('the last one to be offline', async () => (await presence()) === 'offline')
    const { id } = await node.api.publish({ to: { users: ['wanderer'] }, data: { turn } })
    const client = await protocols[name](device)
    await until(`${name} to receive it`, () => ids(client).includes(id))
    await until('the acknowledgement', async () => (await acked(id)) === 1)
    assert.deepEqual(ids(client), [id], `${name} receives only unacknowledged messages`)
    await client.leave()
  }
})

test('a WebSocket of each protocol opens on a connection that has served the API', async () => {
  const open = "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='localhost' version='1.0'/>"
  for (const [path, protocol, hello, answer] of [
    ['/v1/connect', 'noroshi.v1', '{"t":"presence","state":"idle"}', /not_connected/],
    ['/socket.io/?EIO=4&transport=websocket', undefined, '40', /"sid"/],
    ['/mqtt', 'mqtt', undefined, undefined],
    ['/xmpp', 'xmpp', open, /^<open /],
  ]) {
    const socket = await used(node.httpPort)
    const client = new WebSocket(node.ws + path, protocol, { createConnection: () => socket })
    const said = new Promise((resolve, reject) => client.once('message', (data) => resolve(data.toString())).once('error', reject))
    await within(`${path} to open`, new Promise((resolve, reject) => client.once('open', resolve).once('error', reject)))
    assert.equal(client.protocol, protocol ?? '')
    if (hello) client.send(hello)
    if (answer) assert.match(await within(`an answer on ${path}`, said), answer)
    client.terminate()
  }
})
