/** Data of a small shop: users, devices, notifications, campaigns and so on, with names that try to break the page. */

import { until } from './node.mjs'

/** In every field that a device or a provider controls. */
export const XSS = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'
const HOUR_MS = 3_600_000

export async function seed(node) {
  const call = async (base, token, method, path, body) => {
    const answer = await fetch(base + path, {
      method,
      headers: { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`)
    return text ? JSON.parse(text) : undefined
  }
  const api = (method, path, body) => call(node.http, node.keys.dev, method, path, body)
  const admin = (method, path, body) => call(node.admin, node.operator, method, path, body)
  const at = (ms) => new Date(Date.now() + ms).toISOString()

  await admin('POST', '/v1/apps', { name: 'shop' })
  node.keys.shop = (await admin('POST', '/v1/apps/shop/keys', { name: 'console', scopes: ['publish', 'devices', 'read', 'admin'] })).key

  for (const service of ['apns', 'fcm']) await admin('POST', '/v1/apps/dev/push', node.push.credentials[service])
  const tokens = (service, count) => fetch(`${node.push.control}/tokens`, { method: 'POST', body: JSON.stringify({ service, count }) }).then((answer) => answer.json())
  const [apns, fcm] = [(await tokens('apns', 30)).push_tokens, (await tokens('fcm', 30)).push_tokens]

  const locales = ['en-GB', 'ja-JP', 'de-DE', 'fr-FR']
  for (let index = 0; index < 130; index += 1) {
    const ios = index % 2 === 0
    await api('POST', '/v1/devices', {
      device: `${ios ? 'iphone' : 'pixel'}-${String(index).padStart(3, '0')}`,
      user: `user-${index % 60}`,
      platform: ios ? 'ios' : 'android',
      locale: locales[index % 4], timezone: index % 4 === 1 ? 'Asia/Tokyo' : 'Europe/Berlin', app_version: `4.${index % 7}.0`,
      topics: ['news', ...(index % 3 === 0 ? ['sport/football'] : []), ...(index % 5 === 0 ? ['offers'] : [])],
      tags: { plan: index % 4 === 0 ? 'pro' : 'free' },
      ...(index < 60 ? { push_token: ios ? apns[index / 2] : fcm[(index - 1) / 2] } : {}),
    })
  }
  await api('POST', '/v1/devices', { device: 'evil.device', user: XSS, platform: 'web', app_version: XSS.slice(0, 60), tags: { plan: XSS.slice(0, 60) }, topics: ['news'] })

  await api('PUT', '/v1/users/user-2/preferences', { muted_topics: ['offers'], categories: { promo: { muted: true }, news: { daily_max: 3 } }, quiet_hours: { from: '22:00', to: '07:00', timezone: 'Asia/Tokyo' } })
  for (const [title, category] of [['Your order has shipped', 'orders'], ['New sign-in from Berlin', 'security'], [XSS, 'promo']]) {
    await api('POST', '/v1/notifications', { to: { users: ['user-2', XSS] }, notification: { title, body: title }, category, item: {}, data: { note: XSS } })
  }
  await api('POST', '/v1/notifications', { to: { topic: 'news' }, notification: { title: 'Extra', body: XSS }, retain: true })
  const pushed = await api('POST', '/v1/notifications', { to: { devices: ['iphone-004', 'pixel-001'] }, notification: { title: 'Your order has shipped', body: 'It arrives tomorrow between 9 and 12.' }, push: { mode: 'always' } })

  await admin('PUT', '/v1/apps/dev/experiments/checkout-button', { description: 'Does a short label sell more?', variants: [{ name: 'control', weight: 50 }, { name: 'short', weight: 30, data: { label: 'Buy' } }, { name: 'long', weight: 20 }] })
  const running = await api('POST', '/v1/campaigns', { name: 'Spring sale', audience: { topic: 'news' }, message: { notification: { title: 'Spring sale', body: '20 % off until Sunday' } }, locales: { ja: { notification: { title: 'スプリングセール', body: '日曜まで 20% オフ' } } } })
  const variants = await api('POST', '/v1/campaigns', { name: 'Checkout labels', audience: { everyone: true }, message: { notification: { title: 'Your basket is waiting' } }, experiment: { name: 'checkout-button', control: 'control', variants: { short: { notification: { title: 'Buy now' } }, long: { hold_out: true } } } })
  const draft = await api('POST', '/v1/campaigns', { name: `Draft ${XSS}`.slice(0, 100), audience: { everyone: true }, message: { notification: { title: 'Hello' } }, start: false })
  await api('POST', '/v1/activities', { id: 'order-17', to: { users: ['user-2', 'user-3'] }, attributes_type: 'OrderAttributes', attributes: { order: 17 }, content_state: { step: 'packed', note: XSS }, alert: { title: 'Order 17', body: 'Packed' } })
  await api('POST', '/v1/activities', { id: 'order-18', to: { users: ['user-4'] }, attributes_type: 'OrderAttributes', content_state: { step: 'packed' }, alert: { title: 'Order 18' } })
  await api('POST', '/v1/push/channels', { name: 'match-7', topic: 'sport/football', storage: 'latest' })
  await admin('PUT', '/v1/apps/dev/notices/db-upgrade', { starts_at: at(26 * HOUR_MS), ends_at: at(28 * HOUR_MS), notification: { title: 'Maintenance on Sunday', body: 'Orders are paused for two hours.' }, locales: { ja: { notification: { title: '日曜のメンテナンス' } } } })
  await admin('PUT', '/v1/apps/dev/topic-rules', { subscribe: [{ topic: 'users/{user}/#', allow: 'anyone' }, { topic: 'staff/#', allow: 'token' }, { topic: '#', allow: 'anyone' }], publish: [{ topic: '#', allow: 'server' }] })
  await admin('PATCH', '/v1/apps/dev/quotas', { devices: 150, publishes_per_second: 200, topics: 1000, inbox_bytes: 50_000_000 })
  await admin('POST', '/v1/apps/dev/keys', { name: 'billing-service', scopes: ['publish', 'read'] })

  await until('the campaign has recipients', async () => (await api('GET', `/v1/campaigns/${running.id}`)).done > 0)
  await until('the variants have outcomes', async () => (await api('GET', `/v1/campaigns/${variants.id}`)).done > 0)
  await until('the push is recorded', async () => (await api('GET', `/v1/notifications/${pushed.id}/devices/iphone-004`)).attempts?.length > 0)
  return { pushed: pushed.id, campaign: running.id, variants: variants.id, draft: draft.id }
}
