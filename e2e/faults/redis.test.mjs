/** Redis restarts, loses its data, or is unavailable. */

import assert from 'node:assert/strict'

import { LEASE_MS, withoutLease } from '../lib/cluster.mjs'
import { Device } from '../lib/device.mjs'
import { Redis } from '../lib/engines.mjs'
import { fault } from '../lib/fault.mjs'

const noLeaseLeft = (cluster) => Promise.all(cluster.others().map(withoutLease))

fault('Redis is killed and restarted with its data', {}, async ({ cluster, load, redis }) => {
  const outages = () => cluster.node('api-1').metric('noroshi_delivery_cluster_outages_total')
  const before = await outages()
  await redis.restart({ downMs: LEASE_MS / 2 })
  await load.accepts(40)
  assert.ok((await outages()) > before, 'it was missed')
  await load.reached()
  await redis.program.kill()
  await noLeaseLeft(cluster)
  await redis.up()
})

const ALL = ['api', 'gateway', 'sender']
const EQUAL_NODES = ['node-1', 'node-2', 'node-3'].map((name) => ({ name, roles: ALL }))

fault('Redis is unavailable: devices stay connected, stored notifications are accepted', { nodes: EQUAL_NODES }, async ({ cluster, load, redis }) => {
  const node = cluster.node('node-1')
  const { token } = await node.api.register({ device: 'near', user: 'near' })
  const near = await Device.connect(node.ws, token)
  const before = load.connects
  await redis.program.kill()
  for (const lease of ['held', 'lapsed']) {
    await load.accepts(40)
    const { id } = await node.api.publish({ to: { users: ['near'] }, when: 'connected', data: lease })
    assert.equal((await near.msg()).id, id, 'what a node publishes reaches its own devices')
    if (lease === 'held') await noLeaseLeft(cluster)
  }
  assert.equal(load.connects, before, 'connections ended during the outage of Redis')
  // Devices can still log in.
  for (const { device } of load.listeners.slice(0, 4)) device?.socket.terminate()
  await load.settled()
  await near.leave()
  await redis.up()
})

fault('Redis loses all its data', {}, async ({ cluster, load, redis }) => {
  for (let round = 0; round < 3; round++) {
    await redis.wipe()
    await load.accepts(30)
    await cluster.seen()
    await load.reached()
  }
})

fault('Redis restarts empty', { redis: () => Redis.start({ persist: false }) }, async ({ cluster, load, redis }) => {
  await redis.restart({ downMs: 500 })
  await load.accepts(40)
  await cluster.seen()
  await load.reached()
  await redis.program.kill()
  await noLeaseLeft(cluster)
  await redis.up()
})

fault('Redis hangs for longer than a lease', {}, async ({ cluster, load, redis }) => {
  redis.program.pause()
  await load.accepts(40)
  await noLeaseLeft(cluster)
  redis.program.resume()
})
