/** Redis with replicas: another server becomes the master, or a shard fails. */

import assert from 'node:assert/strict'

import { withoutLease } from '../lib/cluster.mjs'
import { RedisCluster, Sentinel } from '../lib/engines.mjs'
import { fault } from '../lib/fault.mjs'
import { until } from '../lib/until.mjs'

fault('Sentinel makes another server the master', { redis: () => Sentinel.start() }, async ({ cluster, load, redis }) => {
  const dead = await redis.failOver()
  await load.accepts(40)
  await cluster.seen()
  await load.reached()
  await dead.up()
})

/** The key of the nodes' leases. */
const LEASES = 'noroshi:{nodes}:leases'

fault('a shard of Redis Cluster is down', { redis: () => RedisCluster.start() }, async ({ cluster, load, redis }) => {
  const unknown = () => cluster.node('api-1').metric('noroshi_cluster_lookup_keys_unknown_total')
  const shard = await redis.killShard(LEASES, false)
  await until('look-ups for keys of the failed shard', async () => (await unknown()) > 0)
  await load.accepts(60)
  // Some of these belong to the failed shard.
  for (const { device } of load.listeners) device?.socket.terminate()
  await load.settled()
  await load.reached()
  await Promise.all(shard.map((server) => server.up()))
})

fault('the shard of Redis Cluster that has the leases is down', { redis: () => RedisCluster.start() }, async ({ cluster, load, redis }) => {
  const shard = await redis.killShard(LEASES, true)
  await load.accepts(40)
  await Promise.all(cluster.nodes.map(withoutLease))
  await load.accepts(20)
  for (const { device } of load.listeners.slice(0, 6)) device?.socket.terminate()
  await load.settled()
  await Promise.all(shard.map((server) => server.up()))
})

fault('a replica of Redis Cluster takes over', { redis: () => RedisCluster.start() }, async ({ cluster, load, redis }) => {
  const dead = await redis.failOver()
  await load.accepts(40)
  await cluster.seen()
  await load.reached()
  await dead.up()
})
