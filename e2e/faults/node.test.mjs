/** API nodes that die during requests, and clocks that jump. */

import assert from 'node:assert/strict'

import { hasFakeTime } from '../lib/cluster.mjs'
import { NODES, fault } from '../lib/fault.mjs'
import { until } from '../lib/until.mjs'

const API_NODES = [
  { name: 'api-1', roles: ['api', 'sender'] },
  { name: 'api-2', roles: ['api'] },
  ...NODES.filter(({ name }) => name.startsWith('gateway')),
]

fault('an API node is killed during requests', { nodes: API_NODES, load: { publishers: 8, pauseMs: 0 } }, async ({ cluster, load }) => {
  const node = cluster.node('api-2')
  // At some moments this node has no request.
  for (let cut = 0, kills = 0; cut < 4; kills++) {
    assert.ok(kills < 16, 'requests are interrupted and repeated at the other node')
    const before = load.counts.repeated
    await load.accepts(30)
    await node.kill()
    await load.accepts(20)
    if (load.counts.repeated > before) cut++
    await node.spawn()
  }
})

fault(
  'the clocks of a gateway and of the API node jump',
  {
    skip: hasFakeTime() ? undefined : 'faketime is not installed (scripts/setup engines)',
    nodes: NODES.map((node) => ({ ...node, fakeTime: ['api-1', 'gateway-1'].includes(node.name) })),
  },
  async ({ cluster, load }) => {
    for (const [name, seconds] of [['gateway-1', 3_600], ['gateway-1', -3_600], ['api-1', 600], ['api-1', -600]]) {
      const node = cluster.node(name)
      node.jumpClock(seconds)
      await until('the clock to jump', async () => Math.abs((await node.now()) - Date.now() - seconds * 1_000) < 60_000)
      await load.accepts(25)
      await load.settled()
      await load.reached()
    }
    for (const name of ['gateway-1', 'api-1']) cluster.node(name).jumpClock(0)
  },
)
