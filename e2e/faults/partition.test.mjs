/** A single node is partitioned from Redis. */

import assert from 'node:assert/strict'

import { withoutLease } from '../lib/cluster.mjs'
import { fault } from '../lib/fault.mjs'
import { Proxy } from '../lib/proxy.mjs'

const WAYS = { breaks: (proxy) => proxy.cut(), 'goes silent': (proxy) => proxy.freeze() }

for (const [name, way] of [['gateway-1', 'breaks'], ['gateway-1', 'goes silent'], ['api-1', 'goes silent']]) {
  const prepare = async ({ redis }) => {
    const proxy = await Proxy.start(redis.port)
    const through = { [name]: { 'cluster.redis': `redis://127.0.0.1:${proxy.port}` } }
    return { proxy, through, stop: () => proxy.stop() }
  }
  fault(`the connection of ${name} to Redis ${way}`, { prepare }, async ({ cluster, load, proxy }) => {
    const node = cluster.node(name)
    if (node.has('gateway')) assert.ok(load.at(node).length > 0, 'devices are connected to it')
    await WAYS[way](proxy)
    await load.accepts(60)
    await withoutLease(node)
    await cluster.seen(cluster.nodes.length - 1, cluster.others(name))
    await load.accepts(20)
    await proxy.heal()
  })
}
