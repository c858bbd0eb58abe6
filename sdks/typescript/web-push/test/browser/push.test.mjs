/**
 * Page and worker in Chromium, against a real node that pushes to the strict fake of a push service. The fake decrypts, and the
 * test delivers the payload to the worker as Chromium's push service would. `PushManager` is the only part that is replaced:
 * its push service is on the internet.
 */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { DevPush } from '../../../../../e2e/lib/push.mjs'
import { until } from '../../../../../e2e/lib/until.mjs'
import { skip } from '../../../test/chromium.mjs'
import { discard } from '../../../test/discard.mjs'
import { bundle, Site } from '../../../test/site.mjs'

/** Subscriptions of the fake, which the browser "makes". They survive the page, as in a browser. */
const PUSH_MANAGER = `
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0)).buffer
  const call = (path, body) => fetch('/push-service' + path, { method: 'POST', body: JSON.stringify(body ?? {}) }).then((r) => r.status === 204 ? null : r.json())
  const made = ({ endpoint, keys, key }) => ({
    endpoint,
    options: { userVisibleOnly: true, applicationServerKey: bytes(key) },
    getKey: (name) => bytes(keys[name]),
    unsubscribe: () => call('/unsubscribe').then(() => true),
  })
  const encode = (value) => btoa(String.fromCharCode(...new Uint8Array(value))).replace(/\\+/g, '-').replace(/\\//g, '_').replace(/=+$/, '')
  PushManager.prototype.getSubscription = () => call('/get').then((one) => one && made(one))
  PushManager.prototype.subscribe = (options) => call('/subscribe', { key: encode(options.applicationServerKey) }).then(made)
`

let site, fakes, node, vapid
/** By the browser's context: its subscription. */
let current = null
let unsubscribed = 0
let made = []

before(async () => {
  if (skip) return
  fakes = await DevPush.start()
  node = await fakes.node({ services: ['webpush'] })
  vapid = fakes.info.vapid_public_key
  site = await Site.open({
    '/': { type: 'text/html', text: '<!doctype html><html lang="en"><title>Page</title><link rel="icon" href="data:,"><script src="/page.js"></script>' },
    '/orders/7': { type: 'text/html', text: '<!doctype html><title>Order</title>' },
    '/page.js': { type: 'text/javascript', text: PUSH_MANAGER + (await bundle(new URL('page.js', import.meta.url))) },
    '/worker.js': { type: 'text/javascript', text: PUSH_MANAGER + (await bundle(new URL('worker.js', import.meta.url))) },
    '/icon.png': { type: 'image/png', text: '' },
  })
  const listeners = site.server.listeners('request')
  site.server.removeAllListeners('request')
  site.server.on('request', async (request, response) => {
    if (request.url === '/vapid-key') return response.end(vapid)
    if (!request.url.startsWith('/push-service/')) return listeners[0](request, response)
    let body = ''
    for await (const chunk of request) body += chunk
    const json = (value) => (value ? response.end(JSON.stringify(value)) : response.writeHead(204).end())
    if (request.url.endsWith('/subscribe')) {
      const [token] = await fakes.tokens('webpush')
      current = { ...token, key: JSON.parse(body).key }
      made.push(current)
    } else if (request.url.endsWith('/unsubscribe')) {
      current = null
      unsubscribed++
      return json(null)
    }
    json(current)
  })
})
after(async () => {
  await site?.close()
  await discard(node)
  await fakes?.stop()
})

let browsers = 0

async function open(t, { device = `push-${++browsers}`, granted = true } = {}) {
  current = null
  made = []
  unsubscribed = 0
  vapid = fakes.info.vapid_public_key
  site.isSignedIn = true
  const context = await site.browser.newContext()
  t.after(() => context.close())
  if (granted) await context.grantPermissions(['notifications'], { origin: site.url })
  const tab = await context.newPage()
  const devtools = await context.newCDPSession(tab)
  const registrations = new Map()
  devtools.on('ServiceWorker.workerRegistrationUpdated', ({ registrations: all }) => {
    for (const one of all) registrations.set(one.scopeURL, one.registrationId)
  })
  await devtools.send('ServiceWorker.enable')
  const visit = (as = device) => tab.goto(`${site.url}/?${new URLSearchParams({ url: node.http, device: as })}`)
  await visit()
  const worker = () => until('the worker', () => context.serviceWorkers().at(-1))
  const inWorker = async (callback, argument) => (await worker()).evaluate(callback, argument)
  const me = () => tab.evaluate(() => window.request('GET', '/v1/me'))
  return {
    context,
    tab,
    device,
    visit,
    inWorker,
    me,
    subscribe: (prompt) => tab.evaluate((prompt) => window.subscribe(prompt), prompt),
    deliver: async (data) => {
      const registrationId = await until('the registration', () => registrations.get(`${site.url}/`))
      await devtools.send('ServiceWorker.deliverPushMessage', { origin: site.url, registrationId, data })
    },
    /** What the node pushes to the browser's subscription. */
    push: async (message) => {
      const { id } = await node.api.publish({ to: { users: [`user-of-${device}`] }, push: { mode: 'always' }, ...message })
      const payload = await until('the push', async () => (await fakes.accepted('webpush', current.endpoint)).map((one) => one.payload).find((one) => one.includes(id)))
      return { id, payload }
    },
    /** In the order in which they were shown. */
    notifications: () => inWorker(() => self.shown),
    /** The user clicks on the notification with this title. */
    click: (title, action = '') =>
      inWorker(
        ({ title, action }) => {
          const { data } = self.shown.findLast((one) => one.title === title).options
          const notification = { title, data: structuredClone(data), close: () => self.closed.push(title) }
          self.dispatchEvent(Object.assign(new ExtendableEvent('notificationclick'), { notification, action }))
        },
        { title, action },
      ),
    windows: () => inWorker(() => self.windows),
    errors: () => inWorker(() => self.errors),
    opened: (id) => until('the report', async () => (await node.api.notification(id)).counts.opened === 1),
  }
}

test('subscribing registers the push token, once; what the node pushes is shown', { skip }, async (t) => {
  const browser = await open(t)
  assert.equal(await browser.tab.evaluate(() => window.permission()), 'granted')
  const endpoint = await browser.subscribe()
  assert.equal((await browser.me()).push_token.endpoint, endpoint)
  const registered = (await browser.me()).push_tokens[0].registered_at
  await browser.visit()
  assert.equal(await browser.subscribe(false), endpoint)
  assert.equal((await browser.me()).push_tokens[0].registered_at, registered)

  const url = `${site.url}/orders/7`
  const declarative = await browser.push({ notification: { title: 'Declarative', body: 'B', url }, data: { n: 1 } })
  assert.equal(JSON.parse(declarative.payload).web_push, 8030)
  const typed = await browser.push({
    notification: { title: '狼煙', level: 'passive', badge: 3, lang: 'ja', url, actions: [{ id: 'yes', title: 'Yes' }, { id: 'more', title: 'More', url: `${site.url}/more` }] },
  })
  const classic = await browser.push({ notification: { body: 'only a body' } })
  for (const { payload } of [declarative, typed, classic]) await browser.deliver(payload)
  await browser.deliver(classic.payload)
  const shown = await until('four notifications', async () => {
    const all = await browser.notifications()
    return all.length === 4 && all
  })
  const remembered = (id, url, data, actions = {}) => ({ noroshi: { id, url, actions, data } })
  assert.deepEqual(shown, [
    { title: 'Declarative', options: { body: 'B', icon: '/icon.png', tag: declarative.id, data: remembered(declarative.id, url, { n: 1 }) } },
    {
      title: '狼煙',
      options: {
        icon: '/icon.png', tag: typed.id, silent: true, lang: 'ja', actions: [{ action: 'yes', title: 'Yes' }, { action: 'more', title: 'More' }],
        data: remembered(typed.id, url, undefined, { yes: url, more: `${site.url}/more` }),
      },
    },
    ...Array(2).fill({ title: '127.0.0.1', options: { body: 'only a body', icon: '/icon.png', tag: classic.id, data: remembered(classic.id, undefined, undefined) } }),
  ])
  assert.deepEqual(await browser.errors(), [])
})

test('a click opens the page and is reported with a token of the session, while no page is open', { skip }, async (t) => {
  const browser = await open(t)
  await browser.subscribe()
  const { id, payload } = await browser.push({ notification: { title: 'Order', url: `${site.url}/orders/7` } })
  await browser.deliver(payload)
  await until('the notification', async () => (await browser.notifications()).length === 1)
  // No page of the site is left; the worker is.
  await browser.tab.goto('about:blank')
  await browser.click('Order')
  await browser.opened(id)
  assert.deepEqual(await browser.windows(), [`${site.url}/orders/7`])
  assert.deepEqual(await browser.inWorker(() => self.closed), ['Order'])
  assert.ok(site.asked.some(({ device, worker }) => device === browser.device && worker === 'yes'))
  // Nothing that is stored is a credential.
  const stored = await browser.inWorker(async () => {
    const database = await new Promise((resolve) => (indexedDB.open('noroshi-web-push').onsuccess = ({ target }) => resolve(target.result)))
    const all = (name) => new Promise((resolve) => (database.transaction(name).objectStore(name).getAll().onsuccess = ({ target }) => resolve(target.result)))
    return JSON.stringify([await all('state'), await all('opened'), await caches.keys()])
  })
  assert.deepEqual(JSON.parse(stored), [[{ device: browser.device, key: fakes.info.vapid_public_key, isChanged: false }], [], []])
})

test('a page with the address is focused; a page that shows notifications itself gets them; a button has its own address', { skip }, async (t) => {
  const browser = await open(t)
  await browser.subscribe()
  await browser.inWorker(() => {
    self.focused = []
    WindowClient.prototype.focus = async function () {
      self.focused.push(new URL(this.url).pathname)
      return this
    }
  })
  const show = async (title, notification) => {
    const { payload } = await browser.push({ notification: { title, ...notification }, data: { n: title } })
    await browser.deliver(payload)
    await until(title, async () => (await browser.notifications()).some((one) => one.title === title))
  }
  const order = await browser.context.newPage()
  await order.goto(`${site.url}/orders/7`)
  await show('Same', { url: `${site.url}/orders/7` })
  await browser.click('Same')
  await until('the focus', async () => (await browser.inWorker(() => self.focused)).join() === '/orders/7')
  await order.close()

  await browser.tab.evaluate(() => window.listen(true))
  await show('Own', { url: `${site.url}/orders/7`, actions: [{ id: 'more', title: 'More', url: `${site.url}/more` }, { id: 'later', title: 'Later' }] })
  await browser.click('Own', 'more')
  await until('the page to show it', async () => (await browser.tab.evaluate(() => window.opened.length)) === 1)
  const [opened] = await browser.tab.evaluate(() => window.opened)
  assert.deepEqual([opened.url, opened.action, opened.data], [`${site.url}/more`, 'more', { n: 'Own' }])
  await until('the focus', async () => (await browser.inWorker(() => self.focused)).join() === '/orders/7,/')
  assert.deepEqual(await browser.windows(), [])

  await show('Later', { url: `${site.url}/orders/7`, actions: [{ id: 'later', title: 'Later' }] })
  await browser.click('Later', 'later')
  await show('Scheme', { url: 'javascript:alert(1)' })
  await browser.click('Scheme')
  await until('the page to show it', async () => (await browser.tab.evaluate(() => window.opened.length)) === 2)
  assert.equal((await browser.tab.evaluate(() => window.opened))[1].url, `${site.url}/`)
  await show('Elsewhere', { url: 'https://elsewhere.example/' })
  await browser.click('Elsewhere')
  await until('the window', async () => (await browser.windows()).join() === 'https://elsewhere.example/')
})

test('a report waits for the network and for a session; the page sends what the worker could not', { skip }, async (t) => {
  const browser = await open(t)
  await browser.subscribe()
  const first = await browser.push({ notification: { title: 'First' } })
  const second = await browser.push({ notification: { title: 'Second' } })
  await browser.deliver(first.payload)
  await until('the notification', async () => (await browser.notifications()).length === 1)
  await browser.inWorker(() => {
    const { fetch } = self
    self.isOffline = true
    self.fetch = (...args) => (self.isOffline && String(args[0]).includes('/v1/me/opened') ? Promise.reject(new TypeError('offline')) : fetch(...args))
  })
  await browser.click('First')
  await until('the attempts to fail', async () => (await browser.errors()).includes('unavailable '))
  assert.equal((await node.api.notification(first.id)).counts.opened ?? 0, 0)
  await browser.inWorker(() => (self.isOffline = false))
  // The next push is the next attempt.
  await browser.deliver(second.payload)
  await browser.opened(first.id)

  site.isSignedIn = false
  await browser.inWorker(() => (self.isOffline = true))
  await browser.click('Second')
  site.isSignedIn = true
  await browser.visit()
  await until('the report to wait', async () => {
    await browser.subscribe(false)
    return (await node.api.notification(second.id)).counts.opened === 1
  })
})

test('a changed VAPID key, a subscription that the push service replaced, and another device: subscribed and registered again', { skip }, async (t) => {
  const browser = await open(t)
  const first = await browser.subscribe()
  vapid = 'BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4'
  await browser.visit()
  const second = await browser.subscribe(false)
  assert.notEqual(second, first)
  assert.deepEqual([made.length, unsubscribed, made[1].key], [2, 1, vapid])
  assert.equal((await browser.me()).push_token.endpoint, second)

  // The push service replaced the subscription: no page is involved.
  const old = made[1]
  current = null
  await browser.inWorker(() => self.dispatchEvent(new ExtendableEvent('pushsubscriptionchange')))
  const third = await until('another subscription', async () => current?.endpoint)
  assert.notEqual(third, old.endpoint)
  await until('the registration', async () => (await browser.me()).push_token.endpoint === third)
  assert.equal(current.key, vapid)

  // Another device: its messages are not those of the first one.
  await browser.visit('push-other')
  const fourth = await browser.subscribe(false)
  assert.notEqual(fourth, third)
  assert.equal((await browser.me()).push_token.endpoint, fourth)

  await browser.tab.evaluate(() => window.unsubscribe())
  assert.equal(current, null)
  assert.equal((await browser.me()).push_token, null)
  await browser.inWorker(() => self.dispatchEvent(new ExtendableEvent('pushsubscriptionchange')))
  await browser.visit('push-other')
  assert.equal(current, null)
})

test('without a permission nothing happens unless the user asks', { skip }, async (t) => {
  const browser = await open(t, { granted: false })
  assert.equal(await browser.subscribe(false), undefined)
  assert.match(await browser.subscribe(true), /^permission_(denied|dismissed)$/)
  assert.deepEqual(made, [])
})

test('a wrong key is an error', { skip }, async (t) => {
  const browser = await open(t)
  vapid = 'AAAA'
  assert.equal(await browser.subscribe(), 'invalid_key')
})

test('the application changes what is shown, and payloads of its own', { skip }, async (t) => {
  const browser = await open(t)
  await browser.subscribe()
  await browser.inWorker(() => {
    self.show = (shown, { data, payload }) => {
      if (typeof payload === 'string') return { title: payload, options: {} }
      if (data?.hidden) return null
      if (data?.broken) throw new Error('broken')
      return { ...shown, title: `${shown.title}!` }
    }
  })
  await browser.deliver('plain text')
  await browser.deliver(JSON.stringify({ id: 'a', notification: { title: 'Hidden' }, data: { hidden: true } }))
  await browser.deliver(JSON.stringify({ id: 'b', notification: { title: 'Broken' }, data: { broken: true } }))
  await browser.deliver(JSON.stringify({ id: 'c', notification: { title: 'Changed' } }))
  await until('three notifications', async () => (await browser.notifications()).length === 3)
  assert.deepEqual((await browser.notifications()).map(({ title }) => title).sort(), ['Broken', 'Changed!', 'plain text'])
  await browser.inWorker(() => (self.show = undefined))
  await browser.deliver(JSON.stringify({ id: 'd', data: { n: 1 } }))
  await until('the error', async () => (await browser.errors()).includes('bad_payload '))
})
