/** Topic rules: who may subscribe and publish to which topics, on every protocol. */

import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { createServer } from 'node:http'
import { after, before, test } from 'node:test'

import { io } from 'socket.io-client'

import { Device } from '../lib/device.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { connect as mqttClient } from '../lib/mqtt.mjs'
import { JWT_SECRET, KEY, Node, freePort } from '../lib/node.mjs'
import { until, within } from '../lib/until.mjs'

const SECRET_BYTES = Buffer.alloc(32, 7)
const SECRET = `whsec_${SECRET_BYTES.toString('base64')}`

let node, hook, mqttUrl
/** The webhook's answer, a function of the request. */
let answer = () => ({ allow: true })
const questions = []

before(async () => {
  hook = createServer(async (request, response) => {
    let body = ''
    for await (const part of request) body += part
    const { 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': signature } = request.headers
    const signed = createHmac('sha256', SECRET_BYTES).update(`${id}.${time}.${body}`).digest('base64')
    assert.equal(signature, `v1,${signed}`)
    const question = JSON.parse(body)
    questions.push(question)
    const said = answer(question)
    if (said === 'hang') return
    if (said === 'fail') return response.writeHead(500).end()
    response.setHeader('Content-Type', 'application/json').end(JSON.stringify(said))
  })
  await new Promise((resolve) => hook.listen(0, '127.0.0.1', resolve))
  const port = await freePort()
  mqttUrl = `mqtt://127.0.0.1:${port}`
  node = await Node.start({ args: ['--mqtt', `127.0.0.1:${port}`] })
})
after(async () => {
  hook?.closeAllConnections()
  hook?.close()
  await node?.stop()
})

const operator = async (method, path, body) => {
  const token = (await import('../lib/push.mjs')).operatorToken(node)
  return fetch(`http://127.0.0.1:${node.adminPort}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: body && JSON.stringify(body),
  })
}

const RULES = {
  subscribe: [
    { topic: 'user/{user}/#', allow: 'anyone' },
    { topic: 'team-{claim:team}', allow: 'anyone' },
    { topic: 'paid/#', allow: 'token' },
    { topic: 'room/+', allow: 'ask' },
    { topic: 'alerts/#', allow: 'server' },
    { topic: 'public/#', allow: 'anyone' },
  ],
  publish: [{ topic: 'chat/{user}/#', allow: 'anyone' }],
}

const setRules = async (rules = RULES, app = 'dev') => {
  const ask = { url: `http://127.0.0.1:${hook.address().port}/`, secret: SECRET, timeout: '1s', expires_in: '1m' }
  const answered = await operator('PUT', `/v1/apps/${app}/topic-rules`, { ...rules, ask })
  assert.equal(answered.status, 200, await answered.clone().text())
  return answered.json()
}

/** A provider's request that must succeed. */
const call = async (method, path, body) => {
  const answered = await fetch(`${node.http}${path}`, {
    method,
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: body && JSON.stringify(body),
  })
  assert.ok(answered.ok, `${method} ${path}: ${answered.status}`)
  return answered.json()
}

const register = async (device, user, topics = []) =>
  call('POST', '/v1/devices', { device, user, topics })

const jwt = (device, user, claims = {}) =>
  hs256(JWT_SECRET, { sub: user, device, exp: now() + 600, aud: 'dev', ...claims })

/** Subscribes and returns the denied topics. */
const refused = async (device, ...topics) => {
  device.send({ t: 'sub', topics })
  device.send({ t: 'ping' })
  const errors = []
  for (;;) {
    const frame = await device.next()
    if (frame.t === 'pong') return errors
    if (frame.t === 'error') errors.push(frame)
  }
}
const named = (errors) => errors.map(({ code, topic, reason }) => `${code} ${topic} ${reason}`)

test('rules are validated, shown without their secret, and kept by an update of the app', async () => {
  const shown = await setRules()
  assert.equal(shown.ask.secret, undefined)
  assert.equal(shown.ask.secret_set, true)
  const bad = await operator('PUT', '/v1/apps/dev/topic-rules', { subscribe: [{ topic: 'a/#/b', allow: 'anyone' }] })
  assert.equal(bad.status, 400)
  const problem = await bad.json()
  assert.equal(problem.field, 'subscribe[0].topic')
  assert.match(problem.detail, /at byte 2/)
  assert.equal((await operator('PATCH', '/v1/apps/dev', { client_publish: ['open/#'] })).status, 200)
  const kept = await (await operator('GET', '/v1/apps/dev/topic-rules')).json()
  assert.deepEqual(kept, shown)
  // A tenant manages its own rules with its admin key.
  const own = await fetch(`${node.http}/v1/apps/dev/topic-rules`, { headers: { authorization: `Bearer ${KEY}` } })
  assert.equal(own.status, 200)
})

test('a native device subscribes to allowed topics and receives nothing else', async () => {
  await setRules()
  const { token } = await register('n1', 'u1')
  const device = await Device.connect(node.ws, token)
  const errors = await refused(device, 'public/a', 'user/u1/x', 'user/u2/x', 'alerts/a', 'paid/x', 'team-red', 'other')
  assert.deepEqual(named(errors), [
    'topic_forbidden user/u2/x no_rule',
    'topic_forbidden alerts/a server_only',
    'topic_forbidden paid/x not_in_token',
    'topic_forbidden team-red no_rule',
    'topic_forbidden other no_rule',
  ])
  for (const topic of ['user/u2/x', 'other', 'alerts/a', 'public/a']) {
    await call('POST', '/v1/notifications', { to: { topic }, data: topic })
  }
  assert.equal((await device.msg()).data, 'public/a')
  await device.leave()
})

test('a JWT provides claims, listed topics and filters', async () => {
  await setRules()
  const token = jwt('j1', 'u1', { team: ['red', 'blue'], topics: ['paid/gold', 'paid/silver/#', 'other'] })
  const device = await Device.connect(node.ws, token)
  const told = await device.next()
  assert.deepEqual(named([told]), ['topic_forbidden other no_rule'], 'the claim does not override the rules')
  const errors = await refused(device, 'team-red', 'team-blue', 'team-green', 'paid/gold', 'paid/silver/x', 'paid/bronze')
  assert.deepEqual(named(errors), ['topic_forbidden team-green no_rule', 'topic_forbidden paid/bronze not_in_token'])
  await device.leave()
})

test('neither a user id nor a claim widens a rule', async () => {
  await setRules()
  for (const user of ['#', '+', '*', 'u1/x', 'u1/#']) {
    const device = await Device.connect(node.ws, jwt('w1', user, { team: '*' }))
    const errors = await refused(device, 'user/u1/x', 'user/u1', 'user/u2/y', 'team-red')
    assert.equal(errors.length, 4, user)
    await device.leave()
  }
})

test('SSE omits forbidden topics, including their retained messages', async () => {
  await setRules()
  const { token } = await register('s1', 'u1')
  for (const topic of ['secret/a', 'public/sse']) {
    await call('POST', '/v1/notifications', { to: { topic }, data: topic, retain: true })
  }
  const stream = await fetch(`${node.http}/v1/events?topics=secret/a,public/sse`, {
    headers: { authorization: `Bearer ${token}` },
  })
  assert.equal(stream.status, 200)
  let text = ''
  const reader = stream.body.getReader()
  await within(
    'the retained message',
    (async () => {
      while (!text.includes('"public/sse"')) text += new TextDecoder().decode((await reader.read()).value)
    })(),
  )
  await reader.cancel()
  assert.match(text, /event: error\ndata: .*topic_forbidden.*secret\/a/)
  assert.ok(!text.includes('"data":"secret/a"'), text)
})

test('Socket.IO reports the refusal in the acknowledgement', async () => {
  await setRules()
  const { token } = await register('i1', 'u1')
  const socket = io(node.http, { auth: { token }, transports: ['websocket'], reconnection: false })
  await within('connect', new Promise((resolve) => socket.once('connect', resolve)))
  const said = await within('the answer', socket.emitWithAck('subscribe', { topics: ['other', 'public/io'] }))
  assert.match(JSON.stringify(said), /topic_forbidden/)
  socket.close()
})

test('MQTT answers each filter, and a wildcard filter needs a rule that covers it', async () => {
  await setRules()
  const device = await register('m1', 'u1')
  const client = await mqttClient(mqttUrl, device)
  const codes = async (...filters) => {
    const answer = new Promise((resolve) => {
      const look = (packet) => packet.cmd === 'suback' && (client.off('packetreceive', look), resolve(packet.granted))
      client.on('packetreceive', look)
    })
    client.subscribe(filters, { qos: 1 }, () => {})
    return answer
  }
  assert.deepEqual(
    await codes('public/a', 'user/u1/#', 'user/#', '#', 'other', 'user/+/x', 'public/+'),
    [1, 1, 0x87, 0x87, 0x87, 0x87, 1],
  )
  assert.deepEqual(
    await codes('$share/g/public/a', '$share/g/user/u1/#', '$share/g/user/#', '$share/g/#', '$share/public/other'),
    [1, 1, 0x87, 0x87, 0x87],
    'of a share its filter counts',
  )
  await client.endAsync()
  const old = await mqttClient(mqttUrl, device, { protocolVersion: 4 })
  const packet = await new Promise((resolve) => {
    old.once('packetreceive', resolve)
    old.subscribe(['public/a', '#'], { qos: 1 }, () => {})
  })
  assert.deepEqual(packet.granted, [1, 0x80])
  await old.endAsync()
})

test('publishing follows its own rules and not client_publish', async () => {
  await setRules()
  const device = await register('p1', 'u1')
  const client = await mqttClient(mqttUrl, device)
  const publish = (topic) =>
    client.publishAsync(topic, 'x', { qos: 1 }).then(
      () => 0,
      (error) => error.code,
    )
  assert.equal(await publish('chat/u1/a'), 0)
  assert.equal(await publish('chat/u2/a'), 0x87)
  assert.equal(await publish('open/a'), 0x87, 'client_publish has no effect any more')
  await client.endAsync()
})

test('the consumer API and a registration by the device refuse forbidden topics', async () => {
  await setRules()
  const { token } = await register('a1', 'u1', ['alerts/by-the-server'])
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const put = async (topic) =>
    (await fetch(`${node.http}/v1/me/topics/${encodeURIComponent(topic)}`, { method: 'PUT', headers })).status
  assert.deepEqual([await put('public/a'), await put('other'), await put('alerts/a')], [204, 403, 403])
  const again = await fetch(`${node.http}/v1/devices`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ device: 'a1', topics: ['public/b', 'other'] }),
  })
  assert.equal(again.status, 403)
  assert.equal((await again.json()).field, 'topics[1]')
  const topics = async () => (await call('GET', '/v1/devices/a1')).topics
  assert.deepEqual(await topics(), ['alerts/by-the-server', 'public/a'])
  const device = await Device.connect(node.ws, token)
  await call('POST', '/v1/notifications', { to: { topic: 'alerts/by-the-server' }, data: 'kept' })
  assert.equal((await device.msg()).data, 'kept', 'an API key made it, and the rule is server')
  await device.leave()
})

test('a durable subscription without permission ends and delivers nothing', async () => {
  await operator('DELETE', '/v1/apps/dev/topic-rules')
  const { token } = await register('d1', 'u1', ['user/u2/mail', 'user/u1/mail'])
  for (const user of ['u2', 'u1']) {
    await call('POST', '/v1/notifications', { to: { topic: `user/${user}/mail` }, data: user })
  }
  await setRules()
  const device = await Device.connect(node.ws, token)
  assert.deepEqual(named([await device.next()]), ['topic_forbidden user/u2/mail no_rule'])
  assert.equal((await device.msg()).data, 'u1')
  await device.settle()
  assert.deepEqual((await call('GET', '/v1/devices/d1')).topics, ['user/u1/mail'])
  await device.leave()
})

test('a change of rules ends subscriptions of this app only, with a reason', async () => {
  await setRules()
  const { token } = await register('c1', 'u1', ['user/u1/durable'])
  const device = await Device.connect(node.ws, token)
  assert.deepEqual(await refused(device, 'public/live', 'user/u1/own'), [])
  const mqtt = await mqttClient(mqttUrl, await register('c2', 'u1'))
  await mqtt.subscribeAsync('public/#')
  const sharing = await mqttClient(mqttUrl, await register('c3', 'u1'))
  await sharing.subscribeAsync('$share/g/public/+')
  await setRules({ ...RULES, subscribe: [{ topic: 'user/{user}/own', allow: 'anyone' }] })
  const told = [await device.next(), await device.next()]
  assert.deepEqual(named(told).sort(), ['topic_revoked public/live no_rule', 'topic_revoked user/u1/durable no_rule'])
  await until('MQTT to be disconnected', () => mqtt.disconnectCode === 0x87 && sharing.disconnectCode === 0x87)
  await until('the durable subscription to end', async () => {
    const { topics } = await call('GET', '/v1/devices/c1')
    return topics.length === 0
  })
  await call('POST', '/v1/notifications', { to: { topic: 'public/live' }, data: 'no' })
  await call('POST', '/v1/notifications', { to: { topic: 'user/u1/own' }, data: 'yes' })
  assert.equal((await device.msg()).data, 'yes')
  await device.leave()
  await sharing.endAsync(true)
  await mqtt.endAsync(true)
})

test('a webhook decides, its answer is cached, and a missing answer denies', async () => {
  await setRules()
  const { token } = await register('k1', 'u1')
  const device = await Device.connect(node.ws, token)
  const ask = async (topic) => {
    device.send({ t: 'sub', topics: [topic] })
    await call('POST', '/v1/notifications', { to: { devices: ['k1'] }, data: `mark ${topic}` })
    const frames = []
    for (;;) {
      const frame = await device.next()
      if (frame.t === 'msg') {
        if (frame.data === `mark ${topic}`) break
        continue
      }
      frames.push(frame)
    }
    return frames
  }
  questions.length = 0
  answer = ({ topic }) => ({ allow: topic === 'room/open', expires_in: '1m' })
  await ask('room/open')
  await until('the subscription', async () => (await call('GET', '/v1/topics/room%2Fopen')).connected === 1)
  assert.deepEqual(questions[0], {
    app: 'dev',
    device: 'k1',
    user: 'u1',
    action: 'subscribe',
    topic: 'room/open',
    protocol: 'native',
  })
  device.send({ t: 'unsub', topics: ['room/open'] })
  await ask('room/open')
  assert.equal(questions.length, 1, 'the answer was cached')

  const denied = async (topic) => {
    device.send({ t: 'sub', topics: [topic] })
    for (;;) {
      const frame = await device.next()
      if (frame.t === 'error') return named([frame])[0]
    }
  }
  assert.equal(await denied('room/closed'), 'topic_forbidden room/closed webhook')
  answer = () => 'fail'
  assert.equal(await denied('room/fail'), 'topic_forbidden room/fail unanswered')
  answer = () => 'hang'
  const waits = denied('room/hang')
  // Another app does not wait for it.
  const made = await operator('POST', '/v1/apps', { name: 'other' })
  assert.equal(made.status, 201)
  const key = (await (await operator('POST', '/v1/apps/other/keys', { name: 'k', scopes: ['devices', 'publish'] })).json()).key
  const theirs = await fetch(`${node.http}/v1/devices`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ device: 'x1' }),
  })
  const other = await Device.connect(node.ws, (await theirs.json()).token)
  assert.deepEqual(await refused(other, 'anything'), [])
  await other.leave()
  assert.equal(await waits, 'topic_forbidden room/hang unanswered')
  answer = () => ({ allow: true })
  await device.leave()
})

test('a decision is explained', async () => {
  await setRules()
  await register('e1', 'u1')
  const allowed = await node.cli('topics', 'may', '--device', 'e1', '--topic', 'user/u1/x', '--json')
  assert.equal(allowed.code, 0, allowed.stderr)
  assert.deepEqual(JSON.parse(allowed.stdout).rule, { number: 0, topic: 'user/{user}/#', allow: 'anyone' })
  const denied = await node.cli('topics', 'may', '--device', 'e1', '--topic', 'open/a', '--publish', '--json')
  assert.equal(denied.code, 1)
  assert.equal(JSON.parse(denied.stdout).reason, 'no_rule')
})
