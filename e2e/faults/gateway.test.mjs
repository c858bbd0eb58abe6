/** Gateways that die, and one that was only asleep. */

import assert from 'node:assert/strict'

import { Device } from '../lib/device.mjs'
import { LEASE_MS } from '../lib/cluster.mjs'
import { fault } from '../lib/fault.mjs'
import { sleep, until } from '../lib/until.mjs'

fault('a gateway is killed', {}, async ({ cluster, load }) => {
  const gateway = cluster.node('gateway-1')
  await gateway.kill()
  await load.settled()
  await load.accepts(40)
  await gateway.spawn()
  await cluster.seen(cluster.nodes.length)
})

fault('a gateway sleeps for longer than its lease and wakes up', {}, async ({ cluster, load }) => {
  const gateway = cluster.node('gateway-1')
  gateway.pause()
  await sleep(2 * LEASE_MS)
  await load.settled()
  await load.accepts(40)
  gateway.resume()
  await cluster.seen(cluster.nodes.length)
})

fault('a zombie delivers nothing under its old epoch and erases no newer session', {}, async ({ cluster, load }) => {
  const zombie = cluster.node('gateway-1')
  const other = cluster.node('gateway-2')
  const api = cluster.api()
  const { token } = await api.register({ device: 'moved', user: 'moved' })
  const old = await Device.connect(zombie.ws, token)
  await api.publish({ to: { users: ['moved'] }, when: 'connected', data: 'before' })
  assert.equal((await old.msg()).data, 'before')
  zombie.pause()
  // The device goes elsewhere; its old connection is never closed by it.
  const now = await Device.connect(other.ws, token)
  await sleep(2 * LEASE_MS)
  for (const data of ['connected', 'stored']) {
    const { id } = await api.publish({ to: { users: ['moved'] }, when: data, data })
    const heard = await now.msg()
    assert.deepEqual([heard.id, heard.data], [id, data])
    if (data === 'stored') now.ack(id)
  }
  zombie.resume()
  await cluster.seen(cluster.nodes.length)
  // What the zombie says to the old connection, if anything, is that it was replaced.
  const { reason } = await old.ended()
  assert.equal(reason, 'replaced')
  assert.equal((await api.presence('moved')).moved.presence, 'active')
  const { id } = await api.publish({ to: { users: ['moved'] }, when: 'connected', data: 'after' })
  assert.equal((await now.msg()).id, id, 'the newer session is still known')
  await until('one connection of the device', async () => (await api.presence('moved')).moved.devices.length === 1)
  await now.leave()
  await load.settled()
})
