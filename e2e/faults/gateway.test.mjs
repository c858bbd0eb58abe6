/** Gateways that die, and gateways that were only suspended. */

import assert from 'node:assert/strict'

import { Device } from '../lib/device.mjs'
import { fault } from '../lib/fault.mjs'
import { until } from '../lib/until.mjs'

const lapsed = (node) => node.metric('noroshi_cluster_leases_lapsed_total')

fault('a gateway is killed', {}, async ({ cluster, load }) => {
  const gateway = cluster.node('gateway-1')
  assert.ok(load.at(gateway).length > 0, 'devices are connected to it')
  await gateway.kill()
  await load.settled()
  await load.accepts(40)
  await cluster.seen(cluster.nodes.length - 1)
  await gateway.spawn()
})

fault('a gateway is suspended for longer than its lease and resumes', {}, async ({ cluster, load }) => {
  const gateway = cluster.node('gateway-1')
  assert.ok(load.at(gateway).length > 0, 'devices are connected to it')
  gateway.pause()
  await cluster.seen(cluster.nodes.length - 1)
  await load.settled()
  await load.accepts(40)
  gateway.resume()
  await until('the gateway to notice that its lease lapsed', async () => (await lapsed(gateway)) > 0)
})

fault('a zombie delivers nothing under its old epoch and removes no newer session', {}, async ({ cluster, load }) => {
  const zombie = cluster.node('gateway-1')
  const other = cluster.node('gateway-2')
  const api = cluster.api()
  const publish = (when, data) => api.publish({ to: { users: ['moved'] }, when, data })
  const { token } = await api.register({ device: 'moved', user: 'moved' })
  const old = await Device.connect(zombie.ws, token)
  await publish('connected', 'before')
  assert.equal((await old.msg()).data, 'before')
  zombie.pause()
  // Both are in transit to the zombie, under the lease that it is about to lose.
  await publish('connected', 'to the zombie')
  const { id: kept } = await publish('stored', 'to the zombie')
  // The device connects elsewhere and never closes its old connection.
  const now = await Device.connect(other.ws, token)
  const first = await now.msg()
  assert.deepEqual([first.id, first.data], [kept, 'to the zombie'])
  now.ack(kept)
  await cluster.seen(cluster.nodes.length - 1)
  for (const data of ['connected', 'stored']) {
    const { id } = await publish(data, data)
    const received = await now.msg()
    assert.deepEqual([received.id, received.data], [id, data])
    if (data === 'stored') now.ack(id)
  }
  zombie.resume()
  // The first frame that the zombie sends on the old connection is the close as replaced.
  const { reason } = await old.ended()
  assert.equal(reason, 'replaced')
  assert.ok((await lapsed(zombie)) > 0)
  await cluster.seen()
  assert.equal((await api.presence('moved')).moved.presence, 'active')
  const { id } = await publish('connected', 'after')
  assert.equal((await now.msg()).id, id, 'the newer session is still known')
  await until('one connection of the device', async () => (await api.presence('moved')).moved.devices.length === 1)
  await now.leave()
})

fault('gateways are added, drained, and replaced one by one', {}, async ({ cluster, load }) => {
  await cluster.add({ name: 'gateway-4', roles: ['gateway'] })
  await cluster.seen()
  for (const name of ['gateway-1', 'gateway-2', 'gateway-3']) {
    const gateway = cluster.node(name)
    await load.moveTo(gateway)
    await gateway.drain()
    await load.accepts(10)
    await gateway.spawn()
    await cluster.seen()
  }
  await load.moveTo(cluster.node('gateway-4'))
  await cluster.node('gateway-4').drain()
  await load.settled()
  await cluster.seen(cluster.nodes.length - 1)
  await cluster.node('gateway-4').spawn()
})
