/** PostgreSQL that restarts, is slow, or stands still. */

import { fault } from '../lib/fault.mjs'
import { Proxy } from '../lib/proxy.mjs'
import { sleep } from '../lib/until.mjs'

fault('PostgreSQL restarts and crashes', {}, async ({ load, postgres }) => {
  await postgres.restart()
  await load.accepts(40)
  await postgres.restart({ crash: true, downMs: 2_000 })
  await load.accepts(40)
  await postgres.restart({ crash: true })
})

fault('PostgreSQL stands still for a while', {}, async ({ load, postgres }) => {
  // A stopped postmaster takes no new connections; those that exist go on.
  postgres.program.pause()
  await sleep(4_000)
  postgres.program.resume()
  await load.accepts(40)
})

fault(
  'PostgreSQL is slow',
  {
    prepare: async ({ postgres }) => {
      const proxy = await Proxy.start(postgres.port)
      return { proxy, shared: { 'store.url': postgres.urlAt(proxy.port) }, stop: () => proxy.stop() }
    },
  },
  async ({ load, proxy }) => {
    proxy.latency(150)
    await load.accepts(30, 120_000)
    await load.settled()
    proxy.latency(0)
  },
)

fault(
  'the API node is parted from PostgreSQL amid commits',
  {
    prepare: async ({ postgres }) => {
      const proxy = await Proxy.start(postgres.port)
      return { proxy, through: { 'api-1': { 'store.url': postgres.urlAt(proxy.port) } }, stop: () => proxy.stop() }
    },
  },
  async ({ load, proxy }) => {
    for (let round = 0; round < 3; round++) {
      await proxy.cut()
      await sleep(500)
      await proxy.heal()
      await load.accepts(25)
    }
    proxy.freeze()
    await sleep(3_000)
    await proxy.heal()
  },
)
