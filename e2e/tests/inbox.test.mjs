/** The inbox: pending notifications and the effect of acknowledgements. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { sleep, until } from '../lib/until.mjs'

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

const registered = (user) => node.api.register({ user })
const publish = (user, data, more = {}) => node.api.publish({ to: { users: [user] }, data, ...more })
const inbox = async (token) => (await node.api.me(token).inbox()).messages

/** Connects and checks that exactly `wanted` is pending: a marker sent afterwards arrives right after it. */
async function waiting(token, user, wanted) {
  const device = await Device.connect(node.ws, token)
  const received = await device.msgs(wanted.length)
  await publish(user, 'marker', { when: 'connected' })
  received.push(await device.msg())
  assert.deepEqual(received.map((msg) => msg.data), [...wanted, 'marker'])
  await device.leave()
  return received.slice(0, -1)
}

test('notifications sent while offline are delivered in order at log-in until acknowledged', async () => {
  const { token } = await registered('reader')
  const ids = []
  for (const data of ['one', 'two', 'three']) ids.push((await publish('reader', data)).id)

  const device = await Device.connect(node.ws, token)
  const received = await device.msgs(3)
  assert.deepEqual(received.map((msg) => msg.id), ids)
  device.ack(ids[0], ids[2])
  await until('the acknowledged ones to leave the inbox', async () => (await inbox(token)).length === 1)
  await device.leave()

  assert.equal((await waiting(token, 'reader', ['two']))[0].id, ids[1])
})

test('a lost acknowledgement repeats the notification with the same id', async () => {
  const { token } = await registered('forgetful')
  const { id } = await publish('forgetful', 'again')
  for (let login = 0; login < 3; login++) {
    const [msg] = await waiting(token, 'forgetful', ['again'])
    assert.equal(msg.id, id)
  }
  const device = await Device.connect(node.ws, token)
  device.ack((await device.msg()).id)
  await until('the inbox to be empty', async () => (await inbox(token)).length === 0)
  await device.leave()
  await waiting(token, 'forgetful', [])
})

test('a notification received live stays in the inbox until acknowledged', async () => {
  const { token } = await registered('live')
  const device = await Device.connect(node.ws, token)
  const { id } = await publish('live', 'unconfirmed')
  assert.equal((await device.msg()).id, id)
  await device.vanish()
  assert.equal((await waiting(token, 'live', ['unconfirmed']))[0].id, id)
})

test('the inbox can be read and acknowledged over HTTP, and the answer is durable', async () => {
  const { token } = await registered('poller')
  const ids = []
  for (let i = 0; i < 5; i++) ids.push((await publish('poller', i)).id)
  const page = await node.api.me(token).inbox(2)
  assert.deepEqual(page.messages.map((msg) => [msg.id, msg.data]), [[ids[0], 0], [ids[1], 1]])
  await node.api.me(token).ack(...ids.slice(0, 4))
  assert.deepEqual((await inbox(token)).map((msg) => msg.id), [ids[4]])
  await waiting(token, 'poller', [4])
})

test("a device cannot acknowledge another device's notification", async () => {
  const [own, other] = [await registered('owner'), await registered('other')]
  const { id } = await publish('owner', 'mine')
  await node.api.me(other.token).ack(id)
  assert.equal((await inbox(own.token)).length, 1)
})

test('an expired notification is not delivered', async () => {
  const { device, token } = await registered('late')
  const { id } = await publish('late', 'short-lived', { ttl: '1s' })
  await publish('late', 'long-lived', { ttl: '1h' })
  await sleep(1_100)
  await waiting(token, 'late', ['long-lived'])
  assert.deepEqual((await inbox(token)).map((msg) => msg.data), ['long-lived'])
  await until('the reason in the trace', async () => {
    const { steps } = await node.api.trace(id, device)
    return steps.some((step) => step.outcome === 'expired')
  })
})

test('a ttl may be in seconds, and zero means now or never', async () => {
  const { token } = await registered('now-or-never')
  await publish('now-or-never', 'missed', { ttl: 0 })
  await waiting(token, 'now-or-never', [])
  const device = await Device.connect(node.ws, token)
  await publish('now-or-never', 'received', { ttl: 3600 })
  assert.equal((await device.msg()).data, 'received')
  await device.leave()
})

test('with a collapse key a newer notification replaces an undelivered older one', async () => {
  const { device, token } = await registered('scores')
  const old = await publish('scores', '1:0', { collapse_key: 'score' })
  await publish('scores', 'other key', { collapse_key: 'other' })
  await publish('scores', 'no key')
  await publish('scores', '2:0', { collapse_key: 'score' })
  await waiting(token, 'scores', ['other key', 'no key', '2:0'])
  const trace = await node.api.trace(old.id, device)
  assert.ok(trace.steps.some((step) => step.outcome === 'collapsed'), JSON.stringify(trace))
})

test('200 notifications reach a device in order of acceptance, live and at log-in', async () => {
  const { token } = await registered('ordered')
  const numbers = (from) => Array.from({ length: 100 }, (_, i) => from + i)
  for (const n of numbers(0)) await publish('ordered', n)
  const device = await Device.connect(node.ws, token)
  for (const n of numbers(100)) await publish('ordered', n)
  const received = await device.msgs(200)
  assert.deepEqual(received.map((msg) => msg.data), [...numbers(0), ...numbers(100)])
  assert.deepEqual(received.map((msg) => msg.id), received.map((msg) => msg.id).sort(), 'ids sort by acceptance')
  await device.leave()
})

test('with concurrent publishers the ids of a device still only increase', async () => {
  const { token } = await registered('busy')
  const device = await Device.connect(node.ws, token)
  const publisher = async (name) => {
    for (let n = 0; n < 25; n++) await publish('busy', `${name}${n}`)
  }
  await Promise.all(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map(publisher))
  const received = await device.msgs(200)
  assert.deepEqual(received.map((msg) => msg.id), received.map((msg) => msg.id).sort())
  for (const name of 'abcdefgh') {
    const own = received.filter((msg) => msg.data.startsWith(name)).map((msg) => Number(msg.data.slice(1)))
    assert.deepEqual(own, Array.from({ length: 25 }, (_, n) => n), `the order of publisher ${name}`)
  }
  await device.leave()
})

test('a backlog of several pages arrives completely, once and in order, while new messages are published', async () => {
  const { token } = await registered('backlog')
  const lines = Array.from({ length: 450 }, (_, n) => ({ to: { users: ['backlog'] }, data: n }))
  await node.api.publishBatch(lines)
  const device = await Device.connect(node.ws, token)
  for (let n = 450; n < 480; n++) await publish('backlog', n)
  const received = await device.msgs(480)
  assert.deepEqual(received.map((msg) => msg.data), Array.from({ length: 480 }, (_, n) => n))
  await device.leave()
})

test('the inbox survives a restart of the node', async () => {
  const own = await Node.start()
  const { token } = await own.api.register({ user: 'patient' })
  const { id } = await own.api.publish({ to: { users: ['patient'] }, data: 'still here' })
  await own.drain()
  await own.spawn()
  const device = await Device.connect(own.ws, token)
  const msg = await device.msg()
  assert.deepEqual([msg.id, msg.data], [id, 'still here'])
  await device.leave()
  await own.stop()
})
