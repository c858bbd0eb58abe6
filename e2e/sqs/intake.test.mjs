/** Notifications that a backend puts on a queue and a node receives. */

import assert from 'node:assert/strict'
import { after, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { Sqs } from '../lib/sqs.mjs'
import { until } from '../lib/until.mjs'

const RECEIVES_MAX = 3
const sqs = new Sqs(process.env.NOROSHI_SQS_ENDPOINT)
const nodes = []
after(async () => {
  for (const node of nodes) await node.stop()
})

/** A node with its own intake queue. */
async function intake() {
  const [queue, dead] = [await sqs.create('in'), await sqs.create('dead')]
  const settings = {
    'sqs.endpoint': sqs.endpoint,
    'sqs.region': 'elasticmq',
    'intake.sqs.queue_url': queue,
    'intake.sqs.app': 'dev',
    'intake.sqs.dead_letter_url': dead,
    'intake.sqs.receives_max': RECEIVES_MAX,
  }
  const args = Object.entries(settings).flatMap(([key, value]) => ['--set', `${key}=${value}`])
  const start = async () => {
    const node = await Node.start({ args, env: { AWS_ACCESS_KEY_ID: 'x', AWS_SECRET_ACCESS_KEY: 'x' } })
    nodes.push(node)
    return node
  }
  return { queue, dead, start }
}

const empty = (url) => until('the queue to be empty', async () => (await sqs.depth(url)) === 0, 90_000)
const notification = (user, data) => ({ body: JSON.stringify({ to: { users: [user] }, data }) })

/** All messages of the dead-letter queue, by body. */
async function setAside(url, count) {
  const found = new Map()
  await until(`${count} messages in the dead-letter queue`, async () => {
    for (const message of await sqs.receive(url)) found.set(message.body, message)
    return found.size >= count
  })
  return found
}

test('notifications on the queue are delivered once', async () => {
  const { queue, dead, start } = await intake()
  const node = await start()
  const { token } = await node.api.register({ device: 'once', user: 'once' })
  const device = await Device.connect(node.ws, token)
  const bodies = Array.from({ length: 200 }, (_, n) => notification('once', n))
  // A backend that is unsure whether it sent them sends them again with the same keys.
  const keyed = bodies.slice(0, 50).map(({ body }, n) => ({ body, attributes: { idempotency_key: `order-${n}`, app: 'dev' } }))
  await sqs.send(queue, [...keyed, ...bodies.slice(50), ...keyed])
  await empty(queue)
  await sqs.send(queue, [notification('once', 'the last')])
  const received = []
  while (received.at(-1) !== 'the last') {
    const { id, data } = await device.msg()
    received.push(data)
    device.ack(id)
  }
  assert.deepEqual(received.slice(0, -1).sort((a, b) => a - b), [...Array(200).keys()])
  await device.leave()
  assert.equal(await sqs.depth(dead), 0)
})

test('a node killed during processing loses no message and publishes none twice', async () => {
  const { queue, start } = await intake()
  const node = await start()
  const { token } = await node.api.register({ device: 'killed', user: 'killed' })
  const messages = Array.from({ length: 600 }, (_, n) => notification('killed', n))
  const accepted = async () => {
    const metrics = await (await node.admin('/metrics')).text()
    return Number(/^noroshi_intake_messages_total\{result="accepted"\} (\d+)/m.exec(metrics)?.[1] ?? 0)
  }
  const sending = sqs.send(queue, messages)
  for (let kill = 0; kill < 3; kill++) {
    await until('some to be accepted', async () => (await accepted()) > 20)
    await node.kill()
    await node.spawn()
  }
  await sending
  // Messages of the killed node become visible again after their timeout.
  await empty(queue)
  const byData = new Map()
  const device = await Device.connect(node.ws, token)
  const { id: last } = await node.api.publish({ to: { users: ['killed'] }, data: 'the last' })
  for (;;) {
    const { id, data } = await device.msg()
    device.ack(id)
    if (id === last) break
    byData.set(data, (byData.get(data) ?? new Set()).add(id))
  }
  assert.equal(byData.size, messages.length, 'lost')
  assert.deepEqual([...byData].filter(([, ids]) => ids.size > 1), [], 'published twice')
  await device.leave()
})

test('an invalid message moves to the dead-letter queue at once, with its error', async () => {
  const { queue, dead, start } = await intake()
  const wrong = [
    { body: 'no json', attributes: { trace: 't-1' }, error: /json/i },
    { body: '{"to":{"users":[]},"data":1}', error: /users/ },
    { body: '{"to":{"users":["x"]},"data":1,"no_such_field":1}', error: /no_such_field/ },
    { body: '{"to":{"users":["x"]},"data":2}', attributes: { app: 'nobody' }, error: /app/ },
  ]
  const ids = await sqs.send(queue, wrong)
  await start()
  const found = await setAside(dead, wrong.length)
  for (const [at, { body, attributes = {}, error }] of wrong.entries()) {
    const message = found.get(body)
    assert.ok(message, `${body} is there`)
    assert.match(message.attributes.error, error)
    assert.equal(message.attributes.message_id, ids[at])
    for (const [name, value] of Object.entries(attributes)) assert.equal(message.attributes[name], value)
  }
  await empty(queue)
})

test('a message whose receivers die moves to the dead-letter queue after the receive limit', async () => {
  const { queue, dead, start } = await intake()
  const poison = notification('poisoned', 'poison')
  await sqs.send(queue, [poison])
  // Like receivers that die with it: once fewer than the limit, …
  for (let received = 0; received < RECEIVES_MAX - 1; received++) assert.equal((await sqs.receive(queue, 0)).length, 1)
  await start()
  await empty(queue)
  assert.equal(await sqs.depth(dead), 0, 'the last attempt counts')
  // … and then exactly the limit, on a queue that no node polls meanwhile.
  const other = await intake()
  await sqs.send(other.queue, [poison])
  for (let received = 0; received < RECEIVES_MAX; received++) assert.equal((await sqs.receive(other.queue, 0)).length, 1)
  await other.start()
  const message = (await setAside(other.dead, 1)).get(poison.body)
  assert.match(message.attributes.error, /received 4 times without being accepted/)
  await empty(other.queue)
})
