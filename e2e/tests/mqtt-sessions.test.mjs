/** Sessions and features of MQTT 5. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { connect as mqttClient, datas, startOpenNode, texts } from '../lib/mqtt.mjs'
import { until } from '../lib/until.mjs'

let node, url
before(async () => ({ node, url } = await startOpenNode()))
after(() => node?.stop())

const LASTING = { clean: false, properties: { sessionExpiryInterval: 3600 } }

const connect = (device, options) => mqttClient(url, device, options)
const topicsOf = async (device) => {
  const { body } = await node.api.raw('GET', '/v1/me', { token: device.token })
  return body.topics
}

test('a will waits for its delay, and a returning client cancels it', async () => {
  const [watching, leaving] = [await node.api.register(), await node.api.register()]
  const watch = await connect(watching)
  await watch.subscribeAsync('open/wills/#', { qos: 1 })
  const lasting = (name, willDelayInterval) => ({
    clean: false,
    properties: { sessionExpiryInterval: 3600 },
    will: { topic: `open/wills/${name}`, payload: 'gone', qos: 1, properties: { willDelayInterval } },
  })
  const patient = await connect(leaving, lasting('patient', 3600))
  patient.stream.destroy()
  const back = await connect(leaving, lasting('hasty', 1))
  assert.equal(back.connack.sessionPresent, true)
  const vanished = Date.now()
  back.stream.destroy()
  await until('the will', () => watch.received.length)
  // It is due in whole seconds; it must not arrive at once.
  assert.ok(Date.now() - vanished > 500, 'it waits')
  assert.deepEqual(texts(watch), ['open/wills/hasty gone'])
  await watch.endAsync()
})

test('a session and its subscriptions end at the session expiry', async () => {
  const device = await node.api.register({ user: 'expiring' })
  const lasting = { clean: false, properties: { sessionExpiryInterval: 1 } }
  const client = await connect(device, lasting)
  await client.subscribeAsync('expiring/exact', { qos: 1 })
  await client.endAsync()
  await until('the subscription to end', async () => !(await topicsOf(device)).includes('expiring/exact'))
  const again = await connect(device, lasting)
  assert.equal(again.connack.sessionPresent, false)
  await again.endAsync()
})

test('a session ended by its client leaves no subscriptions', async () => {
  const device = await node.api.register({ user: 'ending' })
  const client = await connect(device, LASTING)
  await client.subscribeAsync(['ending/exact', 'ending/+/wild'], { qos: 1 })
  await client.endAsync(false, { properties: { sessionExpiryInterval: 0 } })
  await until('the subscription to end', async () => (await topicsOf(device)).length === 0)
  const again = await connect(device, LASTING)
  assert.equal(again.connack.sessionPresent, false)
  await node.api.publish({ to: { topic: 'ending/exact' }, data: 1 })
  await node.api.publish({ to: { devices: [device.device] }, data: 2 })
  await again.subscribeAsync('$noroshi/inbox', { qos: 1 })
  await until('its own message', () => again.received.length)
  assert.deepEqual(datas(again), [2])
  await again.endAsync()
})

test('a session ended by its client is not resumed, however soon the client returns', async () => {
  const rounds = Array.from({ length: 40 }, async (_, n) => {
    const device = await node.api.register()
    const client = await connect(device, LASTING)
    await client.subscribeAsync(['returning/exact', 'returning/+/wild'], { qos: 1 })
    await client.endAsync(false, { properties: { sessionExpiryInterval: 0 } })
    // The store removes the session in several steps, which take some milliseconds.
    await new Promise(resolve => setTimeout(resolve, n % 20))
    const again = await connect(device, LASTING)
    assert.equal(again.connack.sessionPresent, false)
    await again.endAsync()
  })
  await Promise.all(rounds)
})

test('a subscription without a sent SUBACK does not outlive the session', async () => {
  const devices = []
  for (let n = 0; n < 20; n++) {
    const device = await node.api.register()
    const client = await connect(device, LASTING)
    client.subscribe(Array.from({ length: 20 }, (_, at) => `hasty/${at}`), { qos: 1 })
    setImmediate(() => client.stream.destroy())
    devices.push(device)
  }
  for (const device of devices) {
    const client = await connect(device, { clean: true })
    await client.endAsync()
    await until('no subscription to be left', async () => (await topicsOf(device)).length === 0)
  }
})

test('retained messages arrive after SUBACK, even on the next connection of the session', async () => {
  const topics = Array.from({ length: 10 }, (_, n) => `due/${n}`)
  for (const topic of topics) await node.api.publish({ to: { topic }, data: topic, retain: true })
  for (const filters of [['due/+'], topics]) {
    for (let n = 0; n < 10; n++) {
      const device = await node.api.register()
      const client = await connect(device, { ...LASTING, customHandleAcks() {} })
      await client.subscribeAsync(filters, { qos: 1 })
      client.stream.destroy()
      const back = await connect(device, LASTING)
      assert.equal(back.connack.sessionPresent, true)
      await until('all retained messages', () => new Set(datas(back)).size === topics.length)
      await back.endAsync()
    }
  }
})

test('a message that expired while the client was offline is dropped, and a live one carries its remaining time', async () => {
  const [hearing, speaking] = [await node.api.register(), await node.api.register()]
  const hearer = await connect(hearing, LASTING)
  await hearer.subscribeAsync('open/expiry', { qos: 1 })
  await hearer.endAsync()
  const speaker = await connect(speaking)
  const publish = (text, messageExpiryInterval) =>
    speaker.publishAsync('open/expiry', text, { qos: 1, properties: { messageExpiryInterval } })
  await publish('short', 1)
  const shortAt = Date.now()
  await publish('long', 600)
  await until('the short one to expire', () => Date.now() - shortAt > 1_100)
  const again = await connect(hearing, LASTING)
  await until('the remaining message', () => again.received.length)
  assert.deepEqual(texts(again), ['open/expiry long'])
  const left = again.received[0].properties.messageExpiryInterval
  assert.ok(left > 0 && left <= 599, `${left}`)
  await Promise.all([again.endAsync(), speaker.endAsync()])
})

test('a client uses a topic alias', async () => {
  const device = await node.api.register()
  const client = await connect(device, { autoAssignTopicAlias: true })
  assert.equal(client.connack.properties.topicAliasMaximum, 16)
  await client.subscribeAsync('open/alias', { qos: 1 })
  for (const text of ['one', 'two', 'three']) await client.publishAsync('open/alias', text, { qos: 1 })
  await until('all', () => client.received.length === 3)
  assert.deepEqual(texts(client), ['open/alias one', 'open/alias two', 'open/alias three'])
  await client.endAsync()
})

test('a message above the client\'s maximum packet size is not sent', async () => {
  const device = await node.api.register({ user: 'small' })
  const client = await connect(device, { properties: { maximumPacketSize: 1_000 } })
  await client.subscribeAsync('$noroshi/inbox', { qos: 1 })
  await node.api.publish({ to: { users: ['small'] }, data: 'x'.repeat(2_000) })
  await node.api.publish({ to: { users: ['small'] }, data: 'fits' })
  await until('the small one', () => client.received.length)
  assert.deepEqual(datas(client), ['fits'])
  await client.endAsync()
})
