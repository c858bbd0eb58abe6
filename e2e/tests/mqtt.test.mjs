/** MQTT with the npm client `mqtt` and Mosquitto's clients, over TCP and WebSocket. */

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { connect as mqttClient, texts } from '../lib/mqtt.mjs'
import { Node, cli, freePort } from '../lib/node.mjs'
import { withPages } from '../lib/page.mjs'
import { used } from '../lib/raw.mjs'
import { until } from '../lib/until.mjs'

let node
let port

before(async () => {
  port = await freePort()
  node = await Node.start({ args: ['--mqtt', `127.0.0.1:${port}`] })
  const { code, stderr } = await cli(['apps', 'update', 'dev', '--client-publish', 'open/#', '--data-dir', node.data])
  assert.equal(code, 0, stderr)
})
after(() => node.stop())

const connect = (device, { url = `mqtt://127.0.0.1:${port}`, ...options } = {}) => mqttClient(url, device, options)

for (const protocolVersion of [4, 5]) {
  test(`a device receives its inbox and topics, MQTT ${protocolVersion === 4 ? '3.1.1' : '5'}`, async () => {
    const device = await node.api.register({ user: `u${protocolVersion}` })
    const sent = await node.api.publish({ to: { users: [`u${protocolVersion}`] }, notification: { title: 'waiting' } })
    const client = await connect(device, { protocolVersion })
    await client.subscribeAsync({ '$noroshi/inbox': { qos: 1 }, 'fire/+': { qos: 2 } })
    await until('the waiting message', () => client.received.length === 1)
    const notification = JSON.parse(client.received[0].text)
    assert.deepEqual([notification.id, notification.notification], [sent.id, { title: 'waiting' }])
    await node.api.publish({ to: { topic: 'fire/kyoto' }, data: { n: 1 } })
    await until('the topic', () => client.received.length === 2)
    assert.equal(client.received[1].topic, 'fire/kyoto')
    assert.deepEqual(JSON.parse(client.received[1].text).data, { n: 1 })
    await until('the acknowledgement', async () => (await node.api.notification(sent.id)).counts.acked === 1)
    await client.endAsync()
  })
}

test('clients publish at every quality of service, over WebSocket too, and native devices receive it', async () => {
  const [one, two] = [await node.api.register(), await node.api.register({ topics: ['open/a'] })]
  const client = await connect(one, { url: `${node.ws}/mqtt` })
  const native = await Device.connect(node.ws, two.token)
  await client.subscribeAsync('open/#', { qos: 2 })
  for (const qos of [0, 1, 2]) {
    const properties = { userProperties: { k: 'v' }, contentType: 'text/plain' }
    await client.publishAsync('open/a', `qos ${qos}`, { qos, properties })
    const { data } = await native.msg()
    assert.equal(data.mqtt.text, `qos ${qos}`)
  }
  await until('its own messages', () => client.received.length === 3)
  assert.deepEqual(client.received.map(({ text, qos }) => [text, qos]), [['qos 0', 0], ['qos 1', 1], ['qos 2', 2]])
  assert.deepEqual({ ...client.received[2].properties.userProperties }, { k: 'v' })
  assert.equal(client.received[2].properties.contentType, 'text/plain')
  await assert.rejects(client.publishAsync('closed', 'x', { qos: 1 }), /[Nn]ot authorized/)
  await client.endAsync()
  await native.leave()
})

test('publications that a client sends together share commits and keep their order', async () => {
  const [one, two] = [await node.api.register(), await node.api.register({ topics: ['open/burst'] })]
  const [client, native] = [await connect(one), await Device.connect(node.ws, two.token)]
  const acknowledged = []
  client.on('packetreceive', ({ cmd, messageId }) => cmd === 'puback' && acknowledged.push(messageId))
  const commits = async () => {
    const text = await (await node.admin('/metrics')).text()
    return Number(/^noroshi_store_commits_total (\d+)$/m.exec(text)[1])
  }
  const before = await commits()
  client.stream.cork()
  const published = Array.from({ length: 100 }, (_, n) => client.publishAsync('open/burst', `${n}`, { qos: 1 }))
  client.stream.uncork()
  await Promise.all(published)
  const used = (await commits()) - before
  assert.ok(used <= 30, `${used} commits for 100 publications`)
  assert.equal(acknowledged.length, 100)
  assert.deepEqual(acknowledged, acknowledged.toSorted((a, b) => a - b), '[MQTT-4.6.0-2]')
  const received = await native.msgs(100)
  assert.deepEqual(received.map(({ data }) => data.mqtt.json), Array.from({ length: 100 }, (_, n) => n))
  await client.endAsync()
  await native.leave()
})

test('protocols take over from each other', async () => {
  const device = await node.api.register()
  const native = await Device.connect(node.ws, device.token)
  const client = await connect(device)
  assert.equal((await native.ended()).reason, 'replaced')
  const again = await Device.connect(node.ws, device.token)
  await until('DISCONNECT', () => client.disconnectCode)
  assert.equal(client.disconnectCode, 0x8e)
  await again.leave()
})

test('a session, its inbox and retained messages survive a restart of the node', async () => {
  const device = await node.api.register({ user: 'lasting' })
  const lasting = { clean: false, properties: { sessionExpiryInterval: 3600 } }
  const client = await connect(device, lasting)
  assert.equal(client.connack.sessionPresent, false)
  await client.subscribeAsync({ '$noroshi/inbox': { qos: 1 }, 'log/exact': { qos: 1 }, 'log/w/#': { qos: 1 } })
  await client.endAsync()
  const kept = async (to, data) => node.api.publish({ to, data, when: 'stored' })
  await kept({ users: ['lasting'] }, 'inbox')
  await kept({ topic: 'log/exact' }, 'exact')
  await kept({ topic: 'log/w/x' }, 'wild')
  await node.api.publish({ to: { topic: 'keep/it' }, data: 'retained', retain: true })
  await node.drain()
  await node.spawn()
  const again = await connect(device, lasting)
  assert.equal(again.connack.sessionPresent, true)
  await until('all of it', () => again.received.length === 3)
  assert.deepEqual(again.received.map(({ text }) => JSON.parse(text).data).sort(), ['exact', 'inbox', 'wild'])
  await again.subscribeAsync('keep/+', { qos: 1 })
  await until('the retained message', () => again.received.length === 4)
  assert.deepEqual([JSON.parse(again.received[3].text).data, again.received[3].retain], ['retained', true])
  await again.endAsync()
})

test('a client that vanishes leaves a will, one that disconnects does not', async () => {
  const [watching, leaving] = [await node.api.register(), await node.api.register()]
  const watch = await connect(watching)
  await watch.subscribeAsync('open/wills/+', { qos: 1 })
  const will = (name) => ({ will: { topic: `open/wills/${name}`, payload: 'gone', qos: 1, retain: false } })
  await (await connect(leaving, will('left'))).endAsync()
  const vanishing = await connect(leaving, will('vanished'))
  vanishing.stream.destroy()
  await until('the will', () => watch.received.length)
  assert.deepEqual(texts(watch), ['open/wills/vanished gone'])
  await watch.endAsync()
})

const mosquitto = (command, args) =>
  new Promise((resolve) => {
    const all = ['-h', '127.0.0.1', '-p', String(port), ...args]
    execFile(command, all, { timeout: 30_000 }, (error, stdout, stderr) => resolve({ error, stdout, stderr }))
  })
const { error: missing } = await mosquitto('mosquitto_pub', ['--help']).catch((error) => ({ error }))

test('Mosquitto publishes and receives', { skip: missing?.code === 'ENOENT' && 'mosquitto-clients is not installed' }, async () => {
  const [one, two] = [await node.api.register(), await node.api.register()]
  const login = ({ device, token }) => ['-u', device, '-P', token]
  for (const version of ['311', '5']) {
    const received = mosquitto('mosquitto_sub', ['-V', version, ...login(one), '-t', `open/m${version}/#`, '-q', '2', '-C', '2', '-W', '20', '-v'])
    const publish = (qos, text) =>
      mosquitto('mosquitto_pub', ['-V', version, ...login(two), '-t', `open/m${version}/x`, '-m', text, '-q', qos, '-r'])
    // The first message may precede the subscription: then it is retained, and still received.
    for (const [qos, text] of [['1', 'first'], ['2', 'second']]) assert.equal((await publish(qos, text)).stderr, '')
    const lines = (await received).stdout.trim().split('\n')
    assert.ok(lines.length && lines.every((line) => line.startsWith(`open/m${version}/x `)), lines.join('|'))
    assert.ok(lines.some((line) => line.endsWith(' second')), lines.join('|'))
  }
  const { stderr } = await mosquitto('mosquitto_sub', ['-V', '5', '-u', one.device, '-P', 'wrong', '-t', 'x', '-C', '1'])
  assert.match(stderr, /Bad user ?name or password/i)
})

test('a drain redirects clients to another server', async () => {
  const device = await node.api.register()
  const client = await connect(device)
  node.terminate()
  await until('DISCONNECT', () => client.disconnectCode)
  assert.equal(client.disconnectCode, 0x9c)
  await node.drain()
  await node.spawn()
})

test('a page of another origin receives its inbox and publishes', async (t) => {
  await withPages(t, 'mqtt/dist/mqtt.min.js', async (open) => {
    const device = await node.api.register({ user: 'mqtt-page' })
    const other = await node.api.register({ topics: ['open/page'] })
    const native = await Device.connect(node.ws, other.token)
    const { tab, complaints } = await open()
    await tab.evaluate(
      async ({ url, username, password }) => {
        window.received = []
        window.client = await window.mqtt.connectAsync(url, { protocolVersion: 5, username, password })
        window.client.on('message', (topic, payload) => window.received.push([topic, JSON.parse(payload.toString()).data]))
        await window.client.subscribeAsync('$noroshi/inbox', { qos: 1 })
      },
      { url: `${node.ws}/mqtt`, username: device.device, password: device.token },
    )
    const { id } = await node.api.publish({ to: { users: ['mqtt-page'] }, data: '狼煙' })
    await until('the notification', async () => (await tab.evaluate(() => window.received.length)) === 1)
    assert.deepEqual(await tab.evaluate(() => window.received), [['$noroshi/inbox', '狼煙']])
    await until('the acknowledgement', async () => (await node.api.notification(id)).counts.acked === 1)
    await tab.evaluate(() => window.client.publishAsync('open/page', 'from a page', { qos: 1 }))
    assert.equal((await native.msg()).data.mqtt.text, 'from a page')
    assert.deepEqual(complaints, [])
    await native.leave()
  })
})

test('a connection that has served the API can switch to MQTT', async () => {
  const device = await node.api.register({ user: 'mqtt-kept' })
  const socket = await used(node.httpPort)
  const client = await connect(device, { url: `${node.ws}/mqtt`, wsOptions: { createConnection: () => socket } })
  await client.subscribeAsync('$noroshi/inbox', { qos: 1 })
  await node.api.publish({ to: { users: ['mqtt-kept'] }, data: 1 })
  await until('the notification', () => client.received.length === 1)
  await client.endAsync()
})
