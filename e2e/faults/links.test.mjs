/** Direct connections between nodes fail while every node reaches Redis; nodes with and without them are mixed. */

import assert from 'node:assert/strict'

import { DIRECT, fault } from '../lib/fault.mjs'
import { freePort } from '../lib/node.mjs'
import { Proxy } from '../lib/proxy.mjs'
import { until } from '../lib/until.mjs'

const FRAMES = 'noroshi_cluster_link_frames_total'

/** All others reach gateway-1 through a proxy; it reaches them directly. */
const prepare = async () => {
  const port = await freePort()
  const proxy = await Proxy.start(port)
  const ways = { 'cluster.links.listen': `127.0.0.1:${port}`, 'cluster.links.advertise': `127.0.0.1:${proxy.port}` }
  return { proxy, shared: DIRECT, through: { 'gateway-1': ways }, stop: () => proxy.stop() }
}

/** Every node has a link to every other one. */
const linked = (cluster) =>
  until('links', async () => {
    const others = cluster.nodes.length - 1
    const up = await Promise.all(cluster.nodes.map((node) => node.peersBy('direct')))
    return up.every((count) => count === others)
  })

/** Waits until gateway-1 gets messages by links. */
const carries = async (cluster) => {
  const before = await cluster.node('gateway-1').metric(FRAMES)
  await until('messages by links', async () => (await cluster.node('gateway-1').metric(FRAMES)) > before)
}

const WAYS = {
  break: (proxy) => proxy.cut(),
  'go silent': (proxy) => proxy.freeze(),
  'get slow': (proxy) => proxy.latency(120),
}

for (const [what, way] of Object.entries(WAYS)) {
  fault(`the links to a gateway ${what}`, { prepare }, async ({ cluster, load, proxy }) => {
    await linked(cluster)
    await load.accepts(20)
    await carries(cluster)
    await way(proxy)
    await load.accepts(60)
    if (what !== 'get slow') {
      const api = cluster.node('api-1')
      assert.equal(await api.metric('noroshi_cluster_lease_held'), 1, 'redis is there all the time')
      assert.equal(await api.peersBy('direct'), 2)
    }
    await proxy.heal()
    await linked(cluster)
    await load.accepts(20)
    await carries(cluster)
    assert.equal(await cluster.node('gateway-1').metric('noroshi_cluster_bus_gaps_total'), 0, 'nothing was lost on the way')
  })
}

fault('a gateway with links is paused for less than its lease', { prepare }, async ({ cluster, load }) => {
  await linked(cluster)
  const node = cluster.node('gateway-1')
  for (let round = 0; round < 3; round++) {
    node.pause()
    await load.accepts(20)
    node.resume()
    await load.accepts(10)
    await load.reached()
  }
  await linked(cluster)
})

fault('nodes move from Redis to links one after the other, and back', { prepare }, async ({ cluster, load }) => {
  await linked(cluster)
  const change = async (node, bus) => {
    node.env.NOROSHI__CLUSTER__BUS = bus
    await node.kill()
    await load.accepts(10)
    await node.spawn()
    await cluster.seen()
    await load.accepts(10)
  }
  const [, second, third] = cluster.gateways
  await change(second, 'redis')
  await until('redis for all', async () => (await cluster.node('api-1').peersBy('direct')) === 0)
  await change(third, 'redis')
  await load.accepts(20)
  await change(third, 'direct')
  await change(second, 'direct')
  await linked(cluster)
  await load.accepts(20)
  await carries(cluster)
})
