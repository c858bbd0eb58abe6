/**
 * Preferences: what users and devices want to be notified of, and how. Pushes go to the strict fakes; `explain` names
 * the preference that suppressed a notification.
 */

import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'

import { Cluster } from '../lib/cluster.mjs'
import { Device } from '../lib/device.mjs'
import { Postgres, Redis, missingEngines } from '../lib/engines.mjs'
import { DevPush, operatorToken, unique } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

let push, node
before(async () => {
  push = await DevPush.start()
  node = await push.node({ services: ['apns'] })
  await setEssential(['alarm'])
})
after(async () => {
  await node?.stop()
  await push?.stop()
})

async function setEssential(essential_categories) {
  const response = await fetch(`http://127.0.0.1:${node.adminPort}/v1/apps/dev`, {
    method: 'PATCH',
    headers: { authorization: `Bearer ${operatorToken(node)}`, 'content-type': 'application/json' },
    body: JSON.stringify({ essential_categories }),
  })
  const text = await response.text()
  assert.equal(response.status, 200, text)
  assert.deepEqual(JSON.parse(text).essential_categories, essential_categories)
}

/** A zone in which it is about noon, so that no day ends during a test. */
function noon() {
  const offset = 12 - new Date().getUTCHours()
  // POSIX: `Etc/GMT-9` is nine hours ahead of UTC.
  return offset === 0 ? 'Etc/GMT' : `Etc/GMT${offset > 0 ? '-' : '+'}${Math.abs(offset)}`
}

/** A registered device of a new user with a push token. */
async function phone(more = {}) {
  const [pushToken] = await push.tokens('apns', 1)
  const user = more.user ?? unique('user')
  const registered = await node.api.register({ user, device: unique('device'), timezone: noon(), push_token: pushToken, ...more })
  return { user, device: registered.device, token: registered.token, at: pushToken.token }
}

/** The requests of a device about preferences. */
const own = (token) => ({
  set: (body) => node.api.call('PUT', '/v1/me/preferences', { token, body }),
  setUser: (body) => node.api.call('PUT', '/v1/me/user/preferences', { token, body }),
  clear: () => node.api.call('DELETE', '/v1/me/preferences', { token, status: 204 }),
  shown: async () => (await node.api.me(token).show()).preferences,
})

/** Publishes a push to a user; returns its id. */
async function send(user, category, more = {}) {
  const body = { to: { users: [user] }, notification: { title: unique('push') }, push: { mode: 'always' }, category, ...more }
  return (await node.api.publish(body)).id
}

/** The recorded outcomes. A notification that is not stored appears in the store a moment after it is accepted. */
async function steps(id, device) {
  try {
    return (await node.api.trace(id, device)).steps
  } catch (error) {
    if (error.status === 404) return []
    throw error
  }
}

const step = async (id, device, wanted, deadlineMs) =>
  until(`${wanted} in the trace`, async () => (await steps(id, device)).find((one) => one.outcome === wanted), deadlineMs)

/** The outcome of the push to a device. */
async function pushed(id, device) {
  const is = (one) => one.outcome.startsWith('push')
  return (await until('an outcome of the push', async () => (await steps(id, device)).find(is))).outcome
}

const explained = async (id, device) => {
  const { code, stdout, stderr } = await node.cli('explain', id, device)
  assert.equal(code, 0, stderr)
  return stdout
}

describe('a push', () => {
  test('is suppressed by a muted category, and explain says so', async () => {
    const { user, device, token, at } = await phone()
    await own(token).set({ categories: { promo: { muted: true } } })
    // What would be stored for the device is left out when it is accepted, with its push.
    const stored = await send(user, 'promo')
    await step(stored, device, 'muted')
    assert.match(await explained(stored, device), /the preferences mute its topic or category/)
    assert.equal((await node.api.trace(stored, device)).reason, 'muted')
    assert.deepEqual((await node.api.notification(stored)).counts, { muted: 1 })
    const id = await send(user, 'promo', { when: 'active' })
    await step(id, device, 'push_muted')
    assert.match(await explained(id, device), /not pushed: the preferences mute its topic or category/)
    assert.equal((await node.api.trace(id, device)).reason, 'push_muted')
    const shown = await node.api.notification(id)
    assert.deepEqual([shown.category, shown.counts.push_muted], ['promo', 1])
    assert.equal(await pushed(await send(user, 'news'), device), 'pushed')
    assert.equal(await pushed(await send(user, undefined), device), 'pushed')
    assert.equal((await push.accepted('apns', at)).length, 2)
    await own(token).clear()
    assert.equal(await pushed(await send(user, 'promo'), device), 'pushed')
  })

  test('is suppressed by a muted topic and by the allowed channels', async () => {
    const { user, device, token, at } = await phone({ topics: ['noise'] })
    await own(token).set({ muted_topics: ['noise'], channels: ['live', 'inbox'], categories: { chat: { channels: ['push'] } } })
    assert.equal(await pushed(await send(user, 'chat', { to: { topic: 'noise' } }), device), 'push_muted')
    const off = await send(user, 'news')
    assert.equal(await pushed(off, device), 'push_channel_off')
    assert.match(await explained(off, device), /not pushed: the preferences do not allow pushes/)
    assert.equal(await pushed(await send(user, 'chat'), device), 'pushed')
    assert.equal((await push.accepted('apns', at)).length, 1)
  })

  test('follows the user on all devices, and a device first follows itself', async () => {
    const one = await phone()
    const other = await phone({ user: one.user })
    await own(one.token).setUser({ categories: { promo: { muted: true } } })
    const device = { categories: { promo: { muted: false } } }
    await own(other.token).set(device)
    assert.deepEqual(await own(other.token).shown(), { user: { categories: { promo: { muted: true } } }, device })
    const id = await send(one.user, 'promo')
    await step(id, one.device, 'muted')
    assert.equal(await pushed(id, other.device), 'pushed')
  })

  test('of an essential category ignores all preferences', async () => {
    const { user, device, token } = await phone()
    const all = { from: '00:00', to: '23:59' }
    await own(token).set({ channels: [], categories: { alarm: { muted: true, daily_max: 0 } }, quiet_hours: all })
    const id = await send(user, 'alarm')
    assert.equal(await pushed(id, device), 'pushed')
    assert.equal((await node.api.notification(id)).essential, true)
    assert.equal(await pushed(await send(user, 'other'), device), 'push_channel_off')
  })

  test('counts for the daily cap of its category', async () => {
    const { user, device, token, at } = await phone()
    await own(token).set({ categories: { chat: { daily_max: 2 } } })
    for (const expected of ['pushed', 'pushed', 'push_capped']) {
      assert.equal(await pushed(await send(user, 'chat'), device), expected)
    }
    const capped = await send(user, 'chat')
    await step(capped, device, 'push_capped')
    assert.match(await explained(capped, device), /as many notifications of the category on that day as the preferences allow/)
    assert.equal(await pushed(await send(user, 'news'), device), 'pushed')
    assert.equal((await push.accepted('apns', at)).length, 3)
    await own(token).set({ categories: { chat: { daily_max: 3 } } })
    assert.equal(await pushed(await send(user, 'chat'), device), 'pushed', 'the higher cap has room')
  })
})

describe('quiet hours', () => {
  const HOUR_MS = 3_600_000
  const clock = (ms) => new Date(ms).toISOString().slice(11, 16)

  test('delay a push, or it expires', async () => {
    const { user, device, token, at } = await phone()
    const end = Math.floor(Date.now() / 60_000) * 60_000 + 3 * HOUR_MS
    await own(token).set({ quiet_hours: { from: clock(end - 5 * HOUR_MS), to: clock(end), timezone: 'UTC' } })
    const waiting = await send(user, 'news')
    const trace = await until('the push to wait', async () => {
      const now = await node.api.trace(waiting, device)
      return now.push_due_at === new Date(end).toISOString() && now
    })
    assert.ok(trace.summary.includes(`A push is due at ${new Date(end).toISOString()}.`), trace.summary)
    const short = await send(user, 'news', { ttl: '1h' })
    const expired = await step(short, device, 'push_expired')
    assert.equal(expired.reason, 'quiet_hours')
    assert.match(await explained(short, device), /its ttl ended in the device's quiet hours/)
    assert.equal((await push.accepted('apns', at)).length, 0)
  })

  test('end, and the push is sent', { timeout: 300_000 }, async () => {
    const { user, device, token } = await phone()
    const end = Math.ceil((Date.now() + 5_000) / 60_000) * 60_000
    await own(token).set({ quiet_hours: { from: clock(end - HOUR_MS), to: clock(end), timezone: 'UTC' } })
    const id = await send(user, 'news')
    const sent = await step(id, device, 'pushed', 180_000)
    assert.ok(Date.parse(sent.at) >= end, `${sent.at} is before ${clock(end)}`)
  })
})

test('a campaign obeys preferences', async () => {
  const tag = unique('campaign')
  const [muted, other] = [await phone({ tags: { tag } }), await phone({ tags: { tag } })]
  await own(muted.token).set({ categories: { offers: { muted: true }, alarm: { muted: true } } })
  const run = async (category) => {
    const body = { audience: { devices: { tags: { tag: [tag] } } }, message: { notification: { title: 'Sale' }, category } }
    const { id } = await node.api.call('POST', '/v1/campaigns', { body, status: 201 })
    return until('the campaign to be done', async () => {
      const now = await node.api.call('GET', `/v1/campaigns/${id}`)
      return now.state === 'done' && now
    })
  }
  const done = await run('offers')
  assert.deepEqual(done.counts, { push_muted: 1, pushed: 1 })
  assert.deepEqual([done.message.category, done.errors, done.done], ['offers', 0, 2])
  assert.equal((await node.api.trace(done.notification, muted.device)).reason, 'push_muted')
  assert.equal(await pushed(done.notification, other.device), 'pushed')
  assert.deepEqual((await run('alarm')).counts, { pushed: 2 })
})

test('the command line shows, sets and clears preferences', async () => {
  const { user, device, token } = await phone()
  const run = async (...args) => {
    const { code, stdout, stderr } = await node.cli(...args)
    assert.equal(code, 0, stderr)
    return stdout
  }
  const json = async (...args) => JSON.parse(await run('preferences', ...args, '--json'))
  const flags = ['--channels', 'push,inbox', '--mute', 'promo', '--daily-max', 'news=3', '--quiet', '22:00-07:00', '--timezone', 'Asia/Tokyo']
  const set = await json('set', '--user', user, ...flags)
  const expected = {
    channels: ['push', 'inbox'],
    categories: { news: { daily_max: 3 }, promo: { muted: true } },
    quiet_hours: { from: '22:00', to: '07:00', timezone: 'Asia/Tokyo' },
  }
  assert.deepEqual(set, expected)
  assert.deepEqual(await json('show', '--user', user), expected)
  const file = join(node.data, 'preferences.json')
  writeFileSync(file, JSON.stringify({ muted_topics: ['noise'] }))
  await run('preferences', 'set', '--device', device, '--file', file)
  assert.deepEqual(await own(token).shown(), { user: expected, device: { muted_topics: ['noise'] } })
  const id = JSON.parse(await run('send', '--user', user, '--category', 'promo', '--title', 't', '--push', 'always', '--json')).id
  await step(id, device, 'muted')
  await run('preferences', 'clear', '--user', user)
  assert.deepEqual(await json('show', '--user', user), {})
  const wrong = await node.cli('preferences', 'set', '--user', user, '--daily-max', 'news=1001')
  assert.match(wrong.stderr, /categories\.news\.daily_max/)
  assert.notEqual(wrong.code, 0)
  const unknown = await node.cli('preferences', 'show', '--device', 'nobody')
  assert.match(unknown.stderr, /no such device/)
})

/** What a device gets over its connection. */
describe('live', () => {
  /** Publishes without pushes; returns the id. */
  const publish = async (user, category, more = {}) => send(user, category, { push: undefined, ...more })

  async function connected(preferences) {
    const one = await phone()
    if (preferences) await own(one.token).set(preferences)
    return { ...one, connection: await Device.connect(node.ws, one.token) }
  }

  test('a muted category does not arrive, and explain says so', async () => {
    const { user, device, token, connection } = await connected({ categories: { promo: { muted: true } } })
    const direct = await publish(user, 'promo', { when: 'connected' })
    const stored = await publish(user, 'promo')
    const marker = await publish(user, 'news')
    assert.equal((await connection.msg()).id, marker)
    connection.ack(marker)
    for (const id of [direct, stored]) await step(id, device, 'muted')
    assert.equal((await node.api.trace(direct, device)).reason, 'muted')
    assert.match(await explained(direct, device), /not delivered live: the preferences mute its topic or category/)
    await until('an empty inbox', async () => (await node.api.me(token).inbox()).total === 0)
    await connection.leave()
  })

  test('a change holds for the open connection', async () => {
    const { user, device, token, connection } = await connected()
    const outcome = async () => {
      const id = await publish(user, 'promo', { when: 'connected' })
      const is = (one) => ['written', 'channel_off'].includes(one.outcome)
      return (await until('an outcome', async () => (await steps(id, device)).find(is))).outcome
    }
    assert.equal(await outcome(), 'written')
    await own(token).setUser({ channels: ['push', 'inbox'] })
    await until('the change to hold', async () => (await outcome()) === 'channel_off')
    await own(token).setUser({})
    await until('the messages to arrive again', async () => (await outcome()) === 'written')
    await own(token).set({ channels: [] })
    await until('the change to hold', async () => (await outcome()) === 'channel_off')
    await connection.leave()
  })

  test('an essential category arrives', async () => {
    const { user, connection } = await connected({ channels: [], categories: { alarm: { muted: true } } })
    await publish(user, 'news', { when: 'connected' })
    const alarm = await publish(user, 'alarm', { when: 'connected' })
    assert.equal((await connection.msg()).id, alarm)
    await connection.leave()
  })

  test('the daily cap counts live messages', async () => {
    const { user, device, connection } = await connected({ categories: { chat: { daily_max: 1 } } })
    const first = await publish(user, 'chat', { when: 'connected' })
    const second = await publish(user, 'chat', { when: 'connected' })
    const marker = await publish(user, 'news', { when: 'connected' })
    assert.deepEqual((await connection.msgs(2)).map(({ id }) => id), [first, marker])
    await step(second, device, 'capped')
    assert.match(await explained(second, device), /not delivered live: .* as many notifications of the category/)
    await connection.leave()
  })

  test('a notification that arrived live counts once, also with a push', async () => {
    const { user, device, connection } = await connected({ categories: { chat: { daily_max: 1 } } })
    const id = await send(user, 'chat', { push: { mode: 'always' } })
    assert.equal((await connection.msg()).id, id)
    assert.equal(await pushed(id, device), 'pushed')
    await connection.leave()
  })

  test('quiet hours suppress what is not stored for an idle device, and delay what is', async () => {
    const all = { from: '00:00', to: '23:59', timezone: noon() }
    const { user, device, connection } = await connected({ quiet_hours: all })
    connection.send({ t: 'presence', state: 'idle' })
    await connection.settle()
    const direct = await publish(user, 'news', { when: 'connected' })
    const stored = await publish(user, 'news')
    const alarm = await publish(user, 'alarm', { when: 'connected' })
    assert.equal((await connection.msg()).id, alarm)
    await step(direct, device, 'quiet')
    assert.match(await explained(direct, device), /idle and in its quiet hours/)
    connection.send({ t: 'presence', state: 'active' })
    assert.equal((await connection.msg()).id, stored)
    const active = await publish(user, 'news', { when: 'connected' })
    assert.equal((await connection.msg()).id, active)
    await connection.leave()
  })
})

/** A connection is at another node than the one that stores the preferences. */
describe('on two nodes', { skip: missingEngines() ?? false }, () => {
  let postgres, redis, cluster
  before(async () => {
    ;[postgres, redis] = await Promise.all([Postgres.start(), Redis.start()])
    const roles = ['api', 'gateway', 'sender']
    cluster = await Cluster.start({
      postgres: postgres.url,
      redis: redis.url,
      nodes: [{ name: 'a', roles }, { name: 'b', roles }],
    })
    await cluster.seen(2)
  })
  after(async () => {
    await cluster?.stop()
    await Promise.all([postgres?.stop(), redis?.stop()])
  })

  test('the first call of each node shows a change', async () => {
    const user = unique('wide')
    const [a, b] = [cluster.api('a'), cluster.api('b')]
    const { device, token } = await a.register({ user })
    const none = { user: null, device: null }
    for (const api of [a, b]) assert.deepEqual((await api.me(token).show()).preferences, none)
    const body = { categories: { promo: { muted: true } } }
    const shows = (api, expected) =>
      until('the first call', async () => JSON.stringify((await api.me(token).show()).preferences) === JSON.stringify(expected))
    await a.call('PUT', '/v1/me/user/preferences', { token, body })
    for (const api of [a, b]) await shows(api, { user: body, device: null })
    await b.call('PUT', `/v1/devices/${device}/preferences`, { body })
    for (const api of [a, b]) await shows(api, { user: body, device: body })
    await a.call('DELETE', `/v1/users/${user}/preferences`, { status: 204 })
    for (const api of [a, b]) await shows(api, { user: null, device: body })
  })

  test('a change holds for the connection at the other node', async () => {
    const user = unique('wide')
    const [a, b] = [cluster.api('a'), cluster.api('b')]
    const { device, token } = await a.register({ user })
    let connection
    // A node that compares its sessions with the store may ask a device to reconnect.
    const connect = async () => {
      if (!connection || connection.close) connection = await Device.connect(cluster.node('b').ws, token)
    }
    /** Publishes until a message has this outcome. */
    const arrives = (wanted) =>
      until(`a message that is ${wanted}`, async () => {
        await connect()
        const { id } = await a.publish({ to: { users: [user] }, when: 'connected', category: 'promo', data: 1 })
        const trace = async () => (await b.raw('GET', `/v1/notifications/${id}/devices/${device}`)).body
        const settled = await until('an outcome', async () => {
          const { steps = [], connected } = await trace()
          return steps.at(-1)?.outcome ?? (connected === false && 'offline')
        })
        return settled === wanted
      })
    await arrives('written')
    for (const path of [`/v1/users/${user}/preferences`, `/v1/devices/${device}/preferences`]) {
      await a.call('PUT', path, { body: { categories: { promo: { muted: true } } } })
      await arrives('muted')
      await a.call('DELETE', path, { status: 204 })
      await arrives('written')
    }
    await connection.leave()
  })
})
