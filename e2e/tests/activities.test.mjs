/**
 * Live Activities through APNs and FCM with the strict fakes, and to connected devices.
 */

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { DevPush, unique } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

let push, node
before(async () => {
  push = await DevPush.start()
  node = await push.node({ services: ['apns', 'fcm'] })
})
after(async () => {
  await node?.stop()
  await push?.stop()
})

const call = (method, path, body, options = {}) => node.api.call(method, path, { body, ...options })

function start(to, more = {}) {
  const body = { to, attributes_type: 'MatchAttributes', attributes: { home: 'A' }, content_state: { n: 0 }, alert: { title: 'Kick-off' }, ...more }
  return call('POST', '/v1/activities', body, { status: 201 })
}
const update = (id, n, more = {}) => call('PATCH', `/v1/activities/${id}`, { content_state: { n }, ...more })
const end = (id, body) => call('DELETE', `/v1/activities/${id}`, body)

const current = (id) =>
  until(`every device of ${id} to have the newest state`, async () => {
    const { progress } = await call('GET', `/v1/activities/${id}`)
    return progress.collected && progress.waiting === 0
  })

/** The payloads that a token got, oldest first. */
const pushes = async (service, { token }) => (await push.accepted(service, token)).map(({ payload, headers }) => ({ payload: JSON.parse(payload), headers }))

test('states reach connected devices whatever they prefer', async () => {
  const user = unique('user')
  const { token } = await node.api.register({ user, device: unique('device') })
  await call('PUT', '/v1/me/preferences', { channels: [], quiet_hours: { from: '00:00', to: '23:59' } }, { token })
  const connection = await Device.connect(node.ws, token)
  const { id } = await start({ users: [user] })
  assert.equal((await connection.msg()).data.activity.id, id)
  await connection.leave()
})

describe('a Live Activity', () => {
  test('starts by push, is updated by the token that the device reports, and ends', async () => {
    const user = unique('user')
    const [startToken, ownToken] = await push.tokens('apns', 2)
    const { service: _, ...registered } = startToken
    const { device, token } = await node.api.register({ user, device: unique('device'), platform: 'ios' })
    await call('PUT', '/v1/me/push-tokens/live-activity-start', registered, { token })
    const { id } = await start({ users: [user] })
    const [first] = await until('the start', async () => {
      const got = await pushes('apns', startToken)
      return got.length > 0 && got
    })
    assert.equal(first.headers['apns-push-type'], 'liveactivity')
    assert.match(first.headers['apns-topic'], /\.push-type\.liveactivity$/)
    assert.equal(first.headers['apns-priority'], '10')
    const { aps } = first.payload
    assert.equal(aps.event, 'start')
    assert.deepEqual(aps.attributes, { home: 'A', noroshiActivity: id })
    assert.deepEqual(aps['content-state'], { n: 0 })

    // The state changes before the device reports its token: it gets the newest one.
    await update(id, 1)
    await update(id, 2)
    const { service: __, ...own } = ownToken
    await call('PUT', `/v1/me/push-tokens/live-activity/${id}`, own, { token })
    const joined = await until('the newest state', async () => {
      const got = await pushes('apns', ownToken)
      return got.length > 0 && got
    })
    assert.deepEqual(joined.map(({ payload }) => payload.aps['content-state']), [{ n: 2 }])
    assert.equal(joined[0].headers['apns-priority'], '5')

    await update(id, 3, { urgency: 'high', alert: { title: 'Goal', sound: 'default' }, relevance: 5 })
    await end(id, { content_state: { n: 4 }, dismissal_date: new Date(Date.now() + 60_000).toISOString() })
    await current(id)
    const all = await pushes('apns', ownToken)
    const last = all.at(-1)
    assert.equal(last.payload.aps.event, 'end')
    assert.deepEqual(last.payload.aps['content-state'], { n: 4 })
    assert.ok(last.payload.aps['dismissal-date'] > Date.now() / 1000)
    // An alert that was skipped comes with the next state.
    assert.ok(all.some(({ payload }) => payload.aps.alert?.title === 'Goal'))
    assert.equal((await pushes('apns', startToken)).length, 1)
    const { push_tokens } = await call('GET', '/v1/me/push-tokens', undefined, { token })
    assert.deepEqual(push_tokens.map(({ kind }) => kind), ['live-activity-start'])
    const traced = await call('GET', `/v1/activities/${id}/devices/${device}`)
    assert.equal(traced.started_version, 1)
    assert.deepEqual([traced.targeted_by, traced.cause], ['user', undefined])
    // Every push of an activity that names its users is recorded, as it was sent.
    const recorded = traced.attempts.map((attempt) => [attempt.response.status, attempt.url.split('/').at(-1), attempt.body.aps.event])
    assert.deepEqual(recorded[0], [200, startToken.token, 'start'])
    assert.deepEqual(recorded.at(-1), [200, ownToken.token, 'end'])
    assert.equal(recorded.length, 1 + all.length)
    assert.deepEqual(traced.attempts.at(-1).body, last.payload)
    assert.equal(traced.attempts[0].headers['apns-push-type'], 'liveactivity')
    assert.equal(traced.attempts[0].headers.authorization, undefined)
    const explained = await node.cli('explain', id, device, '--requests')
    assert.match(explained.stdout, new RegExp(`named the device's user "${user}"[^]*POST https?://[^]*"event":"start"[^]*=> 200`))
    const shown = await node.cli('activity', 'show', id, '--device', device)
    assert.match(shown.stdout, new RegExp(`200 .*${startToken.token}`))
    assert.match((await node.cli('explain', id)).stdout, /state +ended/)
    const unknown = await node.cli('explain', 'no-such-activity', device)
    assert.notEqual(unknown.code, 0)
    assert.match(unknown.stderr, /activity/)
  })

  test('explains which devices it does not reach', async () => {
    const topic = unique('topic')
    const id = unique('match')
    const [gone, refused, waiting] = await push.tokens('apns', 3)
    const register = async ({ service: _, ...own } = {}, kind = 'live-activity') => {
      const device = unique('device')
      const push_tokens = own.token ? [{ kind, ...(kind === 'live-activity' ? { name: id } : {}), ...own }] : []
      const { token } = await node.api.register({ device, topics: [topic], platform: 'ios', push_tokens })
      return { device, token }
    }
    const devices = [await register(gone), await register(refused), await register(waiting, 'live-activity-start'), await register()]
    await push.behave({ service: 'apns', tokens: {
      [gone.token]: { status: 410, reason: 'Unregistered' }, [refused.token]: { status: 400, reason: 'BadTopic' },
    } })
    await start({ topic }, { id })
    await current(id)
    const { device: late } = await register()
    const { device: stranger } = await node.api.register({ device: unique('device') })
    const trace = (device) => call('GET', `/v1/activities/${id}/devices/${device}`)
    await update(id, 1)
    await current(id)
    const causes = []
    for (const device of [...devices.map(({ device }) => device), late, stranger]) causes.push((await trace(device)).cause)
    assert.deepEqual(causes, ['invalid_token', 'push_refused', 'awaiting_token', 'no_token', 'registered_later', 'not_targeted'])
    // Failures are always recorded.
    const { attempts } = await trace(devices[0].device)
    assert.deepEqual(attempts.map(({ response, reason }) => [response.status, response.body.reason, reason]), [[410, 'Unregistered', 'Unregistered']])
    const { stdout } = await node.cli('explain', id, devices[1].device)
    assert.match(stdout, /rejected it permanently \(BadTopic\)/)
    assert.match((await node.cli('explain', id, stranger)).stdout, /does not subscribe durably to the topic/)
  })

  test('reaches Android as data messages and iOS over FCM', async () => {
    const topic = unique('topic')
    const [android, ios] = await push.tokens('fcm', 2)
    const [own] = await push.tokens('apns', 1)
    await node.api.register({ device: unique('android'), topics: [topic], push_token: android })
    const id = unique('match')
    const { service: _, ...live } = own
    await node.api.register({ device: unique('ios'), topics: [topic], platform: 'ios', push_token: ios, push_tokens: [{ kind: 'live-activity', name: id, ...live }] })
    await start({ topic }, { id, ios_via: 'fcm', android: { text: '0:0', progress: { value: 1, max: 90 } } })
    await current(id)
    await update(id, 1)
    await current(id)
    const messages = (await pushes('fcm', android)).map(({ payload }) => payload.message ?? payload)
    assert.deepEqual(messages.map(({ data }) => [data.noroshi_event, data.noroshi_state]), [['start', '{"n":0}'], ['update', '{"n":1}']])
    assert.deepEqual(JSON.parse(messages[0].data.noroshi_progress), { text: '0:0', progress: { value: 1, max: 90 } })
    const apple = (await pushes('fcm', ios)).map(({ payload }) => payload.message ?? payload)
    assert.deepEqual(apple.map(({ apns }) => [apns.liveActivityToken ?? apns.live_activity_token, apns.payload.aps['content-state'].n]), [[own.token, 0], [own.token, 1]])
    assert.equal(apple[0].apns.headers['apns-push-type'], 'liveactivity')
    assert.equal(apple[0].apns.payload.aps['content-available'], undefined)
  })

  test('reaches connected devices with the same call, and inboxes keep the newest state', async () => {
    const user = unique('user')
    const { token } = await node.api.register({ user, device: unique('device') })
    const connected = await Device.connect(node.ws, token)
    const { id } = await start({ users: [user] })
    await update(id, 1)
    const got = [await connected.next(), await connected.next()]
    assert.deepEqual(got.map(({ data }) => [data.activity.event, data.activity.version, data.activity.content_state.n]), [['start', 1, 0], ['update', 2, 1]])
    const away = unique('user')
    const other = await node.api.register({ user: away, device: unique('device') })
    const stored = await start({ users: [away] }, { when: 'stored' })
    for (let n = 1; n < 4; n++) await update(stored.id, n)
    const { messages } = await node.api.me(other.token).inbox()
    assert.deepEqual(messages.map(({ data }) => data.activity.content_state.n), [3])
  })

  test('skips states while a push service is slow, and never queues more than one', async () => {
    const topic = unique('topic')
    const id = unique('match')
    const tokens = await push.tokens('apns', 600)
    const lines = tokens.map(({ service: _, ...own }, n) => ({ device: `${topic}-${n}`, topics: [topic], push_tokens: [{ kind: 'live-activity', name: id, ...own }] }))
    for (const line of await node.api.registerBatch(lines)) assert.ok(line.device, JSON.stringify(line))
    await start({ topic }, { id })
    await current(id)
    const before = (await push.counts()).apns.accepted
    await push.behave({ service: 'apns', latency: { fixed_ms: 400 } })
    const updates = 40
    for (let n = 1; n <= updates; n++) await update(id, n)
    await current(id)
    await push.behave({ service: 'apns', latency: 'none' })
    const sent = (await push.counts()).apns.accepted - before
    assert.ok(sent < tokens.length * updates / 4, `${sent} pushes of ${tokens.length * updates} states`)
    const last = (await pushes('apns', tokens[0])).at(-1)
    assert.deepEqual(last.payload.aps['content-state'], { n: updates })
  })
})
