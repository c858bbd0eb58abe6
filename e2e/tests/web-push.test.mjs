/**
 * Web Push with npm packages: `web-push-testing` receives a node's pushes, as in a library's own tests, and `web-push`
 * pushes to the fake push service. Declarative payloads, with a parser written from the specification and with a service
 * worker in Chromium.
 */

import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer as createSite } from 'node:http'
import { createRequire } from 'node:module'
import { connect } from 'node:net'
import { Agent } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createServer } from 'node:tls'
import { after, before, describe, test } from 'node:test'

import { chromium } from 'playwright-core'
import webpush from 'web-push'

import { issueFromAuthority } from '../lib/certificate.mjs'
import { parseDeclarative } from '../lib/declarative.mjs'
import { Device } from '../lib/device.mjs'
import { Node, freePort } from '../lib/node.mjs'
import { DevPush, addCredential, unique } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

const require = createRequire(import.meta.url)
const { PushApiModel } = require('web-push-testing/src/PushApiModel.js')
const WebPushTestingServer = require('web-push-testing/src/server.js')

const SUBJECT = 'mailto:ops@example.com'

describe('web-push-testing', () => {
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-web-push-'))
  let testing, tls, node, vapid, origin

  before(async () => {
    const port = await freePort()
    testing = new WebPushTestingServer(new PushApiModel(), port)
    testing.startServer()
    // It only supports http, but push services require https.
    const [ca, cert, key] = ['ca.pem', 'server.pem', 'server.key'].map((name) => join(folder, name))
    issueFromAuthority(ca, cert, key)
    tls = createServer({ cert: readFileSync(cert), key: readFileSync(key), ALPNProtocols: ['http/1.1'] }, (outer) => {
      const inner = connect(port, 'localhost')
      outer.pipe(inner).pipe(outer)
      for (const [one, other] of [[outer, inner], [inner, outer]]) {
        one.on('error', () => other.destroy())
        one.on('close', () => other.destroy())
      }
    })
    await new Promise((resolve) => tls.listen(0, '127.0.0.1', resolve))
    origin = `https://localhost:${tls.address().port}`
    node = await Node.start({ args: ['--set', `egress.ca_file=${ca}`] })
    const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    const shown = await addCredential(node, {
      service: 'webpush',
      private_key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
      subject: SUBJECT,
    })
    vapid = shown.public_key ?? shown.settings?.public_key
    assert.ok(vapid, JSON.stringify(shown))
    const ask = (path, body) =>
      fetch(`http://localhost:${port}${path}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body ?? {}) })
    testing.ask = async (path, body) => {
      const answer = await ask(path, body)
      assert.equal(answer.status, 200, await answer.clone().text())
      return answer.headers.get('content-type').includes('json') ? (await answer.json()).data : undefined
    }
  })

  after(async () => {
    await node?.stop()
    tls?.close()
    testing?._server.close()
    rmSync(folder, { recursive: true, force: true })
  })

  /** A device with a subscription at the service; `{device, token, clientHash}`. */
  async function browser(applicationServerKey) {
    const made = await testing.ask('/subscribe', { userVisibleOnly: 'true', applicationServerKey })
    const endpoint = made.endpoint.replace(/^http:\/\/[^/]+/, origin)
    const push_token = { service: 'webpush', endpoint, keys: made.keys }
    return { ...(await node.api.register({ user: unique('user'), device: unique('device'), push_token })), clientHash: made.clientHash }
  }

  const push = (device, message) => node.api.publish({ to: { devices: [device] }, push: { mode: 'always' }, ...message })

  const outcome = (id, device, wanted) =>
    until(`${wanted} in the trace`, async () => {
      const { steps } = await node.api.trace(id, device)
      return steps.find((step) => step.outcome === wanted)
    })

  test('decrypts pushes with the key of the subscription', async () => {
    const { device, clientHash } = await browser(vapid)
    const notification = { title: '狼煙 🔥', body: '"b"\n' }
    const { id } = await push(device, { notification, data: { n: 1 } })
    await outcome(id, device, 'pushed')
    const { messages } = await testing.ask('/get-notifications', { clientHash })
    assert.deepEqual(messages.map((text) => JSON.parse(text)), [{ id, notification, data: { n: 1 } }])
  })

  test('accepts the largest payload', async () => {
    const { device, clientHash } = await browser(vapid)
    const payload = 'x'.repeat(3_991)
    const { id } = await push(device, { notification: { title: 't' }, push: { mode: 'always', webpush: { payload } } })
    await outcome(id, device, 'pushed')
    const { messages } = await testing.ask('/get-notifications', { clientHash })
    assert.deepEqual(messages, [JSON.stringify(payload)])
  })

  test('reports an expired subscription, which is removed', async () => {
    const { device, token, clientHash } = await browser(vapid)
    await testing.ask(`/expire-subscription/${clientHash}`)
    const { id } = await push(device, { notification: { title: 't' } })
    await outcome(id, device, 'push_token_gone')
    assert.equal((await node.api.me(token).show()).push_token ?? null, null)
  })

  test('rejects a subscription of another key', async () => {
    const { device, clientHash } = await browser(webpush.generateVAPIDKeys().publicKey)
    const { id } = await push(device, { notification: { title: 't' } })
    await outcome(id, device, 'push_refused')
    assert.deepEqual((await testing.ask('/get-notifications', { clientHash })).messages, [])
  })
})

describe('web-push', () => {
  let fakes, agent, vapidDetails
  before(async () => {
    fakes = await DevPush.start()
    agent = new Agent({ ca: fakes.info.ca })
    const { private_key: privateKey } = fakes.info.credentials.webpush
    vapidDetails = { subject: SUBJECT, publicKey: fakes.info.vapid_public_key, privateKey }
  })
  after(async () => {
    agent?.destroy()
    await fakes?.stop()
  })

  const send = (subscription, data, options) =>
    webpush.sendNotification(subscription, data, { vapidDetails, TTL: 60, agent, ...options })

  for (const [name, data] of Object.entries({ text: 'hello', unicode: '狼煙 🔥', 'the most that fits': 'x'.repeat(3_993) })) {
    test(`is accepted by the fake: ${name}`, async () => {
      const [subscription] = await fakes.tokens('webpush')
      const answer = await send(subscription, data, { urgency: 'low', topic: 'score' })
      assert.equal(answer.statusCode, 201)
      const [got] = await fakes.received('webpush', subscription.endpoint)
      assert.equal(got.payload, data)
      assert.deepEqual([got.headers.ttl, got.headers.urgency, got.headers.topic], ['60', 'low', 'score'])
    })
  }

  test('is rejected by the fake with another key than the subscription\'s', async () => {
    const [subscription] = await fakes.tokens('webpush')
    const other = { subject: SUBJECT, ...webpush.generateVAPIDKeys() }
    await assert.rejects(send(subscription, 'x', { vapidDetails: other }), { statusCode: 403 })
  })

  test('is rejected by the fake with the encoding of a draft', async () => {
    const [subscription] = await fakes.tokens('webpush')
    await assert.rejects(send(subscription, 'x', { contentEncoding: 'aesgcm' }), { statusCode: 400 })
  })
})

describe('declarative Web Push', () => {
  const PAGE = 'https://shop.example/'
  let fakes, node
  before(async () => {
    fakes = await DevPush.start()
    node = await fakes.node({ services: ['webpush'] })
  })
  after(async () => {
    await node?.stop()
    await fakes?.stop()
  })

  /** What a browser decrypts, and what the API answered. */
  async function pushed(message) {
    const [push_token] = await fakes.tokens('webpush')
    const { device } = await node.api.register({ user: unique('user'), device: unique('device'), push_token })
    const answer = await node.api.publish({ to: { devices: [device] }, push: { mode: 'always' }, ...message })
    const [got] = await until('the push', async () => {
      const all = await fakes.accepted('webpush', push_token.endpoint)
      return all.length > 0 && all
    })
    return { ...answer, payload: got.payload }
  }

  const parse = (payload) => parseDeclarative(Buffer.from(payload), PAGE)

  test('a title and a URL suffice, and the classic members stay where they were', async () => {
    const notification = { title: '狼煙 "🔥"', body: 'b\n', url: 'https://shop.example/o/7?a=1&b=ü#x' }
    const { id, payload, warnings } = await pushed({ notification, data: { n: 1 } })
    assert.equal(warnings, undefined)
    const parsed = parse(payload)
    assert.deepEqual(parsed.complaints, [])
    assert.deepEqual(parsed.notification, { title: notification.title, body: 'b\n', navigate: new URL(notification.url).href })
    assert.deepEqual([parsed.appBadge, parsed.mutable], [null, true])
    const { web_push, ...classic } = JSON.parse(payload)
    assert.equal(web_push, 8030)
    const shown = { ...notification, navigate: notification.url, mutable: true }
    assert.deepEqual(classic, { id, notification: shown, data: { n: 1 }, mutable: true })
  })

  test('every typed field has the type that browsers require', async () => {
    const actions = [
      { id: 'yes', title: 'Yes' },
      { id: 'more', title: 'More', url: 'https://shop.example/more' },
    ]
    const { payload, warnings } = await pushed({
      notification: {
        title: 'T', body: 'B', url: 'https://shop.example/1', image: 'https://shop.example/i.png', level: 'passive', relevance: 0.5,
        sound: { name: 'a.caf', critical: true, volume: 0.5 }, badge: 3, thread: 't', actions, mutable: true,
        content_available: true, category: 'C', icon: 'https://shop.example/icon.png', lang: 'ar', dir: 'rtl',
        android_channel: 'c', android_icon: 'i', android_color: '#123456', android_click_action: 'A', fcm_analytics_label: 'l',
      },
    })
    const parsed = parse(payload)
    assert.deepEqual(parsed.complaints, [])
    assert.deepEqual(parsed.notification, {
      title: 'T', body: 'B', navigate: 'https://shop.example/1', image: 'https://shop.example/i.png',
      icon: 'https://shop.example/icon.png', lang: 'ar', dir: 'rtl', silent: true,
      actions: [
        { action: 'yes', title: 'Yes', navigate: 'https://shop.example/1' },
        { action: 'more', title: 'More', navigate: 'https://shop.example/more' },
      ],
    })
    assert.deepEqual([parsed.appBadge, parsed.mutable], [3, true])
    const fields = ['relevance', 'sound', 'thread', 'category', 'content_available'].map((name) => `notification.${name}`)
    assert.deepEqual(new Set(warnings.map(({ field }) => field)), new Set(fields))
    assert.ok(warnings.every(({ service, warning }) => service === 'webpush' && warning.length > 0))
  })

  test('without a title or a web URL only a service worker can show it, and the answer names the reason', async () => {
    for (const notification of [{ title: 'T' }, { body: 'B', url: 'https://a.example/' }, { title: 'T', url: 'shop://o/7' }]) {
      const plain = await pushed({ notification, data: { n: 1 } })
      assert.equal(parse(plain.payload), null)
      // Byte for byte as on a live connection.
      assert.equal(plain.payload, JSON.stringify({ id: plain.id, notification, data: { n: 1 } }))
      assert.equal(plain.warnings, undefined)
      const typed = await pushed({ notification: { ...notification, badge: 1 } })
      assert.equal(parse(typed.payload), null)
      const missing = notification.title === undefined ? 'title' : 'url'
      assert.deepEqual(typed.warnings.map(({ field }) => field), [`notification.${missing}`])
    }
  })

  test('live clients receive the notification as it was written', async () => {
    const { device, token } = await node.api.register({ user: unique('user'), device: unique('device') })
    const socket = await Device.connect(node.ws, token)
    const notification = { title: 'T', url: 'https://a.example/', badge: 2, actions: [{ id: 'a', title: 'A' }], relevance: 0.5 }
    await node.api.publish({ to: { devices: [device] }, notification })
    assert.deepEqual((await socket.msg()).notification, notification)
    await socket.leave()
  })

  const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync)

  /** A service worker written for the classic payload. */
  const WORKER = `
    self.addEventListener('install', () => self.skipWaiting())
    self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()))
    self.addEventListener('push', (event) => {
      const { id, notification, data } = event.data.json()
      const { title, body, url, image, actions } = notification
      event.waitUntil(self.registration.showNotification(title, { body, image, actions, data: { id, url, data } }))
    })`

  test('an ordinary service worker in Chromium shows the same payload', async (t) => {
    if (!executablePath) {
      assert.ok(!process.env.CI, 'no Chromium (Debian package chromium)')
      return t.skip('no Chromium (Debian package chromium)')
    }
    const notification = { title: '狼煙', body: 'B', url: 'https://shop.example/1', badge: 3, level: 'passive', actions: [{ id: 'a', title: 'A' }] }
    const plain = await pushed({ notification: { title: 'Plain', body: 'P', url: 'https://shop.example/2' }, data: { n: 1 } })
    const typed = await pushed({ notification, data: { n: 2 } })
    for (const { payload } of [plain, typed]) assert.notEqual(parse(payload), null)

    const site = createSite((request, response) => {
      const isWorker = request.url === '/worker.js'
      response.setHeader('content-type', isWorker ? 'text/javascript' : 'text/html')
      response.end(isWorker ? WORKER : '<!doctype html><title>shop</title>')
    })
    await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve))
    const origin = `http://127.0.0.1:${site.address().port}`
    // prettier-ignore
    const args = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync']
    const browser = await chromium.launch({ executablePath, headless: true, args })
    try {
      const context = await browser.newContext()
      await context.grantPermissions(['notifications'], { origin })
      const tab = await context.newPage()
      await tab.goto(origin)
      const devtools = await context.newCDPSession(tab)
      const registrations = new Map()
      devtools.on('ServiceWorker.workerRegistrationUpdated', (event) => {
        for (const one of event.registrations) registrations.set(one.scopeURL, one.registrationId)
      })
      await devtools.send('ServiceWorker.enable')
      await tab.evaluate(async () => {
        await navigator.serviceWorker.register('/worker.js')
        await navigator.serviceWorker.ready
      })
      const registrationId = await until('the registration', async () => registrations.get(`${origin}/`))
      for (const { payload } of [plain, typed]) {
        await devtools.send('ServiceWorker.deliverPushMessage', { origin, registrationId, data: payload })
      }
      const shown = await until('two notifications', async () => {
        const all = await tab.evaluate(async () => {
          const registration = await navigator.serviceWorker.ready
          const pick = ({ title, body, data, actions }) => ({ title, body, data, actions: actions.map(({ action, title }) => ({ action, title })) })
          return (await registration.getNotifications()).map(pick)
        })
        return all.length === 2 && all
      })
      shown.sort((a, b) => a.data.data.n - b.data.data.n)
      assert.deepEqual(shown, [
        { title: 'Plain', body: 'P', actions: [], data: { id: plain.id, url: 'https://shop.example/2', data: { n: 1 } } },
        {
          title: '狼煙', body: 'B', actions: [{ action: 'a', title: 'A' }],
          data: { id: typed.id, url: 'https://shop.example/1', data: { n: 2 } },
        },
      ])
    } finally {
      await browser.close()
      site.close()
      site.closeAllConnections()
    }
  })
})
