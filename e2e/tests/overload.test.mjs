/**
 * More arrives than the node can deliver: requests wait for room, and those that get none learn when to retry.
 * What was accepted arrives. The tests assert numbers, not times: how fast the node is does not matter.
 */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { connect as mqttClient } from '../lib/mqtt.mjs'
import { Node, freePort } from '../lib/node.mjs'
import { operator } from '../lib/operator.mjs'
import { until } from '../lib/until.mjs'

const DEVICES = 150
let node, patient, mqttUrl

before(async () => {
  const mqttPort = await freePort()
  mqttUrl = `mqtt://127.0.0.1:${mqttPort}`
  // The queue of a shard has room for 1,024 deliveries, and for more only if they take less than 5 ms.
  const env = { NOROSHI__PUBLISH__DELAY_MAX: '5ms', NOROSHI__GATEWAY__FRAMES_PER_SECOND: '100000', NOROSHI__GATEWAY__FRAMES_BURST: '100000' }
  node = await Node.start({ env: { ...env, NOROSHI__PUBLISH__WAIT_MAX: '0s' } })
  patient = await Node.start({ args: ['--mqtt', `127.0.0.1:${mqttPort}`], env: { ...env, NOROSHI__PUBLISH__WAIT_MAX: '1m' } })
})
after(async () => {
  await node?.stop()
  await patient?.stop()
})

/** Connects devices of one user each; each counts the ids that it receives. */
async function connectDevices(at, api, count = DEVICES) {
  const registered = await api.registerBatch(Array.from({ length: count }, (_, n) => ({ user: `crowd-${n}` })))
  return Promise.all(
    registered.map(async ({ token }) => {
      const device = await Device.connect(at.ws, token)
      device.ids = []
      device.socket.on('message', (data) => {
        const frame = JSON.parse(data.toString())
        if (frame.t === 'msg') device.ids.push(frame.id)
      })
      return device
    }),
  )
}

const message = () => ({ to: crowd(), when: 'connected', data: 'x'.repeat(200) })
const crowd = (count = DEVICES) => ({ users: Array.from({ length: count }, (_, n) => `crowd-${n}`) })
const metric = async (at, name) => {
  const text = await (await at.admin('/metrics')).text()
  return Number(text.match(new RegExp(`^${name} (.*)$`, 'm'))?.[1] ?? 0)
}

test('providers that wait for their answers wait for room, and lose nothing', async () => {
  const devices = await connectDevices(patient, patient.api)
  const provider = () => patient.api.publishBatch(Array.from({ length: 100 }, () => message()))
  const answers = (await Promise.all(Array.from({ length: 8 }, provider))).flat()
  assert.deepEqual(answers.filter(({ id }) => !id), [])
  const ids = answers.map(({ id }) => id)
  for (const device of devices) {
    await until('everything to arrive', () => device.ids.length >= ids.length)
    assert.deepEqual([...device.ids].sort(), [...ids].sort())
    await device.leave()
  }
  assert.ok((await metric(patient, 'noroshi_publishes_delayed_total')) > 0, 'some requests waited')
  assert.equal(await metric(patient, 'noroshi_refused_overloaded_total'), 0)
})

test('a request without room gets 503 with the time to retry, and what was accepted arrives', async () => {
  const devices = await connectDevices(node, node.api)
  // Until some are rejected: how many fit depends on the speed of the machine.
  const flood = async () => (await Promise.all(Array.from({ length: 8 }, () => node.api.publishBatch(Array.from({ length: 100 }, message))))).flat()
  const answers = await flood()
  while (answers.every(({ id }) => id)) answers.push(...(await flood()))
  const rejected = answers.filter(({ id }) => !id)
  for (const { error } of rejected) assert.deepEqual([error.status, error.code], [503, 'overloaded'])
  const ids = answers.filter(({ id }) => id).map(({ id }) => id)
  for (const device of devices) {
    await until('everything accepted to arrive', () => device.ids.length >= ids.length)
    assert.deepEqual([...device.ids].sort(), [...ids].sort())
    await device.leave()
  }
})

test('an app that sends too much does not exclude another', async () => {
  const other = (await operator(patient).app('other')).api
  const devices = [...(await connectDevices(patient, patient.api)), ...(await connectDevices(patient, other, 1))]
  let floods = true
  const flood = async () => {
    while (floods) await patient.api.publishBatch(Array.from({ length: 50 }, message))
  }
  const delayed = await metric(patient, 'noroshi_publishes_delayed_total')
  const flooding = Promise.all(Array.from({ length: 4 }, flood))
  await until('a queue', async () => (await metric(patient, 'noroshi_publishes_delayed_total')) > delayed)
  for (let n = 0; n < 5; n++) await other.publish({ to: crowd(1), when: 'connected', data: n })
  floods = false
  await flooding
  await until('all of the other app', () => devices.at(-1).ids.length === 5)
  for (const device of devices) await device.leave()
})

test('an MQTT client that publishes faster than the node accepts is slowed down, and loses nothing', async () => {
  const changed = await operator(patient).raw('PATCH', '/v1/apps/dev', { client_publish: ['open/#'] })
  assert.equal(changed.status, 200, changed.text)
  const [watching, sending] = [await patient.api.register(), await patient.api.register()]
  const watch = await mqttClient(mqttUrl, watching)
  await watch.subscribeAsync('open/flood', { qos: 0 })
  const sender = await mqttClient(mqttUrl, sending)
  const count = 600
  for (let n = 0; n < count; n++) sender.publish('open/flood', String(n), { qos: 0 })
  await until('all of them', () => watch.received.length === count)
  assert.deepEqual(watch.received.map(({ text }) => Number(text)), Array.from({ length: count }, (_, n) => n))
  assert.equal(sender.connected, true)
  await Promise.all([sender.endAsync(), watch.endAsync()])
})
