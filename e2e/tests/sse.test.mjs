/** Server-sent events with the npm package `eventsource` and with `curl -N`. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { after, before, test } from 'node:test'
import { EventSource } from 'eventsource'

import { Device } from '../lib/device.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { JWT_SECRET, Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

/** An EventSource that collects its messages. */
function listen(base, token, query = '') {
  const heads = []
  const source = new EventSource(`${base}/v1/events?token=${token}${query}`, {
    fetch: async (url, init) => {
      heads.push(init.headers)
      return fetch(url, init)
    },
  })
  const received = []
  source.addEventListener('msg', (event) => received.push({ lastEventId: event.lastEventId, ...JSON.parse(event.data) }))
  return { source, received, heads }
}

const receives = (listener, count) => until(`${count} messages over SSE`, () => listener.received.length >= count)

test('an EventSource receives messages to its user and topics, and stored ones', async () => {
  const { token } = await node.api.register({ user: 'streamer' })
  await node.api.publish({ to: { users: ['streamer'] }, data: 'waited' })
  const listener = listen(node.http, token, '&topics=sse-a,sse-b')
  await receives(listener, 1)
  await node.api.publish({ to: { users: ['streamer'] }, when: 'connected', notification: { title: '狼煙\nsignal' }, data: 'direct' })
  await node.api.publish({ to: { topic: 'sse-b' }, data: 'topic' })
  await node.api.publish({ to: { topic: 'sse-c' }, data: 'not subscribed' })
  await node.api.publish({ to: { users: ['streamer'] }, data: 'last' })
  await receives(listener, 4)
  assert.deepEqual(listener.received.map((msg) => msg.data), ['waited', 'direct', 'topic', 'last'])
  assert.deepEqual(listener.received[1].notification, { title: '狼煙\nsignal' })
  assert.equal(listener.received[2].topic, 'sse-b')
  assert.equal(typeof listener.received[2].offset, 'number')
  assert.ok(listener.received.every((msg) => msg.t === 'msg' && msg.sent_at))
  listener.source.close()
})

test('after a break it reconnects with Last-Event-ID without loss or duplicates', async () => {
  const own = await Node.start()
  const { token } = await own.api.register({ user: 'reconnector' })
  const send = (data) => own.api.publish({ to: { users: ['reconnector'] }, data })
  const sendTopic = (data) => own.api.publish({ to: { topic: 'sse-log' }, data })
  const listener = listen(own.http, token, '&topics=sse-log')
  await until('the stream to be open', () => listener.source.readyState === EventSource.OPEN)
  for (let n = 0; n < 3; n++) await send(n)
  await sendTopic('topic 0')
  await receives(listener, 4)
  const last = listener.received.at(-1).lastEventId
  assert.ok(last, 'stored messages have an id to resume from')

  await own.kill()
  await own.spawn()
  for (let n = 3; n < 6; n++) await send(n)
  await sendTopic('topic 1')
  await receives(listener, 8)
  await send('end')
  await receives(listener, 9)
  assert.deepEqual(listener.received.map((msg) => msg.data), [0, 1, 2, 'topic 0', 3, 4, 5, 'topic 1', 'end'])
  const resumed = listener.heads.filter((headers) => headers['Last-Event-ID'] === last)
  assert.ok(resumed.length > 0, JSON.stringify(listener.heads))
  listener.source.close()
  await own.stop()
})

test('notifications acknowledged over HTTP do not repeat on the next stream', async () => {
  const { device, token } = await node.api.register()
  const send = (data, when = 'stored') => node.api.publish({ to: { devices: [device] }, data, when })
  await send('one')
  await send('two')
  const first = listen(node.http, token)
  await receives(first, 2)
  await node.api.me(token).ack(first.received[0].id)
  first.source.close()
  const second = listen(node.http, token)
  await receives(second, 1)
  assert.deepEqual(second.received.map((msg) => msg.data), ['two'])
  second.source.close()
})

test('curl -N shows the stream', async () => {
  const { device, token } = await node.api.register({ topics: ['curl'] })
  const headers = ['-H', `Authorization: Bearer ${token}`]
  const curl = spawn('curl', ['-sS', '-N', '-i', ...headers, `${node.http}/v1/events`], { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  curl.stdout.on('data', (chunk) => (text += chunk))
  try {
    await until('the head of the stream', () => /^retry: \d+$/m.test(text))
    assert.match(text, /^HTTP\/1\.1 200 /)
    assert.match(text, /^content-type: text\/event-stream/im)
    const { id } = await node.api.publish({ to: { devices: [device] }, data: { n: 1 } })
    await until('the event', () => text.includes(`"id":"${id}"`) && text.endsWith('\n\n'))
    const event = text.replaceAll('\r\n', '\n').split('\n\n').find((part) => part.includes(id))
    const [kind, position, data] = event.split('\n')
    assert.equal(kind, 'event: msg')
    assert.match(position, /^id: ./)
    assert.deepEqual(JSON.parse(data.replace(/^data: /, '')).data, { n: 1 })
  } finally {
    curl.kill()
  }
})

test('a stream ends with an event when its token expires', async () => {
  const token = hs256(JWT_SECRET, { sub: 'sse-expiring', device: 'sse-expiring', exp: now() + 2 })
  const { source } = listen(node.http, token)
  let told
  source.addEventListener('close', (event) => {
    told = JSON.parse(event.data)
    source.close()
  })
  await until('the stream to end', () => told)
  assert.deepEqual([told.reason, told.reconnect], ['expired', false])
})

test('a stream without a valid token is rejected with a problem', async () => {
  for (const token of [null, 'nonsense']) {
    const answer = await node.api.raw('GET', '/v1/events', { token })
    assert.equal(answer.status, 401)
    assert.equal(answer.type, 'application/problem+json')
  }
})

test('a stream and a socket of one device share a session: the newer wins', async () => {
  const { token } = await node.api.register({ user: 'both' })
  const first = listen(node.http, token)
  await until('the first stream', () => first.source.readyState === EventSource.OPEN)
  let told
  first.source.addEventListener('close', (event) => {
    told = JSON.parse(event.data)
    first.source.close()
  })
  const second = await Device.connect(node.ws, token)
  await until('the close event of the first stream', () => told)
  assert.deepEqual([told.t, told.reason, told.reconnect], ['close', 'replaced', false])
  await second.leave()
})
