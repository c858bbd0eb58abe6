/** Guarantees of other protocols if a client and its sender are at different nodes. */

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { after, before, test } from 'node:test'

import { Cluster } from '../lib/cluster.mjs'
import { Device } from '../lib/device.mjs'
import { Postgres, Redis, missingEngines } from '../lib/engines.mjs'
import { connect as mqttClient, datas } from '../lib/mqtt.mjs'
import { freePort } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const skip = missingEngines() ?? false
let postgres, redis, cluster, ports
before(async () => {
  if (skip) return
  ;[postgres, redis] = await Promise.all([Postgres.start(), Redis.start()])
  ports = [await freePort(), await freePort()]
  const roles = ['api', 'gateway', 'sender']
  cluster = await Cluster.start({
    postgres: postgres.url,
    redis: redis.url,
    nodes: ports.map((port, at) => ({ name: `n${at}`, roles, settings: { 'mqtt.listen': `127.0.0.1:${port}` } })),
  })
  await cluster.seen(2)
})
after(async () => {
  await cluster?.stop()
  await Promise.all([postgres?.stop(), redis?.stop()])
})

test('an MQTT session moves from node to node', { skip }, async () => {
  const device = await cluster.api().register({ user: 'wanderer' })
  const at = (node) => mqttClient(`mqtt://127.0.0.1:${ports[node]}`, device, { clean: false, properties: { sessionExpiryInterval: 3600 } })
  const publish = (node, to, data) => cluster.api(`n${node}`).publish({ to, data, when: 'stored' })
  const first = await at(0)
  assert.equal(first.connack.sessionPresent, false)
  await first.subscribeAsync({ '$noroshi/inbox': { qos: 1 }, 'went/exact': { qos: 1 }, 'went/w/#': { qos: 1 } })
  await publish(1, { topic: 'went/w/1' }, 'received at the first')
  await until('one', () => first.received.length === 1)

  // The same device takes over at the other node.
  const second = await at(1)
  assert.equal(second.connack.sessionPresent, true)
  await until('DISCONNECT', () => first.disconnectCode)
  assert.equal(first.disconnectCode, 0x8e)
  await publish(0, { users: ['wanderer'] }, 'inbox')
  await publish(0, { topic: 'went/exact' }, 'exact')
  await publish(0, { topic: 'went/w/2' }, 'wild')
  await until('all of it', () => new Set(datas(second)).size >= 3 && ['inbox', 'exact', 'wild'].every((data) => datas(second).includes(data)))
  await second.endAsync()

  for (const [to, data] of [[{ users: ['wanderer'] }, 'inbox 2'], [{ topic: 'went/exact' }, 'exact 2'], [{ topic: 'went/w/3' }, 'wild 2']]) {
    await publish(1, to, data)
  }
  const third = await at(0)
  assert.equal(third.connack.sessionPresent, true)
  await until('the missed messages', () => ['inbox 2', 'exact 2', 'wild 2'].every((data) => datas(third).includes(data)))
  assert.ok(!datas(third).includes('inbox'), 'messages acknowledged at the other node do not repeat')
  await third.endAsync()
})

test('a shared subscription has members at two nodes, and continues without one of them', { skip }, async () => {
  const lasting = { clean: false, properties: { sessionExpiryInterval: 3600 } }
  const join = async (at) => {
    const device = await cluster.api().register()
    const client = await mqttClient(`mqtt://127.0.0.1:${ports[at]}`, device, lasting)
    await client.subscribeAsync('$share/g/spread/+', { qos: 1 })
    return client
  }
  const members = [await join(0), await join(1)]
  const publish = (n, when = 'stored') => cluster.api(`n${n % 2}`).publish({ to: { topic: `spread/${n % 3}` }, data: n, when })
  for (let n = 0; n < 40; n++) await publish(n)
  const received = () => members.flatMap(datas)
  await until('all of them', () => received().length >= 40)
  assert.deepEqual(received().toSorted((a, b) => a - b), Array.from({ length: 40 }, (_, n) => n), 'each once')
  for (const member of members) assert.ok(datas(member).length >= 15, 'they take turns')
  await publish(40, 'connected')
  await until('one that is not stored', () => received().length === 41)

  await cluster.node('n1').kill()
  for (let n = 50; n < 70; n += 2) await publish(n)
  await until('the messages of the member of the killed node', () => datas(members[0]).filter((n) => n >= 50).length === 10, 30_000)
  await cluster.node('n1').spawn()
  await cluster.seen(2)
  await members[0].endAsync(true)
})

test('members at a suspended node are skipped, and return without subscribing again', { skip }, async () => {
  const join = async (at) => {
    const client = await mqttClient(`mqtt://127.0.0.1:${ports[at]}`, await cluster.api().register(), { keepalive: 600 })
    await client.subscribeAsync('$share/g/pause/+', { qos: 1 })
    return client
  }
  const [stays, pauses] = [await join(0), await join(1)]
  let sent = 0
  const publish = async (count) => {
    for (const until = sent + count; sent < until; sent++) {
      await cluster.api('n0').publish({ to: { topic: 'pause/x' }, data: sent, when: 'stored' })
    }
  }
  await publish(10)
  await until('both to have some', () => datas(stays).length && datas(pauses).length && datas(stays).length + datas(pauses).length === 10)
  cluster.node('n1').pause()
  await until('all to go to the one that stays', async () => {
    const before = datas(stays).length
    await publish(4)
    await new Promise((resolve) => setTimeout(resolve, 500))
    return datas(stays).length >= before + 4
  }, 60_000)
  const had = datas(pauses).length
  cluster.node('n1').resume()
  await until('the other to take its turn again', async () => {
    await publish(4)
    return datas(pauses).length > had
  }, 60_000)
  await until('all of them', () => new Set([stays, pauses].flatMap(datas)).size === sent)
  await Promise.all([stays, pauses].map((client) => client.endAsync(true)))
})

test('a message posted at one node waits until the device at the other becomes active', { skip }, async () => {
  const { device: id, token } = await cluster.api().register()
  const device = await Device.connect(cluster.node('n0').ws, token)
  device.send({ t: 'presence', state: 'idle' })
  await device.settle()
  const made = await cluster.api('n1').raw('POST', '/v1/me/endpoints', { token, body: {} })
  assert.equal(made.status, 201, made.text)
  const post = async (urgency) => {
    const headers = { ttl: '60', urgency, 'content-encoding': 'aes128gcm' }
    const answer = await fetch(made.body.url, { method: 'POST', headers, body: randomBytes(200) })
    assert.equal(answer.status, 201, await answer.text())
  }
  await post('low')
  await post('high')
  const urgent = await device.msg()
  assert.equal(urgent.urgency ?? 'high', 'high')
  device.ack(urgent.id)
  await device.settle()
  await until('the urgent one to be acknowledged', async () => (await cluster.api('n1').notification(urgent.id)).counts.acked === 1)
  device.send({ t: 'presence', state: 'active' })
  const waited = await device.msg()
  assert.notEqual(waited.id, urgent.id)
  assert.ok(waited.id < urgent.id, `what was posted first, to ${id}`)
  await device.leave()
})
