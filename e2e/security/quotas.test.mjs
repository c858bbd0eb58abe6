/**
 * Every quota, over HTTP and each protocol. The app `a` reaches its limits, the app `dev` is not
 * affected; limits change at run time and survive a restart.
 */

import assert from 'node:assert/strict'
import { after, before, beforeEach, test } from 'node:test'
import { client as xmppClient, xml } from '@xmpp/client'
import { io } from 'socket.io-client'
import WebSocket from 'ws'

import { api } from '../lib/api.mjs'
import { Device } from '../lib/device.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { connect as mqttClient } from '../lib/mqtt.mjs'
import { Node, cli, freePort } from '../lib/node.mjs'
import { DevPush, operatorToken, unique } from '../lib/push.mjs'
import { until, within } from '../lib/until.mjs'

const SECRET = 'a-secret-of-at-least-thirty-two-bytes'
// The XMPP client requires this global; Node.js has one from version 22 on.
globalThis.WebSocket ??= WebSocket
let node, a, mqttUrl

const operate = (method, path, body) => operateAt(node, method, path, body)
const operateAt = async (at, method, path, body) => {
  const response = await fetch(`http://127.0.0.1:${at.adminPort}${path}`, {
    method,
    headers: { authorization: `Bearer ${operatorToken(at)}`, 'content-type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body),
  })
  const text = await response.text()
  return { status: response.status, headers: response.headers, body: text && JSON.parse(text) }
}
const limit = async (limits) => {
  const { status, body } = await operate('PUT', '/v1/apps/a/quotas', limits)
  assert.equal(status, 200, JSON.stringify(body))
}
const quota = async (name, app = 'a') =>
  (await operate('GET', `/v1/apps/${app}/quotas`)).body.quotas.find((one) => one.quota === name)

/** The answer of a request that a quota refuses. */
function refused(answer, name) {
  assert.equal(answer.status, 429, answer.text ?? JSON.stringify(answer.body))
  assert.equal(answer.body.code, 'quota_exceeded')
  assert.match(answer.body.detail, new RegExp(`\\b${name}\\b`))
  assert.ok(Number(answer.headers.get('retry-after')) >= 1, answer.headers.get('retry-after'))
}
const post = (path, body, options) => a.raw('POST', path, { body, ...options })
const stored = (target, more = {}) => ({ to: target, when: 'stored', data: 1, ...more })

before(async () => {
  const mqttPort = await freePort()
  mqttUrl = `mqtt://127.0.0.1:${mqttPort}`
  node = await Node.start({ args: ['--mqtt', `127.0.0.1:${mqttPort}`] })
  const made = await operate('POST', '/v1/apps', { name: 'a', jwt_secret: SECRET, client_publish: ['open/#'] })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  const scopes = ['publish', 'devices', 'read', 'admin']
  const { body } = await operate('POST', '/v1/apps/a/keys', { name: 'all', scopes })
  a = api(node.http, body.key)
})
beforeEach(() => limit({}))
after(() => node?.stop())

test('only an operator changes quotas; an admin key reads those of its own app', async () => {
  const own = await a.raw('GET', '/v1/apps/a/quotas')
  assert.equal(own.status, 200)
  assert.equal(own.body.quotas.length, 15)
  assert.equal((await a.raw('GET', '/v1/apps/dev/quotas')).status, 404)
  assert.equal((await a.raw('GET', '/v1/apps/a/quotas', { token: null })).status, 401)
  for (const method of ['PUT', 'PATCH', 'DELETE']) {
    const body = method === 'DELETE' ? undefined : {}
    assert.equal((await a.raw(method, '/v1/apps/a/quotas', { body })).status, 405)
  }
  for (const wrong of [{ device: 1 }, { devices: -1 }, { devices: '1' }, { pushes_per_second: 1e9 + 1 }, { devices: null }]) {
    assert.equal((await operate('PUT', '/v1/apps/a/quotas', wrong)).status, 400, JSON.stringify(wrong))
  }
  assert.equal((await operate('PUT', '/v1/apps/none/quotas', {})).status, 404)
})

test('limits are set, changed and cleared at run time, over HTTP and with the command line', async () => {
  await limit({ devices: 5 })
  await operate('PATCH', '/v1/apps/a/quotas', { topics: 'unlimited', keys: 7 })
  assert.deepEqual([(await quota('devices')).limit, (await quota('topics')).source, (await quota('keys')).limit], [5, 'app', 7])
  assert.equal((await operate('PATCH', '/v1/apps/a', { client_publish: ['open/#'] })).status, 200)
  assert.equal((await quota('devices')).limit, 5, 'an update of the app keeps its quotas')
  const set = await cli(['apps', 'quotas', 'set', 'a', 'devices=6', 'keys=default', '--data-dir', node.data])
  assert.equal(set.code, 0, set.stderr)
  assert.match(set.stdout, /devices\s+6\s+app/)
  const shown = await cli(['apps', 'quotas', 'show', 'a', '--json', '--data-dir', node.data])
  assert.equal(JSON.parse(shown.stdout).quotas.find((one) => one.quota === 'keys').source, 'default')
  assert.equal((await cli(['apps', 'quotas', 'clear', 'a', '--data-dir', node.data])).code, 0)
  assert.equal((await operate('DELETE', '/v1/apps/a/quotas')).status, 204)
  assert.equal((await quota('devices')).limit, null)
  assert.notEqual((await cli(['apps', 'quotas', 'set', 'a', 'devices', '--data-dir', node.data])).code, 0)
})

test('devices: new ones are refused, known ones are updated, deleted ones free quota', async () => {
  const before = (await quota('devices')).used
  await limit({ devices: before + 2 })
  const [first, second] = [await a.register({ device: unique('d') }), await a.register()]
  refused(await post('/v1/devices', {}), 'devices')
  await a.register({ device: first.device, locale: 'de' })
  const lines = await a.registerBatch([{ device: unique('d') }, { device: second.device }])
  assert.equal(lines[0].error.code, 'quota_exceeded')
  assert.equal(lines[1].device, second.device)
  const token = hs256(SECRET, { sub: 'u', device: unique('jwt'), exp: now() + 60, aud: 'a' })
  refused(await a.raw('GET', '/v1/me', { token }), 'devices')
  const socket = Device.open(node.ws, token)
  assert.equal((await socket.frame('error')).code, 'quota_exceeded')
  assert.equal((await socket.ended()).code, 4012)
  await a.call('DELETE', `/v1/devices/${second.device}`)
  await until('the room of a deleted device', async () => (await post('/v1/devices', {})).status === 201)
})

test('publishes per second: 429 for single requests and batch lines, and the other app continues', async () => {
  await limit({ publishes_per_second: 3 })
  const answers = []
  for (let n = 0; n < 20; n++) answers.push(await post('/v1/notifications', { to: { topic: 'open/p' }, data: n }))
  assert.equal(answers[0].status, 202)
  refused(answers.find((answer) => answer.status !== 202), 'publishes_per_second')
  const lines = await a.publishBatch(Array.from({ length: 40 }, () => ({ to: { topic: 'open/p' }, data: 1 })))
  assert.ok(lines.some((line) => line.error?.code === 'quota_exceeded'))
  for (let n = 0; n < 20; n++) await node.api.publish({ to: { topic: 'open/p' }, data: n })
  const metrics = await (await node.admin('/metrics')).text()
  assert.match(metrics, /noroshi_quota_refused_total\{app="a",quota="publishes_per_second"\} [1-9]/)
  assert.doesNotMatch(metrics, /noroshi_quota_refused_total\{app="dev"/)
  assert.ok((await quota('publishes_per_second')).refused > 0)
  await until('a token', async () => (await post('/v1/notifications', { to: { topic: 'open/p' }, data: 1 })).status === 202)
})

test('deliveries per second: a debt refuses publishes until it is repaid', async () => {
  const { token } = await a.register({ topics: ['open/deliveries'] })
  const device = await Device.connect(node.ws, token)
  await limit({ deliveries_per_second: 2 })
  const publish = (n) => post('/v1/notifications', { to: { topic: 'open/deliveries' }, data: n })
  const over = await until('the debt', async () => {
    const answer = await publish(1)
    if (answer.status === 202) await device.msg()
    return answer.status === 202 ? undefined : answer
  })
  refused(over, 'deliveries_per_second')
  await until('the debt to be repaid', async () => (await publish(2)).status === 202)
  await device.leave()
})

test('inbox rows and bytes: a notification above them is refused as a whole', async () => {
  const user = unique('u')
  for (let n = 0; n < 3; n++) await a.register({ user })
  const [rows, bytes] = [(await quota('inbox_rows')).used, (await quota('inbox_bytes')).used]
  await limit({ inbox_rows: rows + 4 })
  await a.publish(stored({ users: [user] }))
  refused(await post('/v1/notifications', stored({ users: [user] })), 'inbox_rows')
  assert.equal((await quota('inbox_rows')).used, rows + 3, 'nothing of it was accepted')
  const keyed = { headers: { 'idempotency-key': unique('k') } }
  refused(await post('/v1/notifications', stored({ users: [user] }), keyed), 'inbox_rows')
  await limit({ inbox_bytes: bytes + 3 + 30 })
  refused(await post('/v1/notifications', stored({ users: [user] }, { data: 'x'.repeat(40) })), 'inbox_bytes')
  await a.publish(stored({ users: [user] }))
  await limit({})
  const accepted = await post('/v1/notifications', stored({ users: [user] }), keyed)
  assert.equal(accepted.status, 202, 'a refused request did not use up its key')
})

test('retained bytes: a larger message is refused, a replacement accepted', async () => {
  const retain = (topic, length) =>
    post('/v1/notifications', { to: { topic }, retain: true, data: 'x'.repeat(length) })
  assert.equal((await retain('open/retained', 100)).status, 202)
  const { used } = await quota('retained_bytes')
  await limit({ retained_bytes: used + 50 })
  refused(await retain('open/retained-2', 100), 'retained_bytes')
  assert.equal((await retain('open/retained', 100)).status, 202)
  assert.equal((await retain('open/retained-2', 10)).status, 202)
})

test('topics: known ones are accepted, new ones refused from every source', async () => {
  const device = await a.register()
  await a.publish({ to: { topic: 'open/known' }, data: 1 })
  await limit({ topics: (await quota('topics')).used + 1 })
  await a.publish({ to: { topic: 'open/known' }, data: 1 })
  await a.publish({ to: { topic: unique('open/new') }, data: 1 })
  refused(await post('/v1/notifications', { to: { topic: unique('open/new') }, data: 1 }), 'topics')
  refused(await a.raw('PUT', `/v1/me/topics/${unique('new')}`, { token: device.token }), 'topics')
  refused(await post('/v1/devices', { topics: [unique('new')] }), 'topics')
  await a.me(device.token).subscribe('open/known')
})

test('subscriptions per device, over HTTP, WebSocket, MQTT and XMPP', async () => {
  const device = await a.register({ topics: ['s/1', 's/2'] })
  await limit({ subscriptions_per_device: 2 })
  refused(await a.raw('PUT', '/v1/me/topics/s%2F3', { token: device.token }), 'subscriptions_per_device')
  refused(await post('/v1/devices', { topics: ['s/1', 's/2', 's/3'] }), 'subscriptions_per_device')
  assert.equal((await a.raw('PUT', '/v1/me/topics/s%2F1', { token: device.token })).status, 204)
  const socket = await Device.connect(node.ws, device.token)
  socket.send({ t: 'sub', topics: ['s/3'] })
  assert.equal((await socket.frame('error')).code, 'quota_exceeded')
  await socket.leave()
  const stream = await fetch(`${node.http}/v1/events?topics=s%2F3`, { headers: { authorization: `Bearer ${device.token}` } })
  refused({ status: stream.status, headers: stream.headers, body: await stream.json() }, 'subscriptions_per_device')

  const fresh = await a.register()
  const mqtt = await mqttClient(mqttUrl, fresh)
  const granted = await mqtt.subscribeAsync(['s/1', 's/2', 's/3'], { qos: 1 }).catch((error) => error)
  assert.match(String(granted.message ?? JSON.stringify(granted)), /151|97|[Qq]uota|128/)
  await mqtt.endAsync()

  const xmpp = await xmppConnect(await a.register())
  const subscribe = (topic) =>
    xmpp.iqCaller.request(pubsub('set', xml('subscribe', { node: topic, jid: xmpp.online.bare().toString() })))
  await subscribe('s/1')
  await subscribe('s/2')
  await assert.rejects(subscribe('s/3'), /policy-violation/)
  await xmpp.stop()
})

test('a shared subscription refused by a quota receives no messages', async () => {
  const lasting = { clean: false, properties: { sessionExpiryInterval: 3600 } }
  const [full, other] = [await a.register({ topics: ['s/1', 's/2'] }), await a.register()]
  await limit({ subscriptions_per_device: 2 })
  const refusedOne = await mqttClient(mqttUrl, full, lasting)
  const granted = refusedOne.subscribeAsync(['$share/g/refused/+', 's/3'], { qos: 1 })
  await assert.rejects(granted)
  const member = await mqttClient(mqttUrl, other)
  await member.subscribeAsync('$share/g/refused/+', { qos: 1 })
  for (let n = 0; n < 10; n++) await post('/v1/notifications', stored({ topic: 'refused/x' }))
  await until('all of them', () => member.received.length === 10)
  assert.equal(refusedOne.received.length, 0)
  await refusedOne.endAsync()
  await member.endAsync()
})

test('quotas apply to publishing over MQTT and XMPP', async () => {
  const [first, second] = [await a.register(), await a.register()]
  const mqtt = await mqttClient(mqttUrl, first)
  const xmpp = await xmppConnect(second)
  await limit({ publishes_per_second: 0 })
  const error = await mqtt.publishAsync('open/m', 'x', { qos: 1 }).then(() => undefined, (error) => error)
  assert.equal(error?.code, 0x97, String(error))
  const json = xml('json', { xmlns: 'urn:xmpp:json:0' }, '1')
  const publish = xmpp.iqCaller.request(pubsub('set', xml('publish', { node: 'open/x' }, xml('item', {}, json))))
  await assert.rejects(publish, /resource-constraint/)
  await mqtt.endAsync()
  await xmpp.stop()
})

test('connections, over every protocol; a reconnecting device reuses the place of its old connection', async () => {
  const [first, second] = [await a.register(), await a.register()]
  const open = await Device.connect(node.ws, first.token)
  await limit({ connections: 1 })
  const socket = Device.open(node.ws, second.token)
  const error = await socket.frame('error')
  assert.equal(error.code, 'quota_exceeded')
  const end = await socket.ended()
  assert.deepEqual([end.reason, end.reconnect, end.code], ['quota_exceeded', true, 4012])
  assert.ok(end.after_ms >= 5_000)

  const stream = await fetch(`${node.http}/v1/events`, { headers: { authorization: `Bearer ${second.token}` } })
  refused({ status: stream.status, headers: stream.headers, body: await stream.json() }, 'connections')

  for (const [protocolVersion, code] of [[5, 0x97], [4, 3]]) {
    const mqtt = await mqttClient(mqttUrl, second, { protocolVersion }).then(() => undefined, (error) => error)
    assert.match(String(mqtt?.code ?? mqtt), new RegExp(`^${code}$|${code === 3 ? 'unavailable' : 'Quota'}`), `MQTT ${protocolVersion}: ${mqtt}`)
  }
  const sio = io(node.http, { auth: { token: second.token }, forceNew: true, reconnection: false, transports: ['websocket'] })
  const refusal = await within('connect_error', new Promise((resolve) => sio.once('connect_error', resolve)))
  assert.match(JSON.stringify([refusal.message, refusal.data]), /quota/)
  sio.close()
  await assert.rejects(xmppConnect(second))

  const again = await Device.connect(node.ws, first.token)
  assert.equal((await open.ended()).reason, 'replaced')
  const other = await node.api.register()
  await (await Device.connect(node.ws, other.token)).leave()
  await again.leave()
  await until('the place to be free', async () => (await quota('connections')).used === 0)
  await (await Device.connect(node.ws, second.token)).leave()
})

test('connects per second', async () => {
  const { token } = await a.register()
  await limit({ connects_per_second: 1 })
  await until('a refusal', async () => {
    const socket = Device.open(node.ws, token)
    const frame = await socket.next()
    socket.socket.terminate()
    return frame.t === 'error' && frame.code === 'quota_exceeded'
  })
  assert.ok((await quota('connects_per_second')).refused > 0)
})

test('campaigns, endpoints, experiments and keys', async () => {
  const campaign = { audience: { everyone: true }, message: { data: 1 }, start_at: '2099-01-01T00:00:00Z' }
  await limit({ campaigns: 1, endpoints: 1, experiments: 1, keys: (await quota('keys')).used ?? 1 })
  const { id } = await a.call('POST', '/v1/campaigns', { body: campaign, status: 201 })
  refused(await post('/v1/campaigns', campaign), 'campaigns')
  const draft = await a.call('POST', '/v1/campaigns', { body: { ...campaign, start: false }, status: 201 })
  refused(await post(`/v1/campaigns/${draft.id}/start`), 'campaigns')
  await a.call('POST', `/v1/campaigns/${id}/abort`)
  await until('the place of the aborted one', async () => (await post(`/v1/campaigns/${draft.id}/start`)).status === 200)
  await a.call('POST', `/v1/campaigns/${draft.id}/abort`)

  const { token } = await a.register()
  const endpoint = await a.call('POST', '/v1/me/endpoints', { token, body: {}, status: 201 })
  refused(await post('/v1/me/endpoints', {}, { token }), 'endpoints')
  await a.call('DELETE', `/v1/me/endpoints/${endpoint.id}`, { token })

  const experiment = { variants: [{ name: 'x', weight: 1 }, { name: 'y', weight: 1 }] }
  const put = (name) => a.raw('PUT', `/v1/apps/a/experiments/${name}`, { body: experiment })
  assert.equal((await put('one')).status, 200)
  assert.equal((await put('one')).status, 200, 'it may be changed')
  refused(await put('two'), 'experiments')
  await a.call('DELETE', '/v1/apps/a/experiments/one')

  refused(await post('/v1/apps/a/keys', { name: 'more', scopes: ['read'] }), 'keys')
})

test('a lowered limit removes nothing, and limits survive a restart', async () => {
  const kept = await a.register()
  await limit({ devices: 0, keys: 0 })
  assert.equal((await a.raw('GET', '/v1/me', { token: kept.token })).status, 200)
  await a.publish(stored({ devices: [kept.device] }))
  await node.drain()
  await node.spawn()
  assert.equal((await quota('devices')).limit, 0)
  refused(await post('/v1/devices', {}), 'devices')
  await node.api.register()
  assert.equal((await a.me(kept.token).inbox()).total, 1)
})

test('the configuration sets defaults that an app can override', async () => {
  const limited = await Node.start({ args: ['--set', 'quotas.devices=1'] })
  try {
    await limited.api.register()
    const over = await limited.api.raw('POST', '/v1/devices', { body: {} })
    refused(over, 'devices')
    const set = await cli(['apps', 'quotas', 'set', 'dev', 'devices=unlimited', '--data-dir', limited.data])
    assert.equal(set.code, 0, set.stderr)
    await limited.api.register()
  } finally {
    await limited.stop()
  }
})

test('pushes per second: excess pushes wait, and those of another app continue', async () => {
  const push = await DevPush.start()
  const pushing = await push.node({ services: ['fcm'] })
  try {
    await operateAt(pushing, 'POST', '/v1/apps', { name: 'b' })
    const scopes = ['publish', 'devices']
    const { body } = await operateAt(pushing, 'POST', '/v1/apps/b/keys', { name: 'all', scopes })
    const made = await operateAt(pushing, 'POST', '/v1/apps/b/push', push.info.credentials.fcm)
    assert.equal(made.status, 201, JSON.stringify(made.body))
    const [limited, other] = [pushing.api, api(pushing.http, body.key)]
    const tokens = await push.tokens('fcm', 22)
    const [late, marker] = tokens.splice(20)
    for (const push_token of tokens) await limited.register({ user: 'many', push_token })
    await limited.register({ user: 'late', push_token: late })
    await other.register({ user: 'marker', push_token: marker })
    await operateAt(pushing, 'PUT', '/v1/apps/dev/quotas', { pushes_per_second: 1 })
    const always = (user) => ({ to: { users: [user] }, notification: { title: 'x' }, push: { mode: 'always' } })
    // More than a second's worth is sent at once, and must be repaid: 19 seconds.
    await limited.publish(always('many'))
    await until('the first', async () => (await push.accepted('fcm')).length === 20)
    await limited.publish(always('late'))
    await other.publish(always('marker'))
    await until('the other app', async () => (await push.accepted('fcm')).length === 21)
    const shown = await operateAt(pushing, 'GET', '/v1/apps/dev/quotas')
    assert.ok(shown.body.quotas.find((one) => one.quota === 'pushes_per_second').used > 1, 'there is a debt')
    await operateAt(pushing, 'DELETE', '/v1/apps/dev/quotas')
    await until('the waiting push', async () => (await push.accepted('fcm')).length === 22)
  } finally {
    await pushing.stop()
    await push.stop()
  }
})

const pubsub = (type, child) =>
  xml('iq', { type, to: 'pubsub.localhost' }, xml('pubsub', { xmlns: 'http://jabber.org/protocol/pubsub' }, child))

async function xmppConnect(device) {
  const xmpp = xmppClient({ service: `${node.ws}/xmpp`, domain: 'localhost', username: device.device, password: device.token })
  xmpp.reconnect.stop()
  xmpp.timeout = 5_000
  xmpp.on('error', () => {})
  const failed = new Promise((_, reject) => {
    xmpp.once('error', reject)
    xmpp.once('offline', () => reject(new Error('offline')))
  })
  failed.catch(() => {})
  const online = new Promise((resolve) => xmpp.once('online', resolve))
  xmpp.start().catch(() => {})
  xmpp.online = await within('the client to be online', Promise.race([online, failed]))
  return xmpp
}
