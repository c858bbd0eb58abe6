/** SIGTERM and an operator drain the node: devices are notified, nothing stored is lost, and the API works to the end. */

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { EventSource } from 'eventsource'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

test('devices get a close with a reconnect delay, and the node exits with code 0', async () => {
  const node = await Node.start()
  const devices = []
  for (let i = 0; i < 20; i++) {
    devices.push(await Device.connect(node.ws, (await node.api.register({ user: `u${i}` })).token))
  }
  const stream = await node.api.register({ user: 'stream' })
  const source = new EventSource(`${node.http}/v1/events?token=${stream.token}`)
  let told
  source.addEventListener('close', (event) => {
    told = JSON.parse(event.data)
    source.close()
  })
  await until('the stream to be open', () => source.readyState === EventSource.OPEN)

  const started = Date.now()
  node.terminate()
  for (const device of devices) {
    const { reason, reconnect, after_ms, code } = await device.ended()
    assert.deepEqual([reason, reconnect, code], ['drain', true, 4000])
    assert.ok(Number.isInteger(after_ms) && after_ms >= 0 && after_ms < 600_000, `after_ms ${after_ms}`)
  }
  await until('the close event of the stream', () => told)
  assert.deepEqual([told.reason, told.reconnect], ['drain', true])
  await node.stop()
  assert.ok(Date.now() - started < 25_000, 'the drain did not wait for any device')
})

test('a draining node is not ready, and a stopped one accepts nothing', async () => {
  const node = await Node.start({ env: { NOROSHI__GATEWAY__DRAIN__RATE: '1' } })
  const devices = []
  for (let i = 0; i < 4; i++) devices.push(await Device.connect(node.ws, (await node.api.register()).token))
  node.terminate()
  await until('/readyz to return 503', async () => (await node.admin('/readyz').catch(() => ({ status: 503 }))).status === 503)
  for (const device of devices) assert.equal((await device.ended()).reason, 'drain')
  await node.stop()
})

test('notifications accepted before and during a drain are kept', async () => {
  const node = await Node.start()
  const { token } = await node.api.register({ user: 'patient' })
  const device = await Device.connect(node.ws, token)
  const accepted = []
  let stopped = false
  const publisher = async (name) => {
    for (let n = 0; !stopped; n++) {
      try {
        accepted.push((await node.api.publish({ to: { users: ['patient'] }, data: `${name}${n}` })).id)
      } catch {
        stopped = true
      }
    }
  }
  const publishers = ['a', 'b', 'c', 'd'].map(publisher)
  await until('some to be accepted', () => accepted.length > 40)
  await node.drain()
  stopped = true
  await Promise.all(publishers)
  assert.ok(accepted.length < 1_000, 'the inbox holds a thousand')

  await node.spawn()
  const again = await Device.connect(node.ws, token)
  const received = new Set()
  while (accepted.some((id) => !received.has(id))) received.add((await again.msg()).id)
  assert.ok(device.close)
  await again.leave()
  await node.stop()
})

test('an operator drains devices, the API works, and messages stored meanwhile arrive after the drain is cancelled', async () => {
  const node = await Node.start()
  const { token } = await node.api.register({ user: 'moved', topics: ['moved'] })
  const device = await Device.connect(node.ws, token)
  const others = []
  for (let i = 0; i < 20; i++) others.push(await Device.connect(node.ws, (await node.api.register()).token))

  const drained = await node.cli('drain', '--rate', '1000', '--spread', '3s', '--wait', '--json')
  assert.equal(drained.code, 0, drained.stderr)
  const { state, moved, connections } = JSON.parse(drained.stdout)
  assert.deepEqual([state, moved, connections], ['drained', 21, 0])
  for (const each of [device, ...others]) {
    const { reason, reconnect, after_ms, code } = await each.ended()
    assert.deepEqual([reason, reconnect, code], ['drain', true, 4000])
    assert.ok(after_ms >= 0 && after_ms <= 3_000, `after_ms ${after_ms}`)
  }

  assert.equal((await node.admin('/readyz')).status, 503)
  const refused = await fetch(`${node.http}/v1/events`, { headers: { authorization: `Bearer ${token}` } })
  assert.equal(refused.status, 503)
  assert.ok(Number(refused.headers.get('retry-after')) >= 1, 'a browser gets a retry time')
  assert.equal((await refused.json()).code, 'unavailable')
  const early = Device.open(node.ws, token)
  await early.closed
  assert.match(String(early.error), /503/)

  const sent = await node.api.publish({ to: { users: ['moved'] }, data: 'to the user' })
  await node.api.publish({ to: { topic: 'moved' }, data: 'to the topic' })
  assert.equal((await node.api.me(token).inbox()).messages[0].id, sent.id, 'the inbox is served meanwhile')

  assert.equal((await node.cli('drain', '--cancel')).code, 0)
  assert.equal((await node.admin('/readyz')).status, 200)
  const again = await Device.connect(node.ws, token)
  assert.deepEqual((await again.msgs(2)).map((msg) => msg.data), ['to the user', 'to the topic'])
  await again.leave()
  await node.stop()
})

test('SIGTERM during an operator\'s drain stops the node in time', async () => {
  const node = await Node.start()
  const devices = []
  for (let i = 0; i < 5; i++) devices.push(await Device.connect(node.ws, (await node.api.register()).token))
  assert.equal((await node.cli('drain', '--rate', '1')).code, 0)
  node.terminate()
  for (const device of devices) assert.equal((await device.ended()).reason, 'drain')
  await node.stop()
})
