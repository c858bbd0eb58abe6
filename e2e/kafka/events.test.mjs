/**
 * The event log in a topic of Apache Kafka, read back by kafkajs and compared with the files of the same node.
 */

import assert from 'node:assert/strict'
import { readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { gunzipSync } from 'node:zlib'

import { Broker, PASSWORD, USER } from '../lib/kafka.mjs'
import { Node } from '../lib/node.mjs'
import { sleep, until } from '../lib/until.mjs'

let broker
before(async () => (broker = await Broker.start()), { timeout: 200_000 })
after(() => broker?.stop())

/** A node whose events go to a topic and to files. */
async function start(topic, settings = {}) {
  const data = { ...{ 'events.kafka.brokers': broker.address, 'events.kafka.topic': topic }, ...settings }
  const all = { ...data, 'events.drain': '60s', 'egress.allow': '127.0.0.0/8', 'node.name': 'n1' }
  const node = await Node.start({ args: Object.entries(all).flatMap(([key, value]) => ['--set', `${key}=${value}`]), env: { NOROSHI__EVENTS__FILE__FOLDER: filesOf(topic) } })
  node.files = filesOf(topic)
  return node
}

const filesOf = (topic) => join(broker.folder, `files-${topic}`)

/** Each notification is accepted, routed and dropped: three lines. */
async function publish(node, count) {
  const nobody = { to: { users: ['nobody'] }, when: 'connected', data: 'x'.repeat(100) }
  for (let left = count; left > 0; left -= 1_000) {
    await node.api.publishBatch(Array.from({ length: Math.min(left, 1_000) }, () => nobody))
  }
}

/** The lines of the node's files, closed files first. */
function written(node) {
  const names = readdirSync(node.files).filter((name) => name !== 'events.ndjson').sort()
  const text = (name) => {
    const bytes = readFileSync(join(node.files, name))
    return (name.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString()
  }
  return [...names, 'events.ndjson'].flatMap((name) => text(name).split('\n').filter((line) => line !== ''))
}

async function metric(node, name) {
  const text = await (await node.admin('/metrics')).text()
  return Number(new RegExp(`^noroshi_events_${name}\\{sink="kafka"\\} (\\d+)`, 'm').exec(text)?.[1] ?? 0)
}

/** Waits until Kafka has all lines, stops the node and reads both. Returns the count of each line. */
async function outcome(node, topic, deadlineMs) {
  await until('Kafka to have all lines', async () => (await metric(node, 'sink_sent_total')) >= written(node).length, deadlineMs)
  await node.drain()
  const [expected, records] = [written(node), await broker.read(topic)]
  node.removeData()
  const times = new Map(expected.map((line) => [line, 0]))
  for (const { value } of records) {
    assert.ok(times.has(value), `not a line of the node: ${value}`)
    times.set(value, times.get(value) + 1)
  }
  const lost = [...times.values()].filter((count) => count === 0).length
  return { expected, records, lost, doubled: records.length - (times.size - lost) }
}

const eachOnce = ({ lost, doubled }) => assert.deepEqual({ lost, doubled }, { lost: 0, doubled: 0 })

test('all lines of a node are in one partition and in order, over TLS with a log-in', async () => {
  await broker.createTopic('ordered', { partitions: 5 })
  const passwordFile = join(broker.folder, 'password')
  writeFileSync(passwordFile, `${PASSWORD}\n`)
  const node = await start('ordered', {
    'events.kafka.brokers': `127.0.0.1:1,${broker.secureAddress}`, // nothing listens on the first address
    'events.kafka.tls': true,
    'egress.ca_file': broker.ca,
    'events.kafka.user': USER,
    'events.kafka.password_file': passwordFile,
  })
  await publish(node, 3_000)
  const result = await outcome(node, 'ordered')
  eachOnce(result)
  assert.ok(result.expected.length > 6_000, `${result.expected.length} lines`)
  assert.deepEqual(result.records.map(({ value }) => value), result.expected)
  assert.equal(new Set(result.records.map(({ partition }) => partition)).size, 1)
  assert.deepEqual([...new Set(result.records.map(({ key }) => key))], ['n1'])
})

test('a wrong password is logged and loses nothing', async () => {
  await broker.createTopic('locked')
  const passwordFile = join(broker.folder, 'wrong')
  writeFileSync(passwordFile, 'wrong')
  const node = await start('locked', {
    'events.kafka.brokers': broker.secureAddress,
    'events.kafka.tls': true,
    'egress.ca_file': broker.ca,
    'events.kafka.user': USER,
    'events.kafka.password_file': passwordFile,
  })
  await until('the reason in the log', () => node.log().includes(`the log-in as ${USER} failed`))
  await node.stop()
  assert.equal((await broker.read('locked')).length, 0)
})

test('a node spreads its lines over partitions if configured', async () => {
  await broker.createTopic('spread', { partitions: 3 })
  const node = await start('spread', { 'events.kafka.spread': true, 'events.kafka.compression': 'none', 'events.kafka.request': '16KiB' })
  await publish(node, 2_000)
  const result = await outcome(node, 'spread')
  eachOnce(result)
  assert.equal(new Set(result.records.map(({ partition }) => partition)).size, 3)
})

test('a missing topic is named in the log and receives everything once it exists', async () => {
  const node = await start('late')
  await publish(node, 100)
  await until('the reason in the log', () => node.log().includes('Kafka has no topic late: create it'))
  assert.ok((await metric(node, 'sink_failures_total')) > 0)
  await broker.createTopic('late')
  eachOnce(await outcome(node, 'late'))
})

test('calls respect the message size of the topic', async () => {
  await broker.createTopic('narrow', { settings: { 'max.message.bytes': 20_000 } })
  const node = await start('narrow', { 'events.kafka.compression': 'none' })
  await publish(node, 1_000)
  eachOnce(await outcome(node, 'narrow'))
})

test('an exceeded broker quota delays lines without duplicates', async () => {
  await broker.createTopic('metered')
  await broker.setQuota(['--add-config', 'producer_byte_rate=20000'])
  try {
    const node = await start('metered', { 'events.kafka.compression': 'none', 'events.kafka.request': '64KiB' })
    await publish(node, 500)
    eachOnce(await outcome(node, 'metered', 90_000))
  } finally {
    await broker.setQuota(['--delete-config', 'producer_byte_rate'])
  }
})

test('a broker killed under load loses nothing and duplicates at most one call', async (t) => {
  await broker.createTopic('killed', { partitions: 2 })
  const node = await start('killed', { 'events.kafka.request': '64KiB', 'events.kafka.compression': 'none', 'events.memory': '2MiB' })
  let loads = true
  const load = (async () => {
    // A few thousand lines per second.
    for (; loads; await sleep(100)) await publish(node, 200)
  })()
  await until('events to flow', async () => (await metric(node, 'sink_sent_total')) > 5_000)
  await broker.program.kill()
  await until('the spool to be used', async () => (await metric(node, 'sink_spool_bytes')) > 0)
  await sleep(3_000)
  const waited = await metric(node, 'sink_backlog')
  await broker.up()
  await until('events to flow again', async () => (await metric(node, 'sink_spool_bytes')) === 0, 90_000)
  loads = false
  await load
  const result = await outcome(node, 'killed', 90_000)
  const { lost, doubled } = result
  t.diagnostic(`${result.expected.length} lines due, ${waited} waited when the broker returned, ${doubled} duplicated, ${lost} lost`)
  assert.ok(waited > 0)
  assert.equal(lost, 0)
  // A call has 64 KiB, and a line more than 150 bytes.
  assert.ok(doubled <= 437, `${doubled} duplicated`)
})
