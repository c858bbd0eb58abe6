/**
 * One fault, one cell: real PostgreSQL and Redis, processes of the built binary, the load of `load.mjs` before, during and
 * after the fault, and the count.
 *
 *   fault('a gateway is killed', {}, async ({ cluster, load }) => { … })
 *
 * Leases and sweeps are short, so that a fault is over soon; everything else is as in production.
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

/** So many notifications are accepted before and after. */
const BEFORE = 60
const AFTER = 60

export function fault(name, options, happen) {
  const { nodes = NODES, redis: startRedis = () => Redis.start(), prepare = async () => ({}), load: size, skip } = options
  test(name, { skip: missingEngines() ?? skip ?? false, timeout: 280_000 }, async () => {
    const stops = []
    try {
      const postgres = await Postgres.start()
      stops.push(() => postgres.stop())
      const redis = await startRedis()
      stops.push(() => redis.stop())
      /** Proxies and what nodes are told of them. */
      const { through = {}, shared = {}, stop = () => {}, ...more } = await prepare({ postgres, redis })
      stops.push(stop)
      const settings = { 'cluster.sweep_interval': '4s', ...shared }
      const cluster = await Cluster.start({ postgres: postgres.url, redis: redis.url, nodes, settings, through })
      stops.push(() => cluster.stop())
      await cluster.seen(nodes.length)
      const load = await Load.start(cluster, size)
      stops.push(() => load.abandon())
      await load.accepts(BEFORE)
      await happen({ cluster, load, postgres, redis, ...more })
      await load.accepts(AFTER)
      await load.settled()
      await load.finish(name)
    } finally {
      const failures = []
      for (const stop of stops.reverse()) await Promise.resolve(stop()).catch((error) => failures.push(error))
      if (failures.length > 0) console.log(`${name}: ${failures.map(String).join('\n')}`)
    }
  })
}
