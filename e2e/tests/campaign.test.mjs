/**
 * Campaigns: sent in batches, paused, resumed, aborted, overtaken; no recipient is lost when
 * the node is killed.
 */

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { DevPush, unique } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

const DEVICES = 2_000
let push, node, tokens
before(async () => {
  push = await DevPush.start()
  node = await push.node()
  tokens = [...(await push.tokens('apns', DEVICES / 2)), ...(await push.tokens('fcm', DEVICES / 2))]
  const zones = ['Asia/Tokyo', 'Europe/Berlin', 'America/New_York']
  const made = await node.api.registerBatch(
    tokens.map((push_token, n) => ({
      user: `u${n}`,
      device: `d${n}`,
      platform: push_token.service === 'apns' ? 'ios' : 'android',
      locale: n % 2 ? 'ja-JP' : 'en-GB',
      timezone: zones[n % 3],
      tags: { plan: n % 10 === 0 ? 'pro' : 'free' },
      topics: n % 4 === 0 ? ['sports'] : [],
      push_token,
    })),
  )
  assert.ok(made.every((one) => one.device), JSON.stringify(made.find((one) => !one.device)))
})
after(async () => {
  await node?.stop()
  await push?.stop()
})

const create = (body, query = '') => node.api.call('POST', `/v1/campaigns${query}`, { body, status: query ? 200 : 201 })
const show = (id) => node.api.call('GET', `/v1/campaigns/${id}`)
const act = (id, what) => node.api.call('POST', `/v1/campaigns/${id}/${what}`)
const state = (id, wanted) =>
  until(`campaign ${wanted}`, async () => {
    const now = await show(id)
    return now.state === wanted && now
  }, 60_000)
const total = async () => {
  const counts = await push.counts()
  return counts.apns.accepted + counts.fcm.accepted
}
const titled = async (title) => {
  const all = [...(await push.accepted('apns')), ...(await push.accepted('fcm'))]
  return all.filter((one) => one.payload.includes(title))
}

describe('campaign', () => {
  test('reaches everyone once, and reports the result', async () => {
    const before = await total()
    const { id } = await create({ name: 'all', audience: { everyone: true }, message: { notification: { title: 'Sale' } } })
    const done = await state(id, 'done')
    assert.equal(done.recipients, DEVICES)
    assert.equal(done.counts.pushed, DEVICES)
    assert.ok(done.latency.p50_ms > 0 && done.latency.p99_ms >= done.latency.p50_ms, JSON.stringify(done.latency))
    assert.equal((await total()) - before, DEVICES)
    const trace = await node.api.trace(done.notification, 'd7')
    assert.ok(trace.steps.some((step) => step.outcome === 'pushed'))
  })

  test('counts without sending', async () => {
    const before = await total()
    const audience = { topic: 'sports', devices: { platforms: ['ios'], tags: { plan: ['pro'] } } }
    const counted = await create({ name: 'dry', audience, message: { notification: { title: 'x' } } }, '?dry_run=true')
    const expected = tokens.filter((token, n) => n % 4 === 0 && n % 10 === 0 && token.service === 'apns').length
    assert.equal(counted.devices, expected, JSON.stringify(counted))
    assert.equal(await total(), before)
  })

  test('renders per user and per locale', async () => {
    const title = unique('for')
    const { id, state: first } = await create({
      name: 'template',
      audience: { upload: true },
      message: { notification: { title: `${title} {{name}}`, body: 'in English, {{points}} points' } },
      locales: { ja: { notification: { title: `${title} {{name}}`, body: '{{points}}ポイント' } } },
      variables: { points: '0' },
    })
    assert.equal(first, 'draft')
    const lines = [
      { user: 'u1', variables: { name: 'Aiko "A"', points: '7' } },
      { user: 'u2', variables: { name: 'Bob' } },
      { user: 'u3', notification: { title: `${title} of its own` } },
      { user: 'nobody', variables: { name: 'x' } },
    ]
    const body = lines.map((line) => JSON.stringify(line)).join('\n')
    await node.api.call('POST', `/v1/campaigns/${id}/recipients`, { body, headers: { 'content-type': 'application/x-ndjson' } })
    await act(id, 'start')
    const done = await state(id, 'done')
    const got = await titled(title)
    assert.equal(got.length, 3, JSON.stringify(done))
    const of = (n) => got.find((one) => one.token === tokens[n].token).payload
    assert.ok(of(1).includes('Aiko \\"A\\"') && of(1).includes('7ポイント'), of(1))
    assert.ok(of(2).includes('Bob') && of(2).includes('0 points'), of(2))
    assert.ok(of(3).includes('of its own'), of(3))
  })

  test('pauses, resumes and aborts; extra overtakes', async () => {
    const title = unique('slow')
    const { id } = await create({ name: 'slow', audience: { everyone: true }, message: { notification: { title } }, rate_per_second: 200, batch_size: 50 })
    await until('the first pushes', async () => (await titled(title)).length > 0)
    const news = unique('news')
    const extra = await create({ name: 'news', lane: 'extra', audience: { topic: 'sports' }, message: { notification: { title: news }, urgency: 'high' } })
    await state(extra.id, 'done')
    assert.equal((await titled(news)).length, DEVICES / 4)
    const running = await show(id)
    assert.equal(running.state, 'running', 'the extra campaign overtook it')
    await act(id, 'pause')
    // Pushes in flight at the pause still arrive; then the count stays constant.
    let last = -1
    await until('the campaign to stop', async () => {
      const now = (await show(id)).counts.pushed ?? 0
      const still = now === last
      last = now
      await new Promise((resolve) => setTimeout(resolve, 500))
      return still
    })
    const refused = await node.api.raw('POST', `/v1/campaigns/${id}/start`)
    assert.equal(refused.status, 409)
    await act(id, 'resume')
    await until('the campaign to continue', async () => ((await show(id)).counts.pushed ?? 0) > last)
    await act(id, 'abort')
    const aborted = await state(id, 'aborted')
    assert.ok(aborted.counts.pushed < DEVICES)
    const sent = (await titled(title)).length
    assert.ok(sent < DEVICES && sent >= last)
  })

  test('waits for nine o’clock in the timezone of the device', async () => {
    const { id } = await create({ name: 'local', audience: { everyone: true }, message: { notification: { title: unique('local') } }, local_time: '09:00' })
    const waiting = await until('all to be queued', async () => {
      const now = await show(id)
      return now.recipients === DEVICES && now
    })
    assert.ok((waiting.counts.pushed ?? 0) < DEVICES, JSON.stringify(waiting.counts))
    await act(id, 'abort')
  })

  test('is published to connected devices if its message has `when`', async () => {
    const title = unique('live')
    const { id } = await create({ name: 'live', audience: { devices: { tags: { plan: ['pro'] } } }, message: { when: 'stored', notification: { title }, push: { mode: 'never' } } })
    await state(id, 'done')
    const { token } = await node.api.register({ device: 'd10' })
    const { messages } = await node.api.me(token).inbox()
    assert.ok(messages.some((one) => one.notification.title === title), JSON.stringify(messages))
    assert.equal((await titled(title)).length, 0)
  })

  test('loses no recipient when the node is killed, and repeats at most the batches in flight', async () => {
    await push.call('DELETE', '/received')
    await push.behave({ latency: { fixed_ms: 150 } })
    const title = unique('killed')
    const { id } = await create({ name: 'killed', audience: { everyone: true }, message: { notification: { title } }, batch_size: 100, rate_per_second: 800 })
    for (const share of [0.2, 0.5, 0.8]) {
      await until('a part to be sent', async () => (await total()) > DEVICES * share)
      await node.kill()
      await node.spawn()
    }
    const done = await state(id, 'done')
    await push.behave({ latency: 'none' })
    assert.equal(done.counts.pushed, DEVICES, JSON.stringify(done.counts))
    const ids = new Map()
    for (const one of await titled(title)) ids.set(one.token, (ids.get(one.token) ?? new Set()).add(one.id))
    assert.equal(ids.size, DEVICES, 'every device')
    assert.ok([...ids.values()].every((of) => of.size === 1), 'a repetition has the same apns-id')
  })
})
