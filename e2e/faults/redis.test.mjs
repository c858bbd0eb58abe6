/** Redis that restarts, forgets, fails over, loses a shard, or cannot be reached by one node. */

import { LEASE_MS } from '../lib/cluster.mjs'
import { Redis, RedisCluster, Sentinel } from '../lib/engines.mjs'
import { fault } from '../lib/fault.mjs'
import { Proxy } from '../lib/proxy.mjs'
import { sleep } from '../lib/until.mjs'

fault('Redis is killed and started again with what it had', {}, async ({ cluster, load, redis }) => {
  await redis.restart({ downMs: LEASE_MS / 2 })
  await load.accepts(40)
  await redis.restart({ downMs: 2 * LEASE_MS })
  await cluster.seen(cluster.nodes.length)
})

fault('Redis is away: devices stay, what is stored is accepted', {}, async ({ cluster, load, redis }) => {
  const before = load.listeners.reduce((sum, { connects }) => sum + connects, 0)
  await redis.program.kill()
  await load.accepts(60)
  await sleep(2 * LEASE_MS)
  await load.accepts(20)
  const after = load.listeners.reduce((sum, { connects }) => sum + connects, 0)
  if (after !== before) load.complaints.push(`${after - before} connections ended while Redis was away`)
  await redis.up()
  await cluster.seen(cluster.nodes.length)
})

fault('Redis forgets everything', {}, async ({ cluster, load, redis }) => {
  for (let round = 0; round < 3; round++) {
    await redis.wipe()
    await load.accepts(30)
  }
  await cluster.seen(cluster.nodes.length)
})

fault('Redis comes back empty', { redis: () => Redis.start({ persist: false }) }, async ({ cluster, load, redis }) => {
  await redis.restart({ downMs: 500 })
  await load.accepts(40)
  await redis.restart({ downMs: 2 * LEASE_MS })
  await cluster.seen(cluster.nodes.length)
})

fault('Sentinel makes another server the master', { redis: () => Sentinel.start() }, async ({ cluster, load, redis }) => {
  const dead = await redis.failOver()
  await load.accepts(40)
  await cluster.seen(cluster.nodes.length)
  await dead.up()
})

fault('a shard of Redis Cluster is down', { redis: () => RedisCluster.start() }, async ({ cluster, load, redis }) => {
  const shard = await redis.killShard()
  await load.accepts(60, 120_000)
  await sleep(2 * LEASE_MS)
  for (const server of shard) await server.up()
  await load.accepts(40)
  await cluster.seen(cluster.nodes.length)
})

for (const [name, part] of [
  ['breaks', (proxy) => proxy.cut()],
  ['goes silent', (proxy) => proxy.freeze()],
]) {
  fault(
    `the way of one gateway to Redis ${name}`,
    {
      prepare: async ({ redis }) => {
        const proxy = await Proxy.start(redis.port)
        const through = { 'gateway-1': { 'cluster.redis': `redis://127.0.0.1:${proxy.port}` } }
        return { proxy, through, stop: () => proxy.stop() }
      },
    },
    async ({ cluster, load, proxy }) => {
      await part(proxy)
      await load.accepts(60)
      await sleep(2 * LEASE_MS)
      await load.accepts(20)
      await proxy.heal()
      await cluster.seen(cluster.nodes.length)
    },
  )
}
