/**
 * Data of a small shop in the app `dev`: users, devices, notifications, campaigns and so on. Every field that a device or
 * a provider controls has a value that tries to break a page.
 */

import { operator } from './operator.mjs'
import { until } from './until.mjs'

export const XSS = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
const DEVICES = 130
const HOUR_MS = 3_600_000

const platformOf = (index) => (index % 2 === 0 ? 'ios' : 'android')
const nameOf = (index) => `${index % 2 === 0 ? 'iphone' : 'pixel'}-${String(index).padStart(3, '0')}`
const at = (ms) => new Date(Date.now() + ms).toISOString()

/**
 * `push` are the fakes whose credentials the node has; `user` and `text` replace the hostile values. Returns the ids of what
 * pages show.
 */
export async function openShop(node, push, { user = XSS, text = XSS } = {}) {
  const post = (path, body) => node.api.call('POST', path, { body })
  const { raw } = operator(node)
  const admin = async (method, path, body) => {
    const answer = await raw(method, path, body)
    if (answer.status >= 300) throw new Error(`${method} ${path} -> ${answer.status} ${answer.text}`)
  }
  await admin('POST', '/v1/apps', { name: 'shop' })

  const tokens = { ios: await push.tokens('apns', 30), android: await push.tokens('fcm', 30) }
  const locales = ['en-GB', 'ja-JP', 'de-DE', 'fr-FR']
  const devices = Array.from({ length: DEVICES }, (_, index) => ({
    device: nameOf(index),
    user: `user-${index % 60}`,
    platform: platformOf(index),
    locale: locales[index % 4],
    timezone: index % 4 === 1 ? 'Asia/Tokyo' : 'Europe/Berlin',
    app_version: `4.${index % 7}.0`,
    topics: ['news', ...(index % 3 === 0 ? ['sport/football'] : []), ...(index % 5 === 0 ? ['offers'] : [])],
    tags: { plan: index % 4 === 0 ? 'pro' : 'free' },
    ...(index < 60 ? { push_token: tokens[platformOf(index)].pop() } : {}),
  }))
  const tag = text.slice(0, 60)
  devices.push({ device: 'evil.device', user, platform: 'web', app_version: tag, tags: { plan: tag }, topics: ['news'] })
  const registered = await node.api.registerBatch(devices)
  for (const line of registered) if (line.device === undefined) throw new Error(JSON.stringify(line))

  await node.api.call('PUT', '/v1/users/user-2/preferences', {
    body: {
      muted_topics: ['offers'],
      categories: { promo: { muted: true }, news: { daily_max: 3 } },
      quiet_hours: { from: '22:00', to: '07:00', timezone: 'Asia/Tokyo' },
    },
  })
  for (const [title, category] of [['Your order has shipped', 'orders'], ['New log-in from Berlin', 'security'], [text, 'promo']]) {
    await node.api.publish({ to: { users: ['user-2', user] }, notification: { title, body: title }, category, item: {}, data: { note: text } })
  }
  await node.api.publish({ to: { topic: 'news' }, notification: { title: 'Extra', body: text }, retain: true })
  const pushed = await node.api.publish({
    to: { devices: ['iphone-004', 'pixel-001'] },
    notification: { title: 'Your order has shipped', body: 'It arrives tomorrow between 9 and 12.' },
    push: { mode: 'always' },
  })

  await admin('PUT', '/v1/apps/dev/experiments/checkout-button', {
    description: 'Does a short label sell more?',
    variants: [{ name: 'control', weight: 50 }, { name: 'short', weight: 30, data: { label: 'Buy' } }, { name: 'long', weight: 20 }],
  })
  const campaign = await post('/v1/campaigns', {
    name: 'Spring sale',
    audience: { topic: 'news' },
    message: { notification: { title: 'Spring sale', body: '20 % off until Sunday' } },
    locales: { ja: { notification: { title: 'スプリングセール', body: '日曜まで 20% オフ' } } },
  })
  const variants = await post('/v1/campaigns', {
    name: 'Checkout labels',
    audience: { everyone: true },
    message: { notification: { title: 'Your basket is waiting' } },
    experiment: {
      name: 'checkout-button',
      control: 'control',
      variants: { short: { notification: { title: 'Buy now' } }, long: { hold_out: true } },
    },
  })
  const draft = await post('/v1/campaigns', {
    name: 'Summer preview',
    audience: { everyone: true },
    message: { notification: { title: 'A first look at the summer' } },
    start: false,
  })
  const attributes_type = 'OrderAttributes'
  await post('/v1/activities', {
    id: 'order-17',
    to: { users: ['user-2', 'user-3'] },
    attributes_type,
    attributes: { order: 17 },
    content_state: { step: 'packed', note: text },
    alert: { title: 'Order 17', body: 'Packed' },
  })
  await post('/v1/activities', {
    id: 'order-18',
    to: { users: ['user-4'] },
    attributes_type,
    content_state: { step: 'packed' },
    alert: { title: 'Order 18' },
  })
  await post('/v1/push/channels', { name: 'match-7', topic: 'sport/football', storage: 'latest' })
  await admin('PUT', '/v1/apps/dev/notices/db-upgrade', {
    starts_at: at(26 * HOUR_MS),
    ends_at: at(28 * HOUR_MS),
    notification: { title: 'Maintenance on Sunday', body: 'Orders are paused for two hours.' },
    locales: { ja: { notification: { title: '日曜のメンテナンス' } } },
  })
  await admin('PUT', '/v1/apps/dev/topic-rules', {
    subscribe: [
      { topic: 'users/{user}/#', allow: 'anyone' },
      { topic: 'staff/#', allow: 'token' },
      { topic: '#', allow: 'anyone' },
    ],
    publish: [{ topic: '#', allow: 'server' }],
  })
  await admin('PATCH', '/v1/apps/dev/quotas', { devices: 150, publishes_per_second: 200, topics: 1000, inbox_bytes: 50_000_000 })
  await admin('POST', '/v1/apps/dev/keys', { name: 'billing-service', scopes: ['publish', 'read'] })

  const hasBegun = async ({ id }) => (await node.api.call('GET', `/v1/campaigns/${id}`)).done > 0
  await until('the campaigns to have outcomes', async () => (await hasBegun(campaign)) && (await hasBegun(variants)))
  await until('the push to be recorded', async () => (await node.api.trace(pushed.id, 'iphone-004')).attempts?.length > 0)
  return { pushed: pushed.id, campaign: campaign.id, variants: variants.id, draft: draft.id }
}
