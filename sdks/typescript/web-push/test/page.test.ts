/** The page: permissions, and what the service knows. */

import assert from 'node:assert/strict'
import { beforeEach, test } from 'vitest'

import { permission, subscribe, unsubscribe, watchPermission, type Api } from '../src/index.js'
import { clear, readState } from '../src/store.js'
import { subscription } from './environment.js'

const KEY = 'BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4'
const bytes = Uint8Array.from(atob(KEY.replace(/-/g, '+').replace(/_/g, '/') + '='), (char) => char.charCodeAt(0)).buffer

function browser({ answer = 'granted', before = 'default', current = null as any, fails = false } = {}) {
  const Notification = { permission: before, asked: 0, requestPermission: async () => (Notification.asked++, (Notification.permission = answer)) }
  const registration = { active: {}, pushManager: { getSubscription: async () => current, subscribe: async () => (fails ? Promise.reject(new DOMException('no', 'AbortError')) : (current = subscription('https://push.test/1', bytes))) } }
  Object.assign(globalThis, { Notification, PushManager: class {} })
  Object.defineProperty(globalThis, 'navigator', { configurable: true, value: { serviceWorker: { register: async () => registration } } })
  return { Notification, registration: registration as unknown as ServiceWorkerRegistration, end: () => (current = null) }
}

function api(me: object = {}) {
  const requests: string[] = []
  const noroshi: Api = {
    request: async (method, path) => {
      requests.push(`${method} ${path}`)
      return (path === '/v1/me' ? { device: 'd1', push_token: null, push_suspect: null, ...me } : undefined) as any
    },
  }
  return { noroshi, requests }
}

beforeEach(clear)

test('permission names what the page can do', () => {
  Object.assign(globalThis, { Notification: undefined, PushManager: undefined })
  Object.defineProperty(globalThis, 'navigator', { configurable: true, value: {} })
  assert.equal(permission(), 'unsupported')
  Object.defineProperty(globalThis, 'navigator', { configurable: true, value: { serviceWorker: {}, standalone: false } })
  assert.equal(permission(), 'install')
  browser({ before: 'denied' })
  assert.equal(permission(), 'denied')
})

test('the user is asked only with `prompt`, and each answer has its error', async () => {
  const { noroshi } = api()
  const options = { noroshi, serviceWorker: '/w.js', applicationServerKey: KEY }
  const { Notification } = browser({ answer: 'denied' })
  assert.equal(await subscribe({ ...options, prompt: false }), undefined)
  assert.equal(Notification.asked, 0)
  await assert.rejects(subscribe(options), { code: 'permission_denied' })
  await assert.rejects(subscribe(options), { code: 'permission_denied' })
  assert.equal(Notification.asked, 1)
  browser({ answer: 'default' })
  await assert.rejects(subscribe(options), { code: 'permission_dismissed' })
  browser({ fails: true })
  await assert.rejects(subscribe(options), { code: 'subscribe_failed' })
  browser()
  await assert.rejects(subscribe({ ...options, applicationServerKey: async () => 'no key' }), { code: 'invalid_key' })
  Object.assign(globalThis, { PushManager: undefined })
  await assert.rejects(subscribe(options), { code: 'unsupported' })
  assert.equal(await subscribe({ ...options, prompt: false }), undefined)
})

test('a token that the service has is not registered again; a suspended or lost one is', async () => {
  const current = subscription('https://push.test/1', bytes)
  browser({ before: 'granted', current })
  const key = 'AAAAAAAAAAAAAAAAAAAAAA'
  const push_token = { service: 'webpush', endpoint: current.endpoint, keys: { p256dh: key, auth: key } }
  const run = async (me: object) => {
    const { noroshi, requests } = api(me)
    await subscribe({ noroshi, serviceWorker: '/w.js', applicationServerKey: KEY, prompt: false })
    return requests.includes('PUT /v1/me/push-tokens/webpush')
  }
  assert.equal(await run({ push_token }), false)
  assert.equal(await run({ push_token, push_suspect: { at: '', reason: 'other' } }), true)
  assert.equal(await run({ push_token: null }), true)
  assert.equal(await run({ push_token: { ...push_token, keys: { ...push_token.keys, auth: 'B' } } }), true)
  assert.deepEqual(await readState(), { device: 'd1', key: KEY, isChanged: false })
})

test('a registration that fails is left to the worker', async () => {
  browser({ before: 'granted' })
  const { noroshi } = api()
  const request: Api['request'] = (method, path) => (method === 'PUT' ? Promise.reject(new Error('offline')) : noroshi.request(method, path))
  await assert.rejects(subscribe({ noroshi: { request }, serviceWorker: '/w.js', applicationServerKey: KEY }), /offline/)
  assert.equal((await readState())?.isChanged, true)
})

test('unsubscribing ends the subscription also if the service cannot be reached', async () => {
  const { registration } = browser({ before: 'granted' })
  const { noroshi } = api()
  const options = { noroshi, serviceWorker: '/w.js', applicationServerKey: KEY }
  const made = (await subscribe(options))!
  let ended = 0
  made.unsubscribe = async () => (ended++, true)
  await assert.rejects(unsubscribe({ noroshi: { request: () => Promise.reject(new Error('offline')) }, serviceWorker: registration }), /offline/)
  assert.deepEqual([ended, await readState()], [1, undefined])
})

test('watchPermission reports changes until it is stopped', async () => {
  browser({ before: 'granted' })
  const status = new EventTarget()
  Object.assign(navigator, { permissions: { query: async () => status } })
  const seen: string[] = []
  const stop = watchPermission((permission) => seen.push(permission))
  await new Promise((resolve) => setTimeout(resolve))
  status.dispatchEvent(new Event('change'))
  stop()
  status.dispatchEvent(new Event('change'))
  assert.deepEqual(seen, ['granted'])
})
