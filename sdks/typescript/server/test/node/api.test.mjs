/** The areas of the API against a real node, with the fakes of push services. */

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { JWT_SECRET, KEY } from '../../../../../e2e/lib/node.mjs'
import { DevPush, unique } from '../../../../../e2e/lib/push.mjs'
import { until } from '../../../../../e2e/lib/until.mjs'
import { discard } from '../../../test/discard.mjs'
import { JwtSigner, NoroshiError, ProblemError } from '../../dist/index.js'
import { operations } from '../openapi.mjs'
import { called, client, closeDevices, collect, device } from './lib.mjs'

let push, node, noroshi, app
before(async () => {
  push = await DevPush.start()
  node = await push.node({ services: [] })
  noroshi = client(node)
  app = noroshi.app('dev')
})
after(async () => {
  closeDevices()
  await discard(node)
  await push?.stop()
})

const fails = (promise, code, more = {}) =>
  assert.rejects(promise, (error) => {
    assert.ok(error instanceof ProblemError, String(error))
    assert.equal(error.code, code, error.message)
    for (const [name, value] of Object.entries(more)) assert.deepEqual(error[name], value)
    return true
  })

describe('notifications', () => {
  test('are published, explained, listed and cancelled', async () => {
    const [d1, d2] = [unique('d'), unique('d')]
    const user = unique('u')
    const { token } = await noroshi.devices.register({ device: d1, user, platform: 'web' })
    await noroshi.devices.register({ device: d2, user })
    const phone = device(node, token)
    await phone.ready()
    const trace = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' }
    const { id, targets } = await noroshi.publish({ to: { users: [user] }, notification: { title: 'Hello' }, data: { n: 1 } }, { trace })
    assert.equal(targets, 1)
    await phone.shows(1)
    assert.deepEqual([phone.shown[0].id, phone.shown[0].notification.title, phone.shown[0].data], [id, 'Hello', { n: 1 }])
    const state = await until('the delivery to be counted', async () => {
      const state = await noroshi.notifications.get(id)
      return state.counts.kept === 2 && state
    })
    assert.equal(state.trace, '4bf92f3577b34da6a3ce929d0e0e4736')
    assert.equal((await noroshi.notifications.explain(id, d1)).targeted_by, 'user')
    assert.equal((await noroshi.notifications.explain(id, d2)).reason, 'offline')
    assert.ok((await collect(noroshi.notifications.list({ user }))).some((one) => one.id === id))
    assert.deepEqual(await noroshi.notifications.cancel(id), { id, removed: 2 })
    assert.equal((await noroshi.notifications.get(id)).state, 'cancelled')
    phone.close()
  })

  test('with the same idempotency key are accepted once', async () => {
    const to = { users: [unique('u')] }
    const options = { idempotencyKey: unique('key') }
    const first = await noroshi.publish({ to, data: 1 }, options)
    assert.deepEqual(await noroshi.publish({ to, data: 1 }, options), first)
    assert.notEqual((await noroshi.publish({ to, data: 1 })).id, first.id)
    await fails(noroshi.publish({ to, data: 2 }, options), 'idempotency_conflict', { status: 409 })
  })

  test('that are wrong name the field', async () => {
    const loose = client(node, { isLoose: true })
    await fails(loose.publish({ to: { users: ['u1', ''] }, data: 1 }), 'invalid_field', { status: 400, field: 'to.users[1]', attempts: 1, request: 'POST /v1/notifications' })
    await fails(loose.publish({ to: { users: ['u1'] }, tll: '1h' }), 'unknown_field', { field: 'tll' })
    await fails(noroshi.notifications.get('0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10'), 'not_found', { status: 404 })
    await fails(client(node, { key: 'wrong' }).publish({ to: { everyone: true }, data: 1 }), 'unauthorized', { status: 401 })
    const error = await noroshi.notifications.get('none').catch((error) => error)
    assert.equal(error.code, 'invalid_parameter')
    assert.match(error.requestId, /^[0-9a-f-]{36}$/)
  })

  test('of a batch are accepted in order, each with its result', async () => {
    const user = unique('u')
    const { token } = await noroshi.devices.register({ user })
    async function* lines() {
      for (let n = 0; n < 500; n++) yield n === 77 ? { to: { users: [''] }, data: n } : { to: { users: [user] }, data: n }
    }
    const loose = client(node, { isLoose: true })
    const idempotencyKey = unique('batch')
    const results = await collect(loose.publishBatch(lines(), { linesPerRequest: 200, idempotencyKey }))
    assert.deepEqual(results.map(({ index, ok }) => [index, ok]), Array.from({ length: 500 }, (_, n) => [n, n !== 77]))
    assert.deepEqual([results[77].error.code, results[77].error.field, results[77].line.data], ['invalid_field', 'to.users[0]', 77])
    const ids = results.filter(({ ok }) => ok).map(({ value }) => value.id)
    assert.deepEqual(ids, [...ids].sort(), 'ids are in order')
    const again = await collect(loose.publishBatch(lines(), { linesPerRequest: 200, idempotencyKey }))
    assert.deepEqual(again.filter(({ ok }) => ok).map(({ value }) => value.id), ids)
    const phone = device(node, token)
    await phone.shows(499)
    assert.deepEqual(phone.shown.map(({ data }) => data), Array.from({ length: 500 }, (_, n) => n).filter((n) => n !== 77))
    phone.close()
    const checked = await collect(noroshi.publishBatch([{ to: { users: [user] }, data: 1 }]))
    assert.equal(checked[0].ok, true)
  })
})

describe('devices and users', () => {
  test('devices are registered, listed, changed and deleted', async () => {
    const user = unique('u')
    const [{ device: drawn, token }, { device: named }] = [await noroshi.devices.register({ user }), await noroshi.devices.register({ device: unique('d'), user, tags: { plan: 'pro' } })]
    assert.match(drawn, /^[0-9a-f]{32}$/)
    assert.ok(token)
    assert.deepEqual((await collect(noroshi.devices.list({ user }))).map(({ device }) => device).sort(), [drawn, named].sort())
    assert.equal((await noroshi.devices.get(named)).tags.plan, 'pro')
    assert.equal((await noroshi.devices.revoke(named)).device, named)
    assert.equal((await noroshi.users.revoke(user)).devices, 2)
    await noroshi.devices.delete(named)
    await fails(noroshi.devices.get(named), 'not_found')
    await fails(noroshi.devices.delete(named), 'not_found')
  })

  test('devices of a batch', async () => {
    const user = unique('u')
    const results = await collect(noroshi.devices.registerBatch(Array.from({ length: 30 }, () => ({ user })), { linesPerRequest: 10 }))
    assert.ok(results.every(({ ok, value }) => ok && value.token))
    const devices = noroshi.devices.list({ user, limit: 7 })
    const pages = await collect(devices.pages())
    assert.deepEqual(pages.map((page) => page.devices.length), [7, 7, 7, 7, 2])
    assert.deepEqual((await collect(devices)).map(({ device }) => device).sort(), results.map(({ value }) => value.device).sort())
    assert.equal((await devices.take(10)).length, 10)
    const behind = noroshi.devices.list({ user, limit: 7, after: pages[3].next })
    assert.equal((await collect(behind)).length, 2)
  })

  test('push tokens, preferences and endpoints of a device', async () => {
    const { device: d } = await noroshi.devices.register({ user: unique('u') })
    await noroshi.devices.pushTokens.set(d, 'fcm', { token: 'f'.repeat(150) })
    await noroshi.devices.pushTokens.set(d, 'webhook', { token: 'ann@example.com' }, { name: 'mail' })
    assert.deepEqual((await noroshi.devices.pushTokens.list(d)).map(({ kind, name }) => `${kind}/${name}`).sort(), ['fcm/', 'webhook/mail'])
    await noroshi.devices.pushTokens.delete(d, 'webhook', { name: 'mail' })
    await noroshi.devices.pushTokens.delete(d, 'fcm')
    await fails(noroshi.devices.pushTokens.delete(d, 'fcm'), 'not_found')
    const preferences = { muted_topics: ['sport'] }
    assert.deepEqual(await noroshi.devices.preferences.set(d, preferences), preferences)
    assert.deepEqual(await noroshi.devices.preferences.get(d), preferences)
    await noroshi.devices.preferences.delete(d)
    assert.deepEqual(await noroshi.devices.preferences.get(d), {})
    assert.deepEqual(await noroshi.devices.endpoints.list(d), [])
    await fails(noroshi.devices.endpoints.delete(d, 'none'), 'not_found')
    assert.equal((await noroshi.devices.topicPermission(d, 'news')).decision, 'allowed')
  })

  test('items and preferences of a user', async () => {
    const user = unique('u')
    await noroshi.devices.register({ user })
    for (let n = 0; n < 3; n++) await noroshi.publish({ to: { users: [user] }, notification: { title: `Order ${n}` }, item: { category: 'orders' } })
    const items = await until('the items', async () => {
      const items = await collect(noroshi.users.items.list(user, { limit: 2 }))
      return items.length === 3 && items
    })
    assert.deepEqual(items.map(({ notification }) => notification.title), ['Order 2', 'Order 1', 'Order 0'])
    assert.deepEqual(await noroshi.users.items.counts(user), { unread: 3, categories: { orders: 3 } })
    await noroshi.users.items.delete(user)
    assert.equal((await noroshi.users.items.counts(user)).unread, 0)
    const preferences = { categories: { promo: { muted: true } }, quiet_hours: { from: '22:00', to: '07:00' } }
    await noroshi.users.preferences.set(user, preferences)
    assert.deepEqual((await noroshi.users.preferences.get(user)).categories, preferences.categories)
    await noroshi.users.preferences.delete(user)
  })

  test('presence', async () => {
    const user = unique('u')
    const { device: d, token } = await noroshi.devices.register({ user })
    const phone = device(node, token)
    await phone.ready()
    await until('the device to be active', async () => (await noroshi.presence([user, 'nobody']))[user].presence === 'active')
    assert.deepEqual(await noroshi.presence([user, 'nobody']), { [user]: { presence: 'active', devices: [{ device: d, presence: 'active' }] }, nobody: { presence: 'offline', devices: [] } })
    phone.close()
  })

  test('a signed token logs in', async () => {
    const jwts = new JwtSigner({ secret: JWT_SECRET, audience: 'dev' })
    const [user, d] = [unique('u'), unique('d')]
    const phone = device(node, await jwts.sign({ user, device: d, topics: ['signed'] }))
    await phone.ready()
    await noroshi.publish({ to: { topic: 'signed' }, data: 'to its topic' })
    await phone.shows(1)
    assert.equal((await noroshi.devices.get(d)).user, user)
    phone.close()
    const other = device(node, await new JwtSigner({ secret: JWT_SECRET, audience: 'another' }).sign({ user, device: d }))
    await assert.rejects(other.ready(), /401/)
  })
})

test('topics and their retained messages', async () => {
  const topic = `${unique('t')}/a b`
  await noroshi.devices.register({ topics: [topic] })
  await noroshi.publish({ to: { topic }, retain: true, data: { n: 1 } })
  const found = await until('the retained message', async () => {
    const found = await noroshi.topics.get(topic)
    return found.retained && found
  })
  assert.equal(found.subscribers, 1)
  assert.ok((await collect(noroshi.topics.list({ limit: 2 }))).some((one) => one.topic === topic))
  assert.deepEqual((await noroshi.topics.retained(topic)).data, { n: 1 })
  await noroshi.topics.deleteRetained(topic)
  await fails(noroshi.topics.retained(topic), 'not_found')
})

describe('campaigns', () => {
  test('are drafted, changed, uploaded, estimated, started and awaited', async () => {
    const users = Array.from({ length: 25 }, () => unique('u'))
    await collect(noroshi.devices.registerBatch(users.map((user) => ({ user }))))
    const draft = await noroshi.campaigns.createDraft({ audience: { upload: true } })
    assert.equal(draft.complete, false)
    await fails(noroshi.campaigns.start(draft.id), 'campaign_incomplete')
    const changed = await noroshi.campaigns.change(draft.id, { revision: draft.revision, name: 'Spring', message: { notification: { title: 'Hello {{name}}' } }, variables: { name: 'you' } })
    await fails(noroshi.campaigns.change(draft.id, { revision: draft.revision, name: 'Summer' }), 'revision_conflict')
    assert.equal(changed.complete, true)
    const lines = users.map((user, n) => ({ user, variables: { name: `N${n}` } }))
    const uploaded = await collect(noroshi.campaigns.uploadRecipients(draft.id, lines, { linesPerRequest: 10 }))
    assert.deepEqual(uploaded.map(({ value }) => value.user), users)
    assert.deepEqual(await noroshi.campaigns.recipient(draft.id, users[3]), { user: users[3], variables: { name: 'N3' } })
    const estimate = await noroshi.campaigns.estimate(draft.id)
    assert.equal(estimate.devices.value, 25)
    const { revision } = await noroshi.campaigns.get(draft.id)
    assert.equal((await noroshi.campaigns.start(draft.id, { revision })).id, draft.id)
    const states = []
    const done = await noroshi.campaigns.wait(draft.id, { pollMs: 200, signal: AbortSignal.timeout(30_000), onProgress: ({ state }) => states.push(state) })
    assert.deepEqual([done.state, done.uploaded, states.at(-1)], ['done', 25, 'done'])
    assert.ok((await collect(noroshi.campaigns.list({ state: 'done', name: 'spring' }))).some(({ id }) => id === draft.id))
    await fails(noroshi.campaigns.pause(draft.id), 'wrong_state')
    await noroshi.campaigns.delete(draft.id)
    await fails(noroshi.campaigns.get(draft.id), 'not_found')
  })

  test('are counted, paused, resumed and aborted', async () => {
    const topic = unique('t')
    await app.pushCredentials.add(push.info.credentials.fcm, { replace: true })
    const tokens = await push.tokens('fcm', 20)
    await collect(noroshi.devices.registerBatch(tokens.map((push_token) => ({ topics: [topic], push_token }))))
    const campaign = { audience: { topic }, message: { notification: { title: 'Hello' }, push: { mode: 'always' } }, rate_per_second: 1, batch_size: 1 }
    assert.equal((await noroshi.campaigns.count(campaign)).devices, 20)
    const options = { idempotencyKey: unique('key') }
    const { id } = await noroshi.campaigns.create(campaign, options)
    assert.equal((await noroshi.campaigns.create(campaign, options)).id, id)
    assert.equal((await noroshi.campaigns.wait(id, { until: ['running'], pollMs: 50 })).state, 'running')
    assert.equal((await noroshi.campaigns.pause(id)).state, 'paused')
    assert.equal((await noroshi.campaigns.resume(id)).state, 'running')
    const waiting = noroshi.campaigns.wait(id, { pollMs: 50 })
    assert.equal((await noroshi.campaigns.abort(id)).state, 'aborted')
    assert.equal((await waiting).state, 'aborted')
    const scheduled = await noroshi.campaigns.create({ ...campaign, start_at: '2099-01-01T00:00:00Z' })
    await assert.rejects(noroshi.campaigns.wait(scheduled.id, { signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' })
    await noroshi.campaigns.abort(scheduled.id)
  })
})

describe('the app', () => {
  test('settings, quotas and figures', async () => {
    assert.equal((await app.get()).name, 'dev')
    assert.deepEqual((await app.change({ client_publish: ['chat/+'] })).client_publish, ['chat/+'])
    assert.ok((await app.quotas()).length > 0)
    const series = await app.series({}).catch((error) => error)
    assert.ok(series.step_s > 0 || series instanceof ProblemError)
    await fails(noroshi.app('another').get(), 'not_found')
  })

  test('keys are created, used and revoked', async () => {
    const { id, key, scopes } = await app.keys.create({ name: unique('key'), scopes: ['read'] })
    assert.deepEqual(scopes, ['read'])
    const reader = client(node, { key: async () => key })
    assert.ok(await reader.topics.list().page())
    await fails(reader.publish({ to: { everyone: true }, data: 1 }), 'forbidden', { status: 403 })
    assert.ok((await app.keys.list()).some((one) => one.id === id && one.key === undefined))
    await app.keys.revoke(id)
    await fails(reader.topics.list().page(), 'unauthorized')
  })

  test('experiments', async () => {
    const name = unique('experiment')
    const { device: d } = await noroshi.devices.register({ user: unique('u') })
    const experiment = { variants: [{ name: 'control', weight: 1 }, { name: 'green', weight: 1, data: { colour: '#0a0' } }] }
    assert.equal((await app.experiments.put(name, experiment)).name, name)
    const { variant } = await app.experiments.assigned(name, d)
    assert.ok(['control', 'green'].includes(variant))
    assert.equal((await app.experiments.kill(name)).killed, true)
    assert.equal((await app.experiments.revive(name)).killed, false)
    assert.ok((await collect(app.experiments.list())).some((one) => one.name === name))
    assert.equal((await app.experiments.get(name)).variants.length, 2)
    await app.experiments.archive(name)
    assert.ok(!(await collect(app.experiments.list())).some((one) => one.name === name))
    assert.ok((await collect(app.experiments.list({ archived: true }))).some((one) => one.name === name))
  })

  test('notices', async () => {
    const name = unique('notice')
    const notice = { notification: { title: 'Payments are unavailable' }, starts_at: '2099-01-01T00:00:00Z', ends_at: '2099-01-01T02:00:00Z' }
    assert.equal((await app.notices.put(name, notice)).name, name)
    assert.equal((await app.notices.get(name)).notification.title, 'Payments are unavailable')
    assert.ok((await collect(app.notices.list())).some((one) => one.name === name))
    await app.notices.end(name)
  })

  test('topic rules', async () => {
    await fails(app.topicRules.get(), 'not_found')
    const rules = { subscribe: [{ topic: 'user/{user}/#', allow: 'anyone' }] }
    assert.deepEqual((await app.topicRules.set(rules)).subscribe, rules.subscribe)
    assert.deepEqual((await app.topicRules.get()).subscribe, rules.subscribe)
    const { device: d } = await noroshi.devices.register({ user: 'u1' })
    assert.equal((await noroshi.devices.topicPermission(d, 'user/u2/mail', { action: 'subscribe' })).decision, 'denied')
    await app.topicRules.delete()
  })
})

describe('push services', () => {
  test('credentials are added, tested, rotated and deleted; tokens are invalidated and restored', async () => {
    const credential = push.info.credentials.fcm
    const { id } = await app.pushCredentials.add(credential, { replace: true })
    await fails(app.pushCredentials.add(credential), 'already_exists')
    const [good, gone] = await push.tokens('fcm', 2)
    assert.equal((await app.pushCredentials.test(id, { push_token: good })).answer, 'accepted')
    const { device: d } = await noroshi.devices.register({ push_token: good })
    assert.equal((await app.pushCredentials.rotate(id, { credential: { service_account: credential.service_account }, device: d })).id, id)
    assert.ok((await app.pushCredentials.list()).some((one) => one.id === id))
    const unknown = { ...gone, token: `${gone.token.slice(0, -4)}zzzz` }
    const { device: lost } = await noroshi.devices.register({ push_token: unknown })
    await noroshi.publish({ to: { devices: [lost] }, notification: { title: 'Hello' }, push: { mode: 'always' } })
    const invalidation = await until('the token to be invalidated', async () => (await collect(noroshi.invalidations({ limit: 1 }))).find((one) => one.device === lost))
    assert.equal(invalidation.service, 'fcm')
    assert.deepEqual(await collect(noroshi.invalidations({ after: invalidation.seq })), [])
    assert.equal(typeof (await app.pushCredentials.restoreTokens(id, { since: '2026-01-01T00:00:00Z' })).restored, 'number')
    await app.pushCredentials.delete(id)
    await app.pushCredentials.add(credential, { replace: true })
  })

  test('channels and broadcasts', async () => {
    await app.pushCredentials.add(push.info.credentials.apns)
    const name = unique('c')
    const channel = await noroshi.channels.create({ name, storage: 'latest', topic: unique('game') })
    assert.equal((await noroshi.channels.create({ name, storage: 'latest', topic: channel.topic })).apns_id, channel.apns_id)
    assert.ok((await collect(noroshi.channels.list())).some((one) => one.name === name))
    assert.equal((await noroshi.channels.change(name, { topic: null })).topic, null)
    const { id } = await noroshi.channels.broadcast(name, { event: 'update', content_state: { home: 1 } })
    await until('the broadcast to be sent', async () => (await noroshi.channels.broadcastState(id)).state === 'sent')
    assert.equal((await noroshi.channels.get(name)).name, name)
    assert.ok((await noroshi.channels.atApple.list()).some(({ apns_id }) => apns_id === channel.apns_id))
    await fails(noroshi.channels.atApple.delete(channel.apns_id), 'wrong_state')
    await noroshi.channels.delete(name)
    await fails(noroshi.channels.get(name), 'not_found')
  })

  test('activities', async () => {
    const user = unique('u')
    const { device: d } = await noroshi.devices.register({ user })
    const started = await noroshi.activities.start({ to: { users: [user] }, attributes_type: 'Delivery', attributes: {}, content_state: { stops: 3 }, alert: { title: 'On its way', body: '3 stops' } })
    assert.deepEqual((await noroshi.activities.update(started.id, { content_state: { stops: 2 } })).content_state, { stops: 2 })
    assert.ok((await collect(noroshi.activities.list())).some(({ id }) => id === started.id))
    await noroshi.activities.explain(started.id, d).catch((error) => assert.equal(error.code, 'not_found'))
    assert.equal((await noroshi.activities.end(started.id, { content_state: { stops: 0 } })).id, started.id)
    assert.equal((await noroshi.activities.get(started.id)).state, 'ended')
  })
})

test('every operation was called', () => {
  const all = [...operations.values()].map(({ operationId }) => operationId)
  assert.deepEqual(all.filter((id) => !called.has(id)), [])
  assert.ok(new NoroshiError('network', '') instanceof Error && KEY)
})
