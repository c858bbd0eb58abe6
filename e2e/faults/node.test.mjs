/** API and sender nodes that die amid their work, and clocks that jump. */

import assert from 'node:assert/strict'

import { hasFakeTime } from '../lib/cluster.mjs'
import { NODES, fault } from '../lib/fault.mjs'
import { DevPush, addCredential } from '../lib/push.mjs'
import { sleep, until } from '../lib/until.mjs'

const API_NODES = [
  { name: 'api-1', roles: ['api', 'sender'] },
  { name: 'api-2', roles: ['api'] },
  ...NODES.filter(({ name }) => name.startsWith('gateway')),
]

fault('an API node is killed amid requests', { nodes: API_NODES, load: { publishers: 8, pauseMs: 0 } }, async ({ cluster, load }) => {
  const node = cluster.node('api-2')
  for (let round = 0; round < 3; round++) {
    await load.accepts(30)
    await node.kill()
    await load.accepts(20)
    await node.spawn()
  }
})

const SENDER_NODES = [
  { name: 'api-1', roles: ['api'] },
  { name: 'gateway-1', roles: ['gateway'] },
  { name: 'sender-1', roles: ['sender'] },
  { name: 'sender-2', roles: ['sender'] },
]
const PUSHED = 300

fault(
  'a sender is killed amid its batches',
  {
    nodes: SENDER_NODES,
    load: { devices: 6, away: 2 },
    prepare: async () => {
      const push = await DevPush.start()
      return { push, shared: { 'egress.ca_file': push.info.ca_file }, stop: () => push.stop() }
    },
  },
  async ({ cluster, push }) => {
    await addCredential(cluster.node('api-1'), push.info.credentials.apns)
    // So that a kill finds pushes under way.
    await push.behave({ service: 'apns', latency: { fixed_ms: 300 } })
    const api = cluster.api()
    const tokens = await push.tokens('apns', PUSHED)
    const lines = tokens.map((push_token, n) => ({ device: `pushed-${n}`, user: `pushed-${n}`, push_token }))
    for (const line of await api.registerBatch(lines)) assert.ok(line.device, JSON.stringify(line))
    for (let round = 0; round < 4; round++) {
      const users = lines.slice(round * 75, round * 75 + 75).map(({ user }) => user)
      await api.publish({ to: { users }, notification: { title: `round ${round}` }, push: { mode: 'always' } })
      const node = cluster.node(round % 2 ? 'sender-1' : 'sender-2')
      await sleep(150 * round)
      await node.kill()
      await node.spawn()
    }
    // A batch that a dead sender held is another's once its lease has lapsed.
    const pushed = async () => new Set((await push.accepted('apns')).map(({ token }) => token)).size
    await until('every device to be pushed to', async () => (await pushed()) === PUSHED, 120_000)
    const all = await push.accepted('apns')
    console.log(`a sender is killed amid its batches: ${PUSHED} pushes due, ${await pushed()} made, ${all.length - PUSHED} doubled`)
  },
)

fault(
  'the clock of a gateway and of the API node jumps',
  {
    skip: hasFakeTime() ? undefined : 'faketime is not installed (scripts/setup engines)',
    nodes: NODES.map((node) => ({ ...node, fakeTime: ['api-1', 'gateway-1'].includes(node.name) })),
  },
  async ({ cluster, load }) => {
    for (const [name, seconds] of [['gateway-1', 3_600], ['gateway-1', -3_600], ['api-1', 600], ['api-1', -600]]) {
      cluster.node(name).jumpClock(seconds)
      await load.accepts(25)
      await load.settled()
    }
    for (const name of ['gateway-1', 'api-1']) cluster.node(name).jumpClock(0)
  },
)
