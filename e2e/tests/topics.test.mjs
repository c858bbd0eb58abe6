/** Topics: subscriptions, retained messages, recovery, conditions. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { connect as mqttClient } from '../lib/mqtt.mjs'
import { Node, freePort } from '../lib/node.mjs'
import { sleep, until } from '../lib/until.mjs'

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

const publish = (topic, data, more = {}) => node.api.publish({ to: { topic }, data, ...more })

/** The messages of the device up to a marker that is sent now. */
async function received(device) {
  const mark = `marker ${Math.random()}`
  await node.api.publish({ to: { devices: [device.ready.device] }, when: 'connected', data: mark })
  const messages = []
  for (;;) {
    const msg = await device.msg()
    if (msg.data === mark) return messages
    messages.push(msg)
  }
}

const data = (messages) => messages.map((msg) => msg.data)

/** Subscribes on the connection and waits until the subscription is active. */
async function subscribe(device, ...topics) {
  device.send({ t: 'sub', topics })
  await device.settle()
}

test('a subscription of a connection receives the topic with its position until unsubscribed', async () => {
  const device = await Device.connect(node.ws, (await node.api.register()).token)
  await publish('weather', 'too early')
  await subscribe(device, 'weather', 'traffic')
  const sent = await publish('weather', 'sunny')
  assert.equal(sent.targets, null, 'subscribers are not counted in advance')
  await publish('weather', 'rain')
  const [sunny, rain] = await received(device)
  assert.deepEqual([sunny.id, sunny.topic, sunny.data], [sent.id, 'weather', 'sunny'])
  assert.equal(sunny.epoch, rain.epoch)
  assert.equal(rain.offset, sunny.offset + 1)

  device.send({ t: 'unsub', topics: ['weather'] })
  await device.settle()
  await publish('weather', 'unheard')
  await publish('traffic', 'jam')
  assert.deepEqual(data(await received(device)), ['jam'])
  await device.leave()
})

test('a subscription of a connection ends with the connection', async () => {
  const { token } = await node.api.register()
  const device = await Device.connect(node.ws, token)
  await subscribe(device, 'short')
  await device.leave()
  const again = await Device.connect(node.ws, token)
  await publish('short', 'unheard')
  assert.deepEqual(await received(again), [])
  await again.leave()
})

test('an offline durable subscriber receives stored messages later, and acknowledged ones never again', async () => {
  await publish('club', 'before the subscription')
  const { token } = await node.api.register({ topics: ['club'] })
  await publish('club', 'first')
  await publish('club', 'only for who is there', { when: 'connected' })
  await publish('club', 'second')
  const device = await Device.connect(node.ws, token)
  const backlog = await received(device)
  assert.deepEqual(data(backlog), ['first', 'second'])
  await device.leave()

  const repeated = await Device.connect(node.ws, token)
  assert.deepEqual((await received(repeated)).map((msg) => msg.id), backlog.map((msg) => msg.id), 'nothing was acknowledged')
  await repeated.leave()

  await node.api.me(token).ack(backlog[0].id)
  const confirmed = await Device.connect(node.ws, token)
  assert.deepEqual(data(await received(confirmed)), ['second'])
  confirmed.ack(backlog[1].id)
  await confirmed.settle()
  await confirmed.leave()
  await until('the acknowledgement over the socket to take effect', async () => {
    const later = await Device.connect(node.ws, token)
    const messages = await received(later)
    await later.leave()
    return messages.length === 0
  })
})

test('PUT and DELETE /v1/me/topics change the open connection at once and later ones', async () => {
  const { token } = await node.api.register()
  const device = await Device.connect(node.ws, token)
  await node.api.me(token).subscribe('sports')
  await publish('sports', 'goal', { when: 'connected' })
  assert.deepEqual(data(await received(device)), ['goal'])
  await device.leave()

  await publish('sports', 'away goal')
  const again = await Device.connect(node.ws, token)
  assert.deepEqual(data(await received(again)), ['away goal'])
  await node.api.me(token).unsubscribe('sports')
  await publish('sports', 'unheard')
  assert.deepEqual(await received(again), [])
  await again.leave()
  const last = await Device.connect(node.ws, token)
  assert.deepEqual(await received(last), [])
  await last.leave()
})

test('a topic name may be any UTF-8 up to 255 bytes', async () => {
  const topic = `ニュース/${'x'.repeat(255 - 13)}`
  assert.equal(Buffer.byteLength(topic), 255)
  const { token } = await node.api.register({ topics: [topic] })
  const device = await Device.connect(node.ws, token)
  await publish(topic, 'long')
  assert.equal((await device.msg()).topic, topic)
  const refused = await node.api.raw('POST', '/v1/notifications', { body: { to: { topic: `${topic}x` }, data: 1 } })
  assert.equal(refused.status, 400, refused.text)
  await device.leave()
})

test('a retained message is delivered at each log-in and to new subscribers, replaced and deleted', async () => {
  const { token } = await node.api.register({ topics: ['board'] })
  await publish('board', 'old notice', { retain: true, when: 'connected' })
  const { id } = await publish('board', 'notice', { retain: true, when: 'connected' })
  for (let login = 0; login < 2; login++) {
    const device = await Device.connect(node.ws, token)
    const messages = await received(device)
    assert.deepEqual(data(messages), ['notice'], `login ${login}`)
    assert.deepEqual([messages[0].id, messages[0].topic], [id, 'board'])
    await device.leave()
  }
  const late = await Device.connect(node.ws, (await node.api.register({ topics: ['board'] })).token)
  assert.deepEqual(data(await received(late)), ['notice'], 'subscribed after it was published')

  const retained = await node.api.call('GET', '/v1/topics/board/retained')
  assert.deepEqual([retained.id, retained.data], [id, 'notice'])

  await publish('board', 'passing by', { when: 'connected' })
  assert.deepEqual(data(await received(late)), ['passing by'])
  await late.leave()
  assert.equal((await node.api.call('GET', '/v1/topics/board/retained')).data, 'notice', 'only retain replaces it')

  await node.api.call('DELETE', '/v1/topics/board/retained')
  assert.equal((await node.api.raw('GET', '/v1/topics/board/retained')).status, 404)
  const device = await Device.connect(node.ws, token)
  assert.deepEqual(await received(device), [])
  await device.leave()
})

test('a stored and retained message is delivered once per log-in, even after it was acknowledged', async () => {
  const { token } = await node.api.register({ topics: ['both'] })
  const { id } = await publish('both', 'keep', { retain: true })
  for (let login = 0; login < 3; login++) {
    const device = await Device.connect(node.ws, token)
    assert.deepEqual((await received(device)).map((msg) => msg.id), [id], `login ${login}`)
    await device.leave()
    await node.api.me(token).ack(id)
  }
})

test('a connection with a position recovers all missed messages', async () => {
  const { token } = await node.api.register()
  const device = await Device.connect(node.ws, token)
  await subscribe(device, 'log')
  await publish('log', 0)
  const { epoch, offset } = await device.msg()
  await device.vanish()
  for (const n of [1, 2, 3]) await publish('log', n)

  const again = await Device.connect(node.ws, token)
  again.send({ t: 'sub', topics: ['log'], since: { log: { epoch, offset } } })
  const frames = [await again.next(), await again.next(), await again.next(), await again.next()]
  const ends = frames.filter((frame) => frame.t === 'recovered')
  assert.deepEqual(ends, [{ t: 'recovered', topic: 'log', complete: true, epoch, offset: offset + 3 }])
  const recovered = frames.filter((frame) => frame.t === 'msg')
  assert.deepEqual(data(recovered), [1, 2, 3])
  assert.deepEqual(recovered.map((msg) => msg.offset), [offset + 1, offset + 2, offset + 3])
  await publish('log', 4)
  assert.deepEqual(data(await received(again)), [4], 'and live messages follow')
  await again.leave()
})

test('an incomplete recovery is reported', async () => {
  const device = await Device.connect(node.ws, (await node.api.register()).token)
  await subscribe(device, 'gaps')
  await publish('gaps', 'seen')
  const { epoch, offset } = await device.msg()
  await publish('gaps', 'short-lived', { ttl: '1s' })
  await publish('gaps', 'kept')
  await device.leave()
  await sleep(1_100)

  const recover = async (since) => {
    const again = await Device.connect(node.ws, (await node.api.register()).token)
    again.send({ t: 'sub', topics: ['gaps'], since: { gaps: since } })
    let complete
    const messages = []
    while (complete === undefined) {
      const frame = await again.next()
      if (frame.t === 'recovered') complete = frame.complete
      else messages.push(frame.data)
    }
    messages.push(...data(await received(again)))
    await again.leave()
    return { complete, messages }
  }
  assert.deepEqual(await recover({ epoch, offset }), { complete: false, messages: ['kept'] }, 'one has expired')
  assert.deepEqual(await recover({ epoch, offset: offset + 2 }), { complete: true, messages: [] }, 'nothing was missed')
  const other = epoch === '00000001' ? '00000002' : '00000001'
  assert.deepEqual(await recover({ epoch: other, offset: 1 }), { complete: false, messages: ['seen', 'kept'] }, 'another epoch')
})

test('a condition reaches subscribers of matching topics, connected or offline', async () => {
  const topics = { ab: ['a', 'b'], a: ['a'], b: ['b'], c: ['c'], none: [] }
  const registered = {}
  for (const name of Object.keys(topics)) registered[name] = await node.api.register({ topics: topics[name] })
  const live = {}
  for (const name of ['ab', 'a', 'c']) live[name] = await Device.connect(node.ws, registered[name].token)

  const publishTo = (condition, message) => node.api.publish({ to: { condition }, data: message })
  const sent = await publishTo("'a' in topics && !('b' in topics)", 'only a')
  assert.equal(sent.targets, null)
  await publishTo("'b' in topics || 'c' in topics", 'b or c')
  await publishTo("!('a' in topics) && ('b' in topics || 'c' in topics)", 'not a')
  for (const name of ['b', 'none']) live[name] = await Device.connect(node.ws, registered[name].token)

  const all = {}
  for (const name of Object.keys(topics)) all[name] = data(await received(live[name]))
  assert.deepEqual(all, {
    ab: ['b or c'],
    a: ['only a'],
    b: ['b or c', 'not a'],
    c: ['b or c', 'not a'],
    none: [],
  })
  for (const device of Object.values(live)) await device.leave()

  for (const wrong of ["'a' in topics &&", "'a' in topic", "a in topics", '', "'a' in topics & 'b' in topics"]) {
    const refused = await node.api.raw('POST', '/v1/notifications', { body: { to: { condition: wrong }, data: 1 } })
    assert.equal(refused.status, 400, `${wrong}: ${refused.text}`)
  }
})

test('GET /v1/topics returns subscribers and the position', async () => {
  const away = await node.api.register({ topics: ['counted'] })
  const device = await Device.connect(node.ws, (await node.api.register({ topics: ['counted'] })).token)
  await publish('counted', 1)
  const msg = await device.msg()
  const topic = await node.api.call('GET', '/v1/topics/counted')
  assert.equal(topic.epoch, msg.epoch)
  assert.equal(topic.offset, msg.offset)
  assert.ok(away.device)
  assert.equal(topic.subscribers, 2)
  await device.leave()
})

test('positions continue after a restart', async () => {
  const own = await Node.start()
  const { token } = await own.api.register({ topics: ['durable'] })
  const send = (n) => own.api.publish({ to: { topic: 'durable' }, data: n })
  await send(1)
  await send(2)
  await own.drain()
  await own.spawn()
  await send(3)
  const device = await Device.connect(own.ws, token)
  const messages = await device.msgs(3)
  assert.deepEqual(data(messages), [1, 2, 3])
  assert.deepEqual(messages.map((msg) => msg.offset - messages[0].offset), [0, 1, 2])
  assert.equal(new Set(messages.map((msg) => msg.epoch)).size, 1)
  await device.leave()
  await own.stop()
})

test('a raised topic limit applies to every protocol and appears in the documents', async () => {
  const port = await freePort()
  const raised = await Node.start({ args: ['--mqtt', `127.0.0.1:${port}`, '--set', 'limits.topic=2000B'] })
  try {
    const [long, tooLong] = ['l'.repeat(2000), 'l'.repeat(2001)]
    const { token } = await raised.api.register({ topics: [long] })
    const native = await Device.connect(raised.ws, token)
    const client = await mqttClient(`mqtt://127.0.0.1:${port}`, await raised.api.register())
    const [{ qos }] = await client.subscribeAsync(long, { qos: 1 })
    assert.equal(qos, 1)
    await raised.api.publish({ to: { topic: long }, data: 1 })
    assert.equal((await native.msg()).topic, long)
    await until('it over MQTT', () => client.received.some(({ topic }) => topic === long))
    assert.equal((await raised.api.call('GET', `/v1/topics/${long}`)).topic, long)
    const wrong = await raised.api.raw('POST', '/v1/notifications', { body: { to: { topic: tooLong }, data: 1 } })
    assert.equal(wrong.status, 400)
    assert.match(wrong.body.detail, /2000/)
    const { paths } = await raised.api.call('GET', '/openapi.json')
    const { schema } = paths['/v1/topics/{topic}'].get.parameters[0]
    assert.equal(schema.maxLength, 2000)
    await client.endAsync()
    await native.leave()
  } finally {
    await raised.stop()
  }
})
