/** PostgreSQL restarts, is slow, or hangs. */

import assert from 'node:assert/strict'

import { fault } from '../lib/fault.mjs'
import { Proxy } from '../lib/proxy.mjs'
import { sleep } from '../lib/until.mjs'

fault('PostgreSQL restarts and crashes', {}, async ({ load, postgres }) => {
  // A request may wait and be answered, so the outage is verified at the server.
  const started = () => postgres.sql('SELECT pg_postmaster_start_time()')
  for (const how of [{}, { crash: true, downMs: 2_000 }, { crash: true }]) {
    const before = await started()
    await postgres.restart(how)
    assert.notEqual(await started(), before, 'another server')
    await load.accepts(40)
  }
})

fault('PostgreSQL hangs for a while', {}, async ({ load, postgres }) => {
  for (const ms of [1_000, 6_000]) {
    postgres.pause()
    await sleep(200) // requests in flight
    const before = load.sent
    await sleep(ms)
    assert.equal(load.sent, before, 'nothing is accepted without being stored')
    postgres.resume()
    await load.accepts(30)
  }
})

/** All nodes, or the named ones, reach PostgreSQL through a proxy. */
const behindProxy = (...names) => async ({ postgres }) => {
  const proxy = await Proxy.start(postgres.port)
  const settings = { 'store.url': postgres.urlAt(proxy.port) }
  const through = Object.fromEntries(names.map((name) => [name, settings]))
  return { proxy, through, shared: names.length > 0 ? {} : settings, stop: () => proxy.stop() }
}
const LATENCY_MS = 150

fault('PostgreSQL is slow', { prepare: behindProxy() }, async ({ cluster, load, proxy }) => {
  proxy.latency(LATENCY_MS)
  const began = Date.now()
  await cluster.api().publish({ to: { users: ['nobody'] }, data: {} })
  assert.ok(Date.now() - began >= 2 * LATENCY_MS, 'it is slow')
  await load.accepts(30, 120_000)
  // Log-ins too.
  for (const { device } of load.at(cluster.node('gateway-1'))) device.socket.terminate()
  await load.settled()
  proxy.latency(0)
})

fault('the API node is partitioned from PostgreSQL during commits', { prepare: behindProxy('api-1') }, async ({ load, proxy }) => {
  for (let round = 0; round < 3; round++) {
    await proxy.cut()
    await sleep(200) // requests in flight
    const before = load.sent
    await sleep(500)
    assert.equal(load.sent, before, 'nothing is accepted without being stored')
    await proxy.heal()
    await load.accepts(25)
  }
  proxy.freeze()
  await sleep(3_000)
  await proxy.heal()
})

fault('a gateway is partitioned from PostgreSQL', { prepare: behindProxy('gateway-1') }, async ({ cluster, load, proxy }) => {
  const gateway = cluster.node('gateway-1')
  for (const part of [() => proxy.cut(), () => proxy.freeze()]) {
    assert.ok(load.at(gateway).length > 0, 'devices are connected to it')
    await part()
    await load.accepts(30)
    // Acknowledgements over its sockets wait there, log-ins go elsewhere.
    await sleep(2_000)
    await proxy.heal()
    await load.accepts(20)
    await load.settled()
  }
})
