/** The will and the session of an MQTT client obey the limits, and end with the device. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { connect as mqttClient, startOpenNode, texts } from '../lib/mqtt.mjs'
import { Node, cli, freePort } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const NOT_AUTHORIZED = 0x87
const QUOTA_EXCEEDED = 0x97

let node, url
before(async () => ({ node, url } = await startOpenNode()))
after(() => node?.stop())

const connect = (device, options) => mqttClient(url, device, options)
const register = (device, user) => node.api.register({ device, user })

async function offline(device) {
  await until('the device to be offline', async () => {
    return (await node.api.call('GET', `/v1/devices/${device}`)).presence === 'offline'
  })
}

/** Subscribes to wills below `open/{name}`. */
async function watch(name) {
  const client = await connect(await register(`${name}-watch`, `${name}-watch`))
  await client.subscribeAsync(`open/${name}/#`, { qos: 1 })
  return client
}

/** Leaves a will that is due some seconds after the connection ends. */
async function leave(device, topic, willDelayInterval) {
  const client = await connect(device, {
    clean: false,
    properties: { sessionExpiryInterval: 3600 },
    will: { topic, payload: device.device, qos: 1, properties: { willDelayInterval } },
  })
  client.stream.destroy()
  await offline(device.device)
}

test('a will that is too long, or not allowed, is rejected at CONNECT', async () => {
  const device = await register('long', 'u1')
  const user = { big: 'x'.repeat(50_000) }
  const control = '\u0001'.repeat(4_000)
  for (const [why, code, will] of [
    ['its payload', QUOTA_EXCEEDED, { topic: 'open/long', payload: 'x'.repeat(4_097) }],
    ['its user properties', QUOTA_EXCEEDED, { topic: 'open/long', payload: '', properties: { userProperties: user } }],
    ['what its payload becomes', QUOTA_EXCEEDED, { topic: 'open/long', payload: control }],
    ['its topic', NOT_AUTHORIZED, { topic: 'closed/topic', payload: 'x' }],
  ]) {
    const refused = connect(device, { will: { qos: 1, ...will } })
    await assert.rejects(refused, (error) => error.code === code, why)
  }
  // 3.1.1 has no code for a limit: it receives "not authorized".
  const older = connect(device, { protocolVersion: 4, will: { qos: 1, topic: 'open/long', payload: 'x'.repeat(4_097) } })
  await assert.rejects(older, (error) => error.code === 5)
  const fits = await connect(device, { will: { qos: 1, topic: 'open/long', payload: 'x'.repeat(4_096) } })
  await fits.endAsync()
})

test('user properties count towards the size limit of a publication', async () => {
  const client = await connect(await register('props', 'u1'))
  const properties = { userProperties: { big: 'x'.repeat(50_000) } }
  await assert.rejects(client.publishAsync('open/props', 'x', { qos: 1, properties }), (error) => error.code === QUOTA_EXCEEDED)
  await client.publishAsync('open/props', 'x', { qos: 1, properties: { userProperties: { small: 'y'.repeat(1_000) } } })
  await client.endAsync()
})

test('the will of a deleted or revoked device, or of one with a new user, is not published', async () => {
  const watching = await watch('ended')
  const [deleted, revoked, moved, last] = await Promise.all(
    ['deleted', 'revoked', 'moved', 'last'].map((name) => register(`w-${name}`, 'alice')),
  )
  for (const device of [deleted, revoked, moved]) await leave(device, `open/ended/${device.device}`, 2)
  await node.api.call('DELETE', `/v1/devices/${deleted.device}`)
  await node.api.call('POST', `/v1/devices/${revoked.device}/revoke`)
  await register(moved.device, 'bob')
  // Due after the others: when it arrives, they would have arrived.
  await leave(last, 'open/ended/last', 4)
  await until('the last will', () => watching.received.length && texts(watching).some((text) => text.endsWith('w-last')))
  assert.deepEqual(texts(watching), ['open/ended/last w-last'])
  await watching.endAsync()
})

test('an MQTT session and its subscriptions end when the device gets another user', async () => {
  const lasting = { clean: false, properties: { sessionExpiryInterval: 3600 } }
  const first = await register('shared', 'alice')
  const alice = await connect(first, lasting)
  await alice.subscribeAsync(['private/exact', 'private/+/wild'], { qos: 1 })
  alice.stream.destroy()
  await offline('shared')
  const second = await register('shared', 'bob')
  const bob = await connect(second, lasting)
  assert.equal(bob.connack.sessionPresent, false)
  await bob.subscribeAsync('$noroshi/inbox', { qos: 1 })
  for (const topic of ['private/exact', 'private/a/wild']) await node.api.publish({ to: { topic }, data: 'secret' })
  await node.api.publish({ to: { users: ['bob'] }, data: 'fence' })
  await until('the fence', () => texts(bob).some((text) => text.includes('fence')))
  assert.equal(texts(bob).filter((text) => text.includes('secret')).length, 0)
  await until('the subscription to end', async () => {
    const me = await node.api.raw('GET', '/v1/me', { token: second.token })
    return !me.body.topics.includes('private/exact')
  })
  await bob.endAsync()
})

test('disconnected sessions are bounded in bytes, and evictions are counted', async () => {
  const port = await freePort()
  const small = await Node.start({ args: ['--mqtt', `127.0.0.1:${port}`, '--set', 'gateway.parked_sessions=64KiB'] })
  try {
    await cli(['apps', 'update', 'dev', '--client-publish', 'open/#', '--data-dir', small.data])
    const metric = async (name) => {
      const text = await (await small.admin('/metrics')).text()
      return Number(new RegExp(`^noroshi_${name}(?:_total)?(?:{protocol="mqtt"})? (\\d+)$`, 'm').exec(text)?.[1] ?? 0)
    }
    const count = 30
    for (let n = 0; n < count; n++) {
      const device = await small.api.register({ device: `many${n}` })
      const client = await mqttClient(`mqtt://127.0.0.1:${port}`, device, {
        clean: false,
        properties: { sessionExpiryInterval: 3600 },
        will: { topic: `open/many/${n}`, payload: 'x'.repeat(4_000), qos: 1, properties: { willDelayInterval: 3600 } },
      })
      client.stream.destroy()
    }
    await until('all to be offline', async () => {
      return (await metric('mqtt_sessions_suspended')) + (await metric('sessions_suspended_evicted')) === count
    })
    assert.ok((await metric('sessions_suspended_evicted')) > 0)
    assert.ok((await metric('sessions_suspended_bytes')) <= 64 << 10)
  } finally {
    await small.stop()
  }
})
