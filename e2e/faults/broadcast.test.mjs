/**
 * Broadcasts to channels of APNs in a cell: any API node accepts, any sender sends, and senders die with broadcasts under
 * way.
 */

import assert from 'node:assert/strict'

import { fault } from '../lib/fault.mjs'
import { DevPush, addCredential } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

const NODES = [
  { name: 'api-1', roles: ['api'] },
  { name: 'api-2', roles: ['api'] },
  { name: 'gateway-1', roles: ['gateway'] },
  { name: 'sender-1', roles: ['sender'] },
  { name: 'sender-2', roles: ['sender'] },
]
const CHANNELS = 6
const ROUNDS = 3
const PER_ROUND = 5

const name = 'senders are killed with broadcasts under way'
const prepare = async () => {
  const push = await DevPush.start()
  return { push, shared: { 'egress.ca_file': push.info.ca_file }, stop: () => push.stop() }
}
fault(name, { nodes: NODES, load: { devices: 4, away: 1, pauseMs: 100 }, prepare }, async ({ cluster, push }) => {
  await addCredential(cluster.node('api-1'), push.info.credentials.apns)
  await push.behave({ service: 'apns', latency: { fixed_ms: 200 } })
  const apis = ['api-1', 'api-2'].map((node) => cluster.api(node))
  const channels = []
  for (let n = 0; n < CHANNELS; n++) {
    const body = { name: `c${n}`, topic: `game/${n}` }
    // The other API node learns of the credential in a moment.
    const made = await until(`channel ${n}`, async () => {
      const answer = await apis[n % 2].raw('POST', '/v1/push/channels', { body })
      return answer.status === 201 && answer.body
    })
    channels.push(made)
  }
  const ids = []
  for (let round = 0; round < ROUNDS; round++) {
    for (let count = 0; count < PER_ROUND; count++) {
      for (const [n, channel] of channels.entries()) {
        const broadcast = { event: 'update', content_state: { n, round, count } }
        const api = apis[(n + count) % 2]
        if (count % 2) {
          const { id } = await api.publish({ to: { topic: channel.topic }, data: 1, push: { broadcast } })
          ids.push(async () => (await apis[0].notification(id)).broadcasts[0])
        } else {
          const path = `/v1/push/channels/${channel.name}/broadcasts`
          const { id } = await api.call('POST', path, { body: { ...broadcast, ttl: '1h' }, status: 202 })
          ids.push(() => apis[1].call('GET', `/v1/push/broadcasts/${id}`))
        }
      }
    }
    const sender = cluster.node(`sender-${1 + (round % 2)}`)
    await sender.kill()
    await sender.spawn()
  }
  const due = ids.length
  // The lease of a dead sender lasts for a minute.
  for (const state of ids) await until('a broadcast to be sent', async () => (await state()).state === 'sent', 240_000)
  const sent = new Map()
  for (const got of await push.accepted('apns')) {
    if (!got.headers['apns-channel-id']) continue
    const key = JSON.stringify(JSON.parse(got.payload).aps['content-state'])
    sent.set(key, [...(sent.get(key) ?? []), got])
  }
  assert.equal(sent.size, due)
  assert.ok([...sent.values()].every((gots) => new Set(gots.map(({ id }) => id)).size === 1), 'repetitions have the same id')
  const repeated = [...sent.values()].filter((gots) => gots.length > 1).length
  assert.ok(repeated <= ROUNDS * CHANNELS, `${repeated} were sent twice`)
  for (const n of channels.keys()) {
    const order = [...sent].map(([key, gots]) => ({ ...JSON.parse(key), at: gots[0].at_ms })).filter((one) => one.n === n)
    order.sort((a, b) => a.at - b.at)
    const places = order.map(({ round, count }) => round * PER_ROUND + count)
    assert.deepEqual(places, places.toSorted((a, b) => a - b), `channel ${n} keeps its order`)
  }
  console.log(`${name}: ${due} broadcasts due, ${sent.size} sent, ${repeated} repeated, 0 lost`)
})
