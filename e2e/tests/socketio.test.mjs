/** Socket.IO with the npm package `socket.io-client`: a WebSocket, long polling, and the upgrade. */

import assert from 'node:assert/strict'
import { Agent, get } from 'node:http'
import { after, before, test } from 'node:test'
import { io } from 'socket.io-client'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { withPages } from '../lib/page.mjs'
import { until, within } from '../lib/until.mjs'

const TRANSPORTS = { websocket: ['websocket'], polling: ['polling'], upgrade: ['polling', 'websocket'] }

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

/** A client that collects its messages; `reply` is called with each notification's acknowledgement callback. */
function client(base, auth, { reply = (ack) => ack?.(), ...options } = {}) {
  const socket = io(base, { auth, forceNew: true, reconnectionDelay: 50, reconnectionDelayMax: 200, ...options })
  const received = { notifications: [], closes: [], errors: [], recovered: [], disconnects: [] }
  socket.on('notification', (message, ...rest) => {
    received.notifications.push(message)
    reply(rest.find((it) => typeof it === 'function'), message)
  })
  socket.on('close', (close) => received.closes.push(close))
  socket.on('error', (error) => received.errors.push(error))
  socket.on('recovered', (recovered) => received.recovered.push(recovered))
  socket.on('disconnect', (reason) => received.disconnects.push(reason))
  return Object.assign(socket, { received })
}

const opened = (socket) =>
  within(
    'the client to connect',
    new Promise((resolve, reject) => {
      socket.once('connect', () => resolve(socket))
      socket.once('connect_error', reject)
    }),
  )

const connect = (auth, options) => opened(client(node.http, auth, options))

const receives = (socket, count) =>
  until(`${count} notifications, not ${socket.received.notifications.length}`, () => socket.received.notifications.length >= count)

const data = (socket) => socket.received.notifications.map((message) => message.data)

const asks = (socket, event, ...args) => within(`an answer to ${event}`, socket.emitWithAck(event, ...args))

for (const [name, transports] of Object.entries(TRANSPORTS)) {
  test(`${name}: stored messages arrive first, then live ones; a callback acknowledges`, async () => {
    const { token } = await node.api.register({ user: `sio-${name}` })
    const to = { users: [`sio-${name}`] }
    const { id } = await node.api.publish({ to, notification: { title: '狼煙' }, data: 'waited' })
    const socket = await connect({ token }, { transports })
    await receives(socket, 1)
    assert.equal(socket.received.notifications[0].id, id)
    assert.deepEqual(socket.received.notifications[0].notification, { title: '狼煙' })
    if (name === 'upgrade') await until('the upgrade', () => socket.io.engine.transport.name === 'websocket')
    assert.equal(socket.io.engine.transport.name, name === 'upgrade' ? 'websocket' : name)
    await node.api.publish({ to, when: 'connected', data: 'live' })
    await node.api.publish({ to, data: 'kept' })
    await receives(socket, 3)
    assert.deepEqual(data(socket), ['waited', 'live', 'kept'])
    await until('both to be acknowledged', async () => (await node.api.me(token).inbox()).messages.length === 0)
    assert.equal((await node.api.presence(`sio-${name}`))[`sio-${name}`].presence, 'active')
    socket.disconnect()
    await until('the device to be offline', async () => (await node.api.presence(`sio-${name}`))[`sio-${name}`].presence === 'offline')
  })

  test(`${name}: topics are subscribed and unsubscribed, and every event is answered on request`, async () => {
    const { token } = await node.api.register()
    const [own, other] = [`sio-own-${name}`, `sio-other-${name}`]
    const socket = await connect({ token, topics: [own] }, { transports })
    await node.api.publish({ to: { topic: own }, data: 'own' })
    await receives(socket, 1)
    assert.deepEqual(await asks(socket, 'subscribe', [other]), { ok: true })
    const first = await node.api.publish({ to: { topic: other }, data: 1 })
    await receives(socket, 2)
    assert.equal(socket.received.notifications[1].topic, other)
    const { epoch, offset } = socket.received.notifications[1]
    assert.deepEqual(await asks(socket, 'ack', first.id), { ok: true })
    assert.deepEqual(await asks(socket, 'unsubscribe', other), { ok: true })
    await node.api.publish({ to: { topic: other }, data: 2 })
    await node.api.publish({ to: { topic: own }, data: 'marker' })
    await receives(socket, 3)
    assert.deepEqual(await asks(socket, 'subscribe', { topics: [other], since: { [other]: { epoch, offset } } }), { ok: true })
    await until('the recovery', () => socket.received.recovered.length === 1)
    assert.deepEqual(socket.received.recovered[0], { topic: other, complete: true, epoch, offset: offset + 1 })
    assert.deepEqual(data(socket), ['own', 1, 'marker', 2])
    const wrong = await asks(socket, 'subscribe', { topics: ['$everyone'] })
    assert.deepEqual([wrong.ok, typeof wrong.code], [false, 'string'])
    assert.equal((await asks(socket, 'publish', {})).code, 'unknown_event')
    assert.equal((await asks(socket, 'presence', Buffer.from('idle'))).code, 'bad_event')
    assert.ok(socket.connected)
    socket.disconnect()
  })

  test(`${name}: a device sets its presence`, async () => {
    const user = `sio-presence-${name}`
    const { token } = await node.api.register({ user })
    const socket = await connect({ token }, { transports })
    const presence = async () => (await node.api.presence(user))[user].presence
    assert.deepEqual(await asks(socket, 'presence', 'idle'), { ok: true })
    assert.equal(await presence(), 'idle')
    assert.deepEqual(await asks(socket, 'presence', { state: 'active' }), { ok: true })
    assert.equal(await presence(), 'active')
    socket.disconnect()
  })

  test(`${name}: protocols take over from each other`, async () => {
    const user = `sio-takeover-${name}`
    const { token } = await node.api.register({ user })
    const socket = await connect({ token }, { transports })
    const device = await Device.connect(node.ws, token)
    await until('the older one to be disconnected', () => socket.received.disconnects.length === 1)
    assert.deepEqual(socket.received.closes, [{ reason: 'replaced', reconnect: false, after_ms: 0 }])
    assert.deepEqual(socket.received.disconnects, ['io server disconnect'])
    await node.api.publish({ to: { users: [user] }, data: 'here' })
    const message = await device.msg()
    socket.connect()
    assert.equal((await device.ended()).reason, 'replaced')
    // Unacknowledged there, so it is redelivered here.
    await receives(socket, 1)
    assert.equal(socket.received.notifications[0].id, message.id)
    socket.disconnect()
  })

  test(`${name}: after a break and a restart it recovers without loss or duplicates`, async () => {
    const own = await Node.start()
    const { token } = await own.api.register({ user: 'sio-recovered' })
    const auth = { token, offsets: true, topics: ['sio-log'] }
    const socket = await opened(client(own.http, auth, { transports }))
    const send = (data) => own.api.publish({ to: { users: ['sio-recovered'] }, data })
    const sendTopic = (data) => own.api.publish({ to: { topic: 'sio-log' }, data })
    await send(0)
    await sendTopic(1)
    await receives(socket, 2)
    socket.io.reconnection(false)
    socket.io.engine.close()
    await until('the break', () => socket.received.disconnects.length === 1)
    await sendTopic(2)
    await send(3)
    socket.io.reconnection(true)
    await opened(socket.connect())
    assert.ok(socket.recovered, 'its library knows')
    await receives(socket, 4)
    await own.drain()
    await until('the end', () => socket.received.disconnects.length === 2)
    // Between two polls the client receives no event.
    const told = socket.received.closes.at(-1)
    if (told || name !== 'polling') assert.equal(told?.reason, 'drain')
    await own.spawn()
    await until('the client to reconnect', () => socket.connected)
    assert.ok(socket.recovered, 'after a restart too')
    await send(4)
    await receives(socket, 5)
    assert.deepEqual(data(socket), [0, 1, 2, 3, 4])
    socket.disconnect()
    await own.stop()
  })

  test(`${name}: a wrong token is reported, and the library does not reconnect`, async () => {
    const socket = client(node.http, { token: 'not one' }, { transports })
    const error = await within('an error', new Promise((resolve) => socket.once('connect_error', resolve)))
    assert.equal(error.data.code, 'unauthorized')
    assert.equal(socket.active, false)
    socket.disconnect()
  })

  test(`${name}: a thousand messages arrive in order`, async () => {
    const { token } = await node.api.register({ user: `sio-many-${name}` })
    const socket = await connect({ token }, { transports })
    const lines = Array.from({ length: 1_000 }, (_, n) => ({ to: { users: [`sio-many-${name}`] }, when: 'connected', data: n }))
    for (let at = 0; at < lines.length; at += 100) await node.api.publishBatch(lines.slice(at, at + 100))
    await receives(socket, 1_000)
    assert.deepEqual(data(socket), lines.map((line) => line.data))
    socket.disconnect()
  })
}

test('a page of another origin polls, upgrades to a WebSocket, and acknowledges', async (t) => {
  await withPages(t, 'socket.io-client/dist/socket.io.min.js', async (open) => {
    for (const [name, transports] of Object.entries(TRANSPORTS)) {
      const user = `sio-page-${name}`
      const { token } = await node.api.register({ user })
      const { tab, complaints } = await open()
      await tab.evaluate(
        ({ base, token, transports }) => {
          window.received = []
          window.socket = window.io(base, { auth: { token }, transports })
          window.socket.on('notification', (message, confirm) => {
            window.received.push(message.data)
            confirm?.()
          })
        },
        { base: node.http, token, transports },
      )
      await until('the page to be connected', () => tab.evaluate(() => window.socket.connected))
      for (const n of [1, 2, 3]) await node.api.publish({ to: { users: [user] }, data: n })
      await until('three notifications', async () => (await tab.evaluate(() => window.received.length)) >= 3)
      assert.deepEqual(await tab.evaluate(() => window.received), [1, 2, 3])
      await until('all to be acknowledged', async () => (await node.api.me(token).inbox()).messages.length === 0)
      const transport = name === 'polling' ? 'polling' : 'websocket'
      await until(transport, async () => (await tab.evaluate(() => window.socket.io.engine.transport.name)) === transport)
      assert.deepEqual(complaints, [])
      await tab.close()
    }
  })
})

test('a handler without acknowledgements leaves the inbox unchanged', async () => {
  const { token } = await node.api.register({ user: 'sio-silent' })
  const { id } = await node.api.publish({ to: { users: ['sio-silent'] }, data: 'kept' })
  const socket = await connect({ token }, { reply: () => {} })
  await receives(socket, 1)
  socket.disconnect()
  const again = await connect({ token }, { transports: ['websocket'] })
  await receives(again, 1)
  assert.equal(again.received.notifications[0].id, id)
  again.disconnect()
})

test('a poll on a connection that has served the API is answered', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const sockets = new Set()
  const ask = (path) =>
    within(
      path,
      new Promise((resolve, reject) => {
        const request = get(node.http + path, { agent }, async (response) => {
          sockets.add(response.socket)
          let text = ''
          for await (const piece of response) text += piece
          resolve({ status: response.statusCode, text })
        })
        request.once('error', reject)
      }),
    )
  assert.equal((await ask('/docs')).status, 200)
  const opened = await ask('/socket.io/?EIO=4&transport=polling')
  assert.deepEqual([opened.status, opened.text.slice(0, 8)], [200, '0{"sid":'])
  assert.equal(sockets.size, 1, 'it was the same connection')
  agent.destroy()
})

test('other namespaces are rejected by name', async () => {
  const { token } = await node.api.register()
  const socket = io(`${node.http}/admin`, { auth: { token }, forceNew: true })
  const error = await within('an error', new Promise((resolve) => socket.once('connect_error', resolve)))
  assert.equal(error.message, 'Invalid namespace')
  socket.disconnect()
})

test('the echo of the conformance suites carries binary and acknowledgements, over every transport', async () => {
  const own = await Node.start({ args: ['--conformance'] })
  for (const transports of Object.values(TRANSPORTS)) {
    for (const namespace of ['/', '/custom']) {
      const socket = io(own.http + namespace, { auth: { token: 'any' }, forceNew: true, transports })
      const auth = await within('auth', new Promise((resolve) => socket.once('auth', resolve)))
      assert.deepEqual(auth, { token: 'any' })
      const args = [1, '2', { 3: [true] }, Buffer.from([4, 5, 6]), { deep: Buffer.alloc(100_000, 7) }]
      const back = new Promise((resolve) => socket.once('message-back', (...got) => resolve(got)))
      socket.emit('message', ...args)
      assert.deepEqual(await within('an echo', back), args)
      const got = await within('an ack', new Promise((resolve) => socket.emit('message-with-ack', ...args, (...got) => resolve(got))))
      assert.deepEqual(got, args)
      // Longer than the heartbeat of 300 ms and the time for its answer.
      const ended = new Promise((resolve) => socket.once('disconnect', resolve))
      const alive = await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 1_200, 'alive'))])
      assert.equal(alive, 'alive')
      socket.disconnect()
    }
  }
  await own.stop()
})
