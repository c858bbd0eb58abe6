/** The provider's API: answers, errors, idempotency, cancelling, state, trace, batches. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

const inbox = async (token) => (await node.api.me(token).inbox()).messages
const traced = async (id, device) => (await node.api.trace(id, device)).steps.map((step) => step.outcome)

test('a repeated idempotency key returns the first answer and sends once; another body is a conflict', async () => {
  const { token } = await node.api.register({ user: 'once' })
  const body = { to: { users: ['once'] }, data: 'once' }
  const headers = { 'idempotency-key': 'order-4711' }
  const answers = await Promise.all(Array.from({ length: 5 }, () => node.api.publish(body, headers)))
  assert.equal(new Set(answers.map((answer) => JSON.stringify(answer))).size, 1, JSON.stringify(answers))
  assert.deepEqual(await node.api.publish(body, headers), answers[0])
  assert.equal((await inbox(token)).length, 1)

  const conflict = await node.api.raw('POST', '/v1/notifications', { body: { ...body, data: 'twice' }, headers })
  assert.equal(conflict.status, 409)
  assert.equal(conflict.type, 'application/problem+json')
  assert.equal((await inbox(token)).length, 1)

  const other = await node.api.publish(body, { 'idempotency-key': 'order-4712' })
  assert.notEqual(other.id, answers[0].id)
})

test('an idempotency key holds over a restart', async () => {
  const own = await Node.start()
  const { token } = await own.api.register({ user: 'once' })
  const body = { to: { users: ['once'] }, data: 1 }
  const first = await own.api.publish(body, { 'idempotency-key': 'k' })
  await own.kill()
  await own.spawn()
  assert.deepEqual(await own.api.publish(body, { 'idempotency-key': 'k' }), first)
  assert.equal((await own.api.me(token).inbox()).messages.length, 1)
  await own.stop()
})

test('a cancelled notification is not delivered, and its state shows this', async () => {
  const { device, token } = await node.api.register({ user: 'spared' })
  const { id } = await node.api.publish({ to: { users: ['spared'] }, data: 'mistake' })
  const kept = await node.api.publish({ to: { users: ['spared'] }, data: 'right' })
  await node.api.cancel(id)
  const client = await Device.connect(node.ws, token)
  assert.equal((await client.msg()).id, kept.id)
  await client.leave()
  assert.equal((await node.api.notification(id)).state, 'cancelled')
  assert.ok((await traced(id, device)).includes('cancelled'))
  assert.equal((await node.api.raw('DELETE', '/v1/notifications/01890a5d-ac96-774b-bcce-b302099a8057')).status, 404)
})

test('a cancelled topic message is not recovered', async () => {
  const { token } = await node.api.register({ topics: ['corrections'] })
  const { id } = await node.api.publish({ to: { topic: 'corrections' }, data: 'mistake', retain: true })
  await node.api.publish({ to: { topic: 'corrections' }, data: 'right' })
  await node.api.cancel(id)
  const client = await Device.connect(node.ws, token)
  assert.equal((await client.msg()).data, 'right')
  await client.leave()
})

test('the state of a notification counts its outcome on every device', async () => {
  const [there, idle, away] = [
    await node.api.register({ user: 'counted' }),
    await node.api.register({ user: 'counted' }),
    await node.api.register({ user: 'counted' }),
  ]
  const first = await Device.connect(node.ws, there.token)
  const second = await Device.connect(node.ws, idle.token)
  second.send({ t: 'presence', state: 'idle' })
  await second.settle()

  const stored = await node.api.publish({ to: { users: ['counted', 'nobody'] }, data: 'stored' })
  first.ack((await first.msg()).id)
  await second.msg()
  const counts = await until('all to be counted', async () => {
    const { state, counts } = await node.api.notification(stored.id)
    return state === 'pending' && counts.acked === 1 && counts.written === 2 && counts
  })
  assert.deepEqual(counts, { kept: 3, written: 2, acked: 1, unknown: 1 })

  const users = ['counted', 'counted-away']
  await node.api.register({ user: 'counted-away' })
  const active = await node.api.publish({ to: { users }, when: 'active', data: 'active' })
  await until('active, idle and offline users to be distinguished', async () => {
    const { state, counts } = await node.api.notification(active.id).catch(() => ({ counts: {} }))
    return state === 'done' && counts.written === 1 && counts.inactive === 1 && counts.offline === 1
  })

  second.ack(stored.id)
  await node.api.me(away.token).ack(stored.id)
  await until('it to be done', async () => (await node.api.notification(stored.id)).state === 'done')
  assert.equal((await node.api.raw('GET', '/v1/notifications/01890a5d-ac96-774b-bcce-b302099a8057')).status, 404)
  await first.leave()
  await second.leave()
})

test('the trace of a device lists its steps in order', async () => {
  const { device, token } = await node.api.register({ user: 'story' })
  const { id } = await node.api.publish({ to: { users: ['story'] }, data: 'x' })
  const client = await Device.connect(node.ws, token)
  client.ack((await client.msg()).id)
  await until('the acknowledgement in the trace', async () => (await traced(id, device)).includes('acked'))
  const { steps } = await node.api.trace(id, device)
  assert.deepEqual(steps.map((step) => step.outcome), ['kept', 'written', 'acked'])
  const times = steps.map((step) => Date.parse(step.at))
  assert.deepEqual(times, [...times].sort((a, b) => a - b))
  assert.equal((await node.api.raw('GET', `/v1/notifications/${id}/devices/no-such-device`)).status, 404)
  await client.leave()
})

test('a push without a credential is accepted and reported as not configured', async () => {
  await node.api.register({ user: 'phone', push_token: { service: 'fcm', token: 'abc' } })
  const push = { mode: 'always', fcm: { android: { priority: 'high' } } }
  const { id } = await node.api.publish({ to: { users: ['phone'] }, notification: { title: 'hi' }, push })
  await until('it to be counted', async () => (await node.api.notification(id)).counts.push_not_configured === 1)
})

test('a batch is answered line by line in order; a bad line fails alone', async () => {
  const { token } = await node.api.register({ user: 'batch' })
  const line = (data) => ({ to: { users: ['batch'] }, data })
  const results = await node.api.publishBatch([line(1), '{"to":', line(2), { ...line(3), wen: 'stored' }, line(4)])
  assert.equal(results.length, 5)
  assert.deepEqual(results.map((result) => typeof result.id), ['string', 'undefined', 'string', 'undefined', 'string'])
  assert.match(JSON.stringify(results[3].error), /wen/, 'the error names the field')
  const messages = await inbox(token)
  assert.deepEqual(messages.map((msg) => msg.data), [1, 2, 4])
  assert.deepEqual(messages.map((msg) => msg.id), [results[0].id, results[2].id, results[4].id])
})

test('devices are imported in bulk, with one result per line', async () => {
  const lines = Array.from({ length: 1_000 }, (_, i) => ({ device: `bulk-${i}`, user: `bulk-user-${i % 10}`, topics: ['bulk'] }))
  lines[500] = { device: 'bulk-500', platform: 'toaster' }
  const results = await node.api.registerBatch(lines)
  assert.equal(results.length, 1_000)
  assert.deepEqual(results.flatMap((result, i) => (result.error ? [i] : [])), [500])
  assert.match(JSON.stringify(results[500]), /toaster|platform/)
  assert.equal(results[0].device, 'bulk-0')
  assert.equal((await node.api.call('GET', '/v1/topics/bulk')).subscribers, 999)
  const { id } = await node.api.publish({ to: { users: ['bulk-user-3'] }, data: 1 })
  assert.equal((await node.api.notification(id)).counts.kept, 100)
})

const good = { to: { users: ['u'] }, data: 1 }
for (const [what, body, naming] of [
  ['broken JSON', '{"to":', undefined],
  ['an unknown field', { ...good, urgancy: 'high' }, /urgancy/],
  ['an unknown field further in', { ...good, notification: { titel: 'x' } }, /titel/],
  ['a wrong type', { ...good, ttl: true }, /ttl/],
  ['a wrong value', { ...good, when: 'later' }, /when|later/],
  ['no target', { data: 1 }, /to/],
  ['two targets', { to: { users: ['u'], topic: 't' }, data: 1 }, /to/],
  ['an empty target list', { to: { users: [] }, data: 1 }, /users/],
  ['a user that is no text', { to: { users: [7] }, data: 1 }, /users/],
  ['everyone: false', { to: { everyone: false }, data: 1 }, /everyone/],
  ['retain without a topic', { ...good, retain: true }, /retain/],
  ['a ttl over 28 days', { ...good, ttl: '29d' }, /ttl/],
  ['a negative ttl', { ...good, ttl: -1 }, /ttl/],
  ['a collapse key over 64 bytes', { ...good, collapse_key: 'x'.repeat(65) }, /collapse_key/],
  ['data over 4 KiB', { ...good, data: 'x'.repeat(4_097) }, /data/],
  ['more than 10,000 users', { to: { users: Array.from({ length: 10_001 }, (_, i) => `u${i}`) }, data: 1 }, /users/],
  ['a reserved topic', { to: { topic: '$everyone' }, data: 1 }, /topic/],
]) {
  test(`a request with ${what} is rejected with a problem that names it`, async () => {
    const answer = await node.api.raw('POST', '/v1/notifications', { body })
    assert.ok(answer.status === 400 || answer.status === 413 || answer.status === 422, `${answer.status} ${answer.text}`)
    assert.equal(answer.type, 'application/problem+json')
    for (const field of ['type', 'title', 'status', 'code']) assert.ok(field in answer.body, `${field} in ${answer.text}`)
    assert.equal(answer.body.status, answer.status)
    if (naming) assert.match(answer.text, naming)
  })
}

test('10,000 users in one request are one request', async () => {
  const { token } = await node.api.register({ user: 'u9999' })
  const users = Array.from({ length: 10_000 }, (_, i) => `u${i}`)
  const { targets } = await node.api.publish({ to: { users }, data: 'big' })
  assert.equal(targets, 10_000)
  assert.deepEqual((await inbox(token)).map((msg) => msg.data), ['big'])
})

test('without a key, with a wrong key, on unknown paths and with wrong methods the answer is a problem', async () => {
  for (const [method, path, options, status] of [
    ['POST', '/v1/notifications', { body: good, token: null }, 401],
    ['POST', '/v1/notifications', { body: good, token: 'wrong' }, 401],
    ['GET', '/v1/me', { token: null }, 401],
    ['GET', '/v1/no-such-thing', {}, 404],
    ['PUT', '/v1/notifications', { body: good }, 405],
  ]) {
    const answer = await node.api.raw(method, path, options)
    assert.equal(answer.status, status, `${method} ${path} ${answer.text}`)
    assert.equal(answer.type, 'application/problem+json', `${method} ${path}`)
    assert.equal(typeof answer.body.code, 'string')
  }
})

test("a device's token cannot publish", async () => {
  const { token } = await node.api.register()
  const answer = await node.api.raw('POST', '/v1/notifications', { token, body: good })
  assert.ok([401, 403].includes(answer.status), answer.text)
})
