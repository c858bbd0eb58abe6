/** The fault shared by all kinds of queues: senders are killed with pushes in flight, and others push. */

import assert from 'node:assert/strict'

import { fault } from './fault.mjs'
import { DevPush, addCredential } from './push.mjs'
import { until } from './until.mjs'

const NODES = [
  { name: 'api-1', roles: ['api'] },
  { name: 'gateway-1', roles: ['gateway'] },
  { name: 'sender-1', roles: ['sender'] },
  { name: 'sender-2', roles: ['sender'] },
]
const ROUNDS = 4
const PUSHED = 75
const DUE = ROUNDS * PUSHED

export function senderKilled(words, settings) {
  const name = `a sender is killed during its batches, ${words}`
  const prepare = async () => {
    const push = await DevPush.start()
    return { push, shared: { 'egress.ca_file': push.info.ca_file, ...settings }, stop: () => push.stop() }
  }
  fault(name, { nodes: NODES, load: { devices: 6, away: 2, pauseMs: 100 }, prepare }, async ({ cluster, push }) => {
    await addCredential(cluster.node('api-1'), push.info.credentials.apns)
    // So that a kill finds pushes in flight.
    await push.behave({ service: 'apns', latency: { fixed_ms: 500 } })
    const api = cluster.api()
    const tokens = await push.tokens('apns', DUE)
    const lines = tokens.map((push_token, n) => ({ device: `pushed-${n}`, user: `pushed-${n}`, push_token }))
    for (const line of await api.registerBatch(lines)) assert.ok(line.device, JSON.stringify(line))
    let inFlight = 0
    for (let round = 0; round < ROUNDS; round++) {
      const users = lines.slice(round * PUSHED, (round + 1) * PUSHED).map(({ user }) => user)
      await api.publish({ to: { users }, notification: { title: `round ${round}` }, push: { mode: 'always' } })
      const busy = async () => {
        for (const node of [cluster.node('sender-1'), cluster.node('sender-2')]) {
          const count = await node.metric('noroshi_push_recipients_in_flight')
          if (count > 0) return { node, count }
        }
      }
      // Entries pulled by the dead sender can be claimed after half a minute (`batches::CLAIM_AFTER`).
      const { node, count } = await until('a sender to push', busy, 90_000)
      await node.kill()
      inFlight += count
      await node.spawn()
    }
    // A batch of a dead sender can be claimed once its lease has lapsed.
    const accepted = async () => push.accepted('apns')
    const reached = async () => new Set((await accepted()).map(({ token }) => token)).size
    await until('every device to be pushed to', async () => (await reached()) === DUE, 120_000)
    const all = await accepted()
    const ids = new Map()
    for (const { token, id } of all) ids.set(token, (ids.get(token) ?? new Set()).add(id))
    assert.ok([...ids.values()].every((of) => of.size === 1), 'duplicate pushes have the same apns-id')
    const doubled = all.length - DUE
    assert.ok(doubled <= inFlight, `${doubled} were sent twice, and ${inFlight} were in flight`)
    console.log(`${name}: ${DUE} pushes due, ${await reached()} made, ${doubled} duplicated of ${inFlight} in flight, 0 lost`)
  })
}
