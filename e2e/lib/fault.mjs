/**
 * One fault, one cell: real PostgreSQL and Redis, processes of the built binary, the load of `load.mjs` before, during and
 * after the fault, and the count.
 *
 *   fault('a gateway is killed', {}, async ({ cluster, load }) => { … })
 *
 * The test must show that the fault took place: that devices were connected to the dead node, that a lease lapsed, that requests
 * were interrupted. Afterwards every node must be visible, every device found, and nothing lost.
 * Leases and sweeps are short, so that recovery is fast; everything else is as in production.
 */

import { test } from 'node:test'

import { Cluster } from './cluster.mjs'
import { Postgres, Redis, missingEngines } from './engines.mjs'
import { Load } from './load.mjs'

export const NODES = [
  { name: 'api-1', roles: ['api', 'sender'] },
  { name: 'gateway-1', roles: ['gateway'] },
  { name: 'gateway-2', roles: ['gateway'] },
  { name: 'gateway-3', roles: ['gateway'] },
]

/** Settings of nodes that use direct connections. FAULTS_BUS=direct runs every fault with them. */
export const DIRECT = { 'cluster.bus': 'direct', 'cluster.links.listen': '127.0.0.1:0' }
const BUS = process.env.FAULTS_BUS === 'direct' ? DIRECT : {}

/** Number of notifications accepted before and after. */
const BEFORE = 40
const AFTER = 40

export function fault(name, options, happen) {
  const { nodes = NODES, redis: startRedis = () => Redis.start(), prepare = async () => ({}), load: size, skip } = options
  test(name, { skip: missingEngines() ?? skip ?? false, timeout: 280_000 }, async () => {
    const stops = []
    const step = stopwatch(name)
    const run = async () => {
      const started = await Promise.allSettled([Postgres.start(), startRedis()])
      for (const { value } of started) if (value) stops.push(() => value.stop())
      for (const { reason } of started) if (reason) throw reason
      const [postgres, redis] = started.map(({ value }) => value)
      /** Proxies, and the settings with which nodes use them. */
      const { through = {}, shared = {}, stop = () => {}, ...more } = await prepare({ postgres, redis })
      stops.push(stop)
      step('engines')
      const settings = { 'cluster.sweep_interval': '3s', 'log.level': 'info,noroshi_delivery::cluster=debug', ...BUS, ...shared }
      const cluster = await Cluster.start({ postgres: postgres.url, redis: redis.url, nodes, settings, through })
      stops.push(() => cluster.stop())
      await cluster.seen()
      step('nodes')
      const load = await Load.start(cluster, size)
      stops.push(() => load.abandon())
      await load.accepts(BEFORE)
      await load.reached()
      step('before')
      await happen({ cluster, load, postgres, redis, ...more })
      step('fault')
      await load.accepts(AFTER)
      await cluster.seen()
      await load.settled()
      await load.reached()
      step('after')
      await load.finish(name)
      step('count')
    }
    const failures = await run().then(() => [], (error) => [error])
    for (const stop of stops.reverse()) await Promise.resolve(stop()).catch((error) => failures.push(error))
    step('end')
    // The first error is the most useful; failed stops after it add nothing.
    if (failures.length > 0) throw failures[0]
  })
}

/** Prints the duration of each step, with FAULTS_VERBOSE. */
function stopwatch(name) {
  let last = Date.now()
  return (what) => {
    if (process.env.FAULTS_VERBOSE) console.log(`${name}: ${what} ${((Date.now() - last) / 1_000).toFixed(1)} s`)
    last = Date.now()
  }
}
