/** The presence gate: recipients of `active`, `connected` and `stored`. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

/** Publishes one of each policy and returns their ids by name. */
async function publishEach(user) {
  const ids = {}
  for (const when of ['active', 'connected', 'stored']) {
    ids[when] = (await node.api.publish({ to: { users: [user] }, when, data: when })).id
  }
  return ids
}

const outcomes = async (id, device) => {
  const steps = (await node.api.trace(id, device)).steps
  return steps.map((step) => step.outcome)
}

/** Outcomes are recorded asynchronously. */
const outcome = (id, device, wanted) =>
  until(`${wanted} in the trace of ${device}`, async () => (await outcomes(id, device).catch(() => [])).includes(wanted))

test('an active device receives all three; only stored ones request an acknowledgement', async () => {
  const { token } = await node.api.register({ user: 'user-in-use' })
  const device = await Device.connect(node.ws, token)
  await publishEach('user-in-use')
  const received = await device.msgs(3)
  assert.deepEqual(received.map((msg) => msg.data), ['active', 'connected', 'stored'])
  assert.deepEqual(received.map((msg) => msg.ack), [undefined, undefined, true])
  await device.leave()
})

test('an idle device receives connected and stored notifications', async () => {
  const { device: id, token } = await node.api.register({ user: 'user-idle' })
  const device = await Device.connect(node.ws, token)
  device.send({ t: 'presence', state: 'idle' })
  await device.settle()
  const ids = await publishEach('user-idle')
  assert.deepEqual((await device.msgs(2)).map((msg) => msg.data), ['connected', 'stored'])
  await outcome(ids.active, id, 'inactive')

  device.send({ t: 'presence', state: 'active' })
  await device.settle()
  await publishEach('user-idle')
  assert.deepEqual((await device.msgs(3)).map((msg) => msg.data), ['active', 'connected', 'stored'])
  await device.leave()
})

test('an offline device later receives stored notifications only', async () => {
  const { device: id, token } = await node.api.register({ user: 'user-away' })
  const ids = await publishEach('user-away')
  for (const when of ['active', 'connected']) {
    await until(`the user to be counted as offline for ${when}`, async () => {
      const { counts } = await node.api.notification(ids[when]).catch(() => ({ counts: {} }))
      return counts.offline === 1
    })
  }
  await outcome(ids.stored, id, 'kept')

  const device = await Device.connect(node.ws, token)
  assert.equal((await device.msg()).id, ids.stored)
  await node.api.publish({ to: { users: ['user-away'] }, when: 'connected', data: 'marker' })
  assert.equal((await device.msg()).data, 'marker')
  await device.leave()
})

test('presence covers users with active, idle and offline devices, and unknown users', async () => {
  const [one, two, away] = await Promise.all(
    ['pair', 'pair', 'gone'].map((user) => node.api.register({ user })),
  )
  const first = await Device.connect(node.ws, one.token)
  const second = await Device.connect(node.ws, two.token)
  second.send({ t: 'presence', state: 'idle' })
  await second.settle()

  let users = await node.api.presence('pair', 'gone', 'stranger')
  assert.deepEqual(Object.keys(users).sort(), ['gone', 'pair', 'stranger'])
  assert.equal(users.pair.presence, 'active', 'the highest of its devices')
  assert.equal(users.pair.devices.length, 2)
  assert.equal(users.gone.presence, 'offline')
  assert.equal(users.stranger.presence, 'offline')
  assert.ok(away.device)

  await first.leave()
  await until('only the idle device to be left', async () => {
    users = await node.api.presence('pair')
    return users.pair.presence === 'idle' && users.pair.devices.length === 1
  })
  await second.vanish()
  await until('the user to be offline', async () => (await node.api.presence('pair')).pair.presence === 'offline')
})

test('PUT /v1/me/presence changes the gate of the open connection', async () => {
  const { token } = await node.api.register({ user: 'by-put' })
  const device = await Device.connect(node.ws, token)
  await node.api.me(token).presence('idle')
  assert.equal((await node.api.presence('by-put'))['by-put'].presence, 'idle')
  await publishEach('by-put')
  assert.deepEqual((await device.msgs(2)).map((msg) => msg.data), ['connected', 'stored'])
  await node.api.me(token).presence('active')
  assert.equal((await node.api.presence('by-put'))['by-put'].presence, 'active')
  await device.leave()
})

test('a new connection is active again', async () => {
  const { token } = await node.api.register({ user: 'again' })
  const idle = await Device.connect(node.ws, token)
  idle.send({ t: 'presence', state: 'idle' })
  await idle.settle()
  await idle.leave()
  const device = await Device.connect(node.ws, token)
  await node.api.publish({ to: { users: ['again'] }, when: 'active', data: 'in use' })
  assert.equal((await device.msg()).data, 'in use')
  await device.leave()
})

test('every device of a user receives it, and no device of another user', async () => {
  const own = await Promise.all([1, 2, 3].map(() => node.api.register({ user: 'many' })))
  const other = await node.api.register({ user: 'not-meant' })
  const devices = await Promise.all([...own, other].map(({ token }) => Device.connect(node.ws, token)))
  const { targets } = await node.api.publish({ to: { users: ['many', 'nobody-knows'] }, when: 'connected', data: 'to many' })
  assert.equal(targets, 2, 'users named, known or not')
  await node.api.publish({ to: { devices: [...own, other].map(({ device }) => device) }, when: 'connected', data: 'marker' })
  for (const device of devices.slice(0, 3)) {
    assert.deepEqual((await device.msgs(2)).map((msg) => msg.data), ['to many', 'marker'])
  }
  assert.equal((await devices[3].msg()).data, 'marker')
  await Promise.all(devices.map((device) => device.leave()))
})
