/**
 * Campaigns that send the variants of an experiment: each user gets its variant, held-out users get
 * nothing; apps report openings, and the report compares the variants.
 */

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { DevPush, unique } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

const USERS = 300
let push, node, tokens
before(async () => {
  push = await DevPush.start()
  node = await push.node()
  tokens = await push.tokens('fcm', USERS)
  const made = await node.api.registerBatch(
    tokens.map((push_token, n) => ({ user: `u${n}`, device: `d${n}`, platform: 'android', push_token })),
  )
  assert.ok(made.every((one) => one.device), JSON.stringify(made.find((one) => !one.device)))
  const variants = ['plain', 'emoji', 'nothing'].map((name) => ({ name, weight: 1 }))
  await node.api.call('PUT', '/v1/apps/dev/experiments/cart', { body: { variants } })
})
after(async () => {
  await node?.stop()
  await push?.stop()
})

const show = (id) => node.api.call('GET', `/v1/campaigns/${id}`)
const done = (id) =>
  until('the campaign to be done', async () => {
    const now = await show(id)
    return now.state === 'done' && now
  }, 60_000)
const create = (body) => node.api.call('POST', '/v1/campaigns', { body, status: 201 })
const opened = async (device, ids) => {
  const { token } = await node.api.register({ device })
  return node.api.call('POST', '/v1/me/opened', { token, body: { ids } })
}
const near = (value, expected) => assert.ok(Math.abs(value - expected) < 1e-3, `${value}, not ${expected}`)

/** Wilson's interval, computed independently. */
const wilson = (count, of) => {
  const [z, p] = [1.959964, count / of]
  const half = z * Math.sqrt((p * (1 - p)) / of + (z * z) / (4 * of * of))
  return [(p + (z * z) / (2 * of) - half) / (1 + (z * z) / of), (p + (z * z) / (2 * of) + half) / (1 + (z * z) / of)]
}

describe('a campaign that sends variants', () => {
  test('sends each user its variant, and compares openings', async () => {
    const title = unique('cart')
    const { id } = await create({
      audience: { everyone: true },
      message: { notification: { title } },
      experiment: { name: 'cart', variants: { emoji: { notification: { title: `🛒 ${title}` } }, nothing: { hold_out: true } } },
    })
    const { experiment, counts } = await done(id)
    assert.equal(experiment.control, 'plain')
    const of = Object.fromEntries(experiment.variants.map((variant) => [variant.name, variant]))
    assert.equal(of.plain.targeted + of.emoji.targeted + of.nothing.targeted, USERS)
    assert.equal(counts.held_out, of.nothing.targeted)
    assert.ok(of.nothing.held_out && of.nothing.targeted > 50 && of.nothing.against_control === null)

    // The pushed variant equals the one that the experiment returns to the app.
    const received = (await push.accepted('fcm')).filter((one) => one.payload.includes(title))
    assert.equal(received.length, of.plain.targeted + of.emoji.targeted)
    const sent = { plain: [], emoji: [] }
    for (let n = 0; n < USERS; n++) {
      const mine = received.find((one) => one.token === tokens[n].token)
      const name = mine === undefined ? 'nothing' : mine.payload.includes('🛒') ? 'emoji' : 'plain'
      if (n % 10 === 0) {
        const assigned = await node.api.call('GET', `/v1/apps/dev/experiments/cart/devices/d${n}`)
        assert.equal(assigned.variant, name, `d${n}`)
      }
      if (mine) {
        assert.ok(mine.payload.includes(of[name].notification), 'the push carries the id of its variant')
        sent[name].push(`d${n}`)
      }
    }
    assert.equal(sent.plain.length, of.plain.targeted)

    // A fifth opens the one, three fifths the other; repeated reports count once.
    const fifth = (name, fifths) => sent[name].slice(0, Math.floor((sent[name].length * fifths) / 5))
    for (const [name, fifths] of [['plain', 1], ['emoji', 3]]) {
      for (const device of fifth(name, fifths)) {
        assert.deepEqual(await opened(device, [of[name].notification]), { opened: 1 })
      }
    }
    assert.deepEqual(await opened(sent.emoji[0], [of.emoji.notification]), { opened: 0 })
    const report = (await show(id)).experiment.variants
    const [plain, emoji] = [report[0], report[1]]
    assert.equal(plain.opened.count, fifth('plain', 1).length)
    assert.equal(emoji.opened.count, fifth('emoji', 3).length)
    const [low, high] = wilson(emoji.opened.count, emoji.targeted)
    near(emoji.opened.low, low)
    near(emoji.opened.high, high)
    const compared = emoji.against_control.opened
    near(compared.difference, emoji.opened.rate - plain.opened.rate)
    assert.ok(compared.distinguishable && compared.low > 0.1 && compared.p_value < 0.001, JSON.stringify(compared))
    assert.equal(emoji.against_control.delivered.distinguishable, false, 'all were delivered')

    const trace = await node.api.trace(of.emoji.notification, sent.emoji[0])
    assert.deepEqual(trace.steps.map((step) => step.outcome), ['pushed', 'opened'])

    // The campaign keeps the definition from its creation.
    await node.api.call('PATCH', '/v1/apps/dev/experiments/cart', { body: { killed: true } })
    const refused = await node.api.raw('POST', '/v1/campaigns', {
      body: { audience: { everyone: true }, message: { data: 1 }, experiment: { name: 'cart' } },
    })
    assert.equal(refused.status, 400)
    assert.equal((await show(id)).experiment.variants[1].opened.count, emoji.opened.count)
    await node.api.call('PATCH', '/v1/apps/dev/experiments/cart', { body: { killed: false } })
  })

  test('publishes its variants, and compares acknowledgements', async () => {
    const title = unique('stored')
    const { id } = await create({
      audience: { devices: { platforms: ['android'] } },
      message: { notification: { title }, when: 'stored', push: { mode: 'never' } },
      experiment: { name: 'cart', control: 'emoji', variants: { emoji: { notification: { title: `🛒 ${title}` } } } },
    })
    const { experiment } = await done(id)
    assert.equal(experiment.variants.reduce((sum, variant) => sum + variant.targeted, 0), USERS)
    const { variant } = await node.api.call('GET', '/v1/apps/dev/experiments/cart/devices/d5')
    const { token } = await node.api.register({ device: 'd5' })
    const inbox = await node.api.call('GET', '/v1/me/inbox', { token })
    const mine = inbox.messages.find((message) => message.notification?.title?.includes(title))
    assert.equal(mine.notification.title.includes('🛒'), variant === 'emoji')
    await node.api.call('POST', '/v1/me/opened', { token, body: { ids: [mine.id] } })
    const before = (await show(id)).experiment.variants.find((one) => one.name === variant)
    assert.deepEqual([before.opened.count, before.acked], [1, 0], 'opening does not acknowledge')
    await node.api.call('POST', '/v1/me/inbox/ack', { token, body: { ids: [mine.id] } })
    const after = (await show(id)).experiment.variants.find((one) => one.name === variant)
    assert.deepEqual([after.acked, after.delivered.count], [1, 1])
  })
})
