/**
 * permessage-deflate (RFC 7692) with clients that offer it by default: the native protocol and XMPP over `ws`,
 * Socket.IO with `socket.io-client`, MQTT with `mqtt`. All receive the same messages, in fewer bytes.
 */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { client as xmppClient, xml } from '@xmpp/client'
import mqtt from 'mqtt'
import { io } from 'socket.io-client'
import WebSocket from 'ws'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { until, within } from '../lib/until.mjs'

const TOPIC = 'deflate/all'
const DATA = { text: 'nothing new under the sun, '.repeat(40), n: 0 }

let node
before(async () => {
  // The client needs this global; the WebSocket of Node.js negotiates no compression.
  globalThis.WebSocket = WebSocket
  node = await Node.start({ args: ['--set', 'gateway.websocket_deflate=true'] })
})
after(() => node?.stop())

async function metric(name) {
  const text = await (await node.admin('/metrics')).text()
  const values = text.split('\n').filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
  return values.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)
}

const connections = async () => {
  const text = await (await node.admin('/metrics')).text()
  const found = text.matchAll(/noroshi_connections\{protocol="(\w+)",transport="websocket_deflate"\} (\d+)/g)
  return Object.fromEntries([...found].map(([, protocol, count]) => [protocol, Number(count)]))
}

const protocols = {
  async native({ token }) {
    const device = await Device.connect(node.ws, token)
    assert.match(device.socket.extensions, /^permessage-deflate/)
    return { next: async () => (await device.msg()).data, leave: () => device.leave() }
  },

  async socketio({ token }) {
    const socket = io(node.http, { auth: { token }, transports: ['websocket'], forceNew: true, reconnection: false })
    const received = []
    socket.on('notification', (message, ack) => {
      received.push(message.data)
      ack?.()
    })
    await within('the client to connect', new Promise((resolve, reject) => socket.once('connect', resolve).once('connect_error', reject)))
    return { next: taking(received), leave: () => socket.disconnect() }
  },

  async mqtt({ device, token }) {
    const options = { protocolVersion: 5, username: device, password: token, reconnectPeriod: 0 }
    const client = mqtt.connect(`${node.ws}/mqtt`, options)
    const received = []
    client.on('message', (_, payload) => received.push(JSON.parse(payload.toString()).data))
    await within('CONNACK', new Promise((resolve) => client.once('connect', resolve)))
    await client.subscribeAsync({ '$noroshi/inbox': { qos: 1 }, [TOPIC]: { qos: 1 } })
    return { next: taking(received), leave: () => client.end(true) }
  },

  async xmpp({ device, token }) {
    const credentials = (authenticate) => authenticate({ username: device, password: token }, 'PLAIN')
    const xmpp = xmppClient({ service: `${node.ws}/xmpp`, domain: 'localhost', credentials })
    xmpp.reconnect.stop()
    xmpp.timeout = 5_000
    xmpp.on('error', () => {})
    const received = []
    xmpp.on('stanza', (stanza) => {
      if (!stanza.is('message')) return
      const item = stanza.getChild('event')?.getChild('items')?.getChild('item') ?? stanza
      received.push(JSON.parse(item.getChild('notification').getChildText('json')).data)
    })
    const online = new Promise((resolve) => xmpp.once('online', resolve))
    xmpp.start().catch(() => {})
    await within('the client to be online', online)
    await xmpp.send(xml('presence'))
    return { next: taking(received), leave: () => xmpp.stop().catch(() => {}) }
  },
}

const taking = (received) => async () => {
  await until('a message', () => received.length > 0)
  return received.shift()
}

test('every protocol receives stored, direct and topic messages in fewer bytes', async () => {
  const clients = {}
  for (const [name, connect] of Object.entries(protocols)) {
    const device = await node.api.register({ user: `deflate-${name}`, topics: [TOPIC] })
    await node.api.publish({ to: { users: [`deflate-${name}`] }, data: { ...DATA, n: 1 } })
    clients[name] = await connect(device)
    assert.deepEqual(await clients[name].next(), { ...DATA, n: 1 }, `${name}: what waited`)
  }
  assert.deepEqual(await connections(), { echo: 0, http: 0, mqtt: 1, native: 1, socketio: 1, xmpp: 1 })
  for (const when of ['stored', 'connected']) {
    await node.api.publish({ to: { topic: TOPIC }, when, data: { ...DATA, n: 2 } })
    for (const [name, { next }] of Object.entries(clients)) assert.deepEqual(await next(), { ...DATA, n: 2 }, `${name}: ${when}`)
  }
  for (const [name, { next }] of Object.entries(clients)) {
    await node.api.publish({ to: { users: [`deflate-${name}`] }, when: 'connected', data: 'short' })
    assert.equal(await next(), 'short', name)
  }
  let [plain, sent] = [0, 0]
  await until('all to be counted', async () => {
    plain = await metric('noroshi_websocket_deflate_plain_bytes_total')
    sent = await metric('noroshi_websocket_deflate_sent_bytes_total')
    return plain > 12 * JSON.stringify(DATA).length
  })
  assert.ok(sent * 2 < plain, `${sent} of ${plain} bytes`)
  for (const { leave } of Object.values(clients)) await leave()
})

test('compressed messages of a client are understood', async () => {
  const { token } = await node.api.register({ user: 'talkative' })
  // `ws` compresses messages longer than 1,024 bytes.
  const device = await Device.connect(node.ws, token, { via: 'frame' })
  const ids = []
  for (let n = 0; n < 60; n++) ids.push((await node.api.publish({ to: { users: ['talkative'] }, data: n })).id)
  for (let n = 0; n < 60; n++) assert.equal((await device.msg()).data, n)
  device.send({ t: 'ack', ids })
  await until('all to be acknowledged', async () => (await node.api.me(token).inbox()).messages.length === 0)
  device.send({ t: 'sub', topics: Array.from({ length: 100 }, (_, n) => `a/rather/long/name/of/a/topic/${n}`) })
  device.send({ t: 'ping' })
  assert.equal((await device.next()).t, 'pong')
  await node.api.publish({ to: { topic: 'a/rather/long/name/of/a/topic/99' }, when: 'connected', data: 'received' })
  assert.equal((await device.msg()).data, 'received')
  await device.leave()
})

test('a client without the extension receives uncompressed messages', async () => {
  const { token } = await node.api.register({ user: 'plain' })
  const device = await Device.connect(node.ws, token, { perMessageDeflate: false })
  assert.equal(device.socket.extensions, '')
  await node.api.publish({ to: { users: ['plain'] }, data: DATA })
  assert.deepEqual((await device.msg()).data, DATA)
  await device.leave()
})
