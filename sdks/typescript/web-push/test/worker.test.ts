/** The worker: requests that fail, what is kept, and events of browsers that Chromium does not send. */

import assert from 'node:assert/strict'
import { beforeEach, test, vi } from 'vitest'

import { clear, waitingReports, writeState } from '../src/store.js'
import { handlePush, type WebPushError, type WorkerOptions } from '../src/worker.js'
import { scope, service } from './environment.js'

const errors: WebPushError[] = []
let tokens = 0

function start(options: Partial<WorkerOptions> = {}) {
  const worker = scope()
  handlePush({ url: 'https://push.test/', getToken: () => `token-${++tokens}`, onError: (error) => errors.push(error), ...options })
  return worker
}

beforeEach(async () => {
  errors.length = 0
  tokens = 0
  vi.spyOn(Math, 'random').mockReturnValue(0)
  await clear()
})

const waiting = () => waitingReports(Date.now())
const codes = () => errors.map(({ code, status }) => `${code} ${status ?? ''}`)

test('a report is sent at once, with a token in the header and none in the address', async () => {
  const requests = service(200)
  const worker = start({ app: 'shop' })
  await worker.click('a')
  assert.deepEqual(requests, [{ method: 'POST', path: '/v1/me/opened?app=shop', token: 'Bearer token-1', body: { ids: ['a'] } }])
  assert.deepEqual([await waiting(), worker.synced, errors], [[], ['noroshi-web-push'], []])
  await worker.click('b')
  assert.equal(tokens, 1)
})

test('a rejected token is replaced at once; a second rejection waits', async () => {
  const requests = service(401, 200)
  await start().click('a')
  assert.deepEqual(requests.map(({ token }) => token), ['Bearer token-1', 'Bearer token-2'])
  const more = service(401)
  await start().click('b')
  assert.equal(more.length, 4)
  assert.deepEqual([await waiting(), codes()], [['b'], ['unavailable 401']])
})

test('an answer that cannot change drops the report', async () => {
  service(400)
  await start().click('a')
  assert.deepEqual([await waiting(), codes()], [[], ['rejected 400']])
})

test('three attempts, then the next event; a long Retry-After is not waited for', async () => {
  const requests = service(503, new TypeError('offline'), 200)
  const worker = start()
  await worker.click('a')
  assert.equal(requests.length, 3)
  assert.deepEqual([await waiting(), errors], [[], []])
  const late = service([429, { 'retry-after': '60' }])
  await worker.click('b')
  assert.equal(late.length, 1)
  assert.deepEqual([await waiting(), codes()], [['b'], ['unavailable 429']])
  const again = service(200)
  await worker.push({ id: 'n', notification: { title: 't' } })
  assert.deepEqual(again[0]!.body, { ids: ['b'] })
})

test('Background Sync fails while something waits, so that the browser tries again', async () => {
  service([503, { 'retry-after': '60' }])
  const worker = start()
  await worker.click('a')
  await assert.rejects(worker.dispatch('sync', { tag: 'noroshi-web-push' }), { code: 'unavailable' })
  service(200)
  await worker.dispatch('sync', { tag: 'noroshi-web-push' })
  assert.deepEqual(await waiting(), [])
})

test('nobody is signed in, or the worker gets no tokens: the report waits', async () => {
  const requests = service(200)
  await start({ getToken: () => null }).click('a')
  const worker = scope()
  handlePush({ url: 'https://push.test', onError: (error) => errors.push(error) })
  await worker.click('b')
  const failing = start({ getToken: () => Promise.reject(new TypeError('offline')) })
  await failing.click('c')
  assert.deepEqual([requests, (await waiting()).sort(), codes()], [[], ['a', 'b', 'c'], ['unavailable ']])
})

test('at most 1,000 reports wait, and none for longer than a notification lives', async () => {
  const { addReport } = await import('../src/store.js')
  await addReport('old', Date.now() - 29 * 86_400_000)
  assert.deepEqual(await waiting(), [])
  for (let n = 0; n <= 1_000; n++) await addReport(`r${n}`, Date.now() + n)
  const left = await waiting()
  assert.deepEqual([left.length, left.includes('r0'), left.includes('r1000')], [1_000, false, true])
  const requests = service(200)
  await start().push({ id: 'n', notification: { title: 't' } })
  assert.deepEqual([requests.length, requests[0]!.body.ids.length, await waiting()], [1, 1_000, []])
})

test('the app badge: from the push message, 0 clears it', async () => {
  service(200)
  const worker = start()
  await worker.push({ id: 'a', notification: { title: 't' }, app_badge: 3 })
  await worker.push({ id: 'b', notification: { title: 't' }, app_badge: 0 })
  await worker.push({ id: 'c', notification: { title: 't' } })
  assert.deepEqual(worker.badges, [3, 0])
})

test('a declared notification is left to the browser, unless the application changes it', async () => {
  service(200)
  const event = { notification: { title: 'Declared', body: 'B', lang: '', dir: 'auto', icon: '', tag: '', navigate: 'https://app.test/x', data: { n: 1 } } }
  const silent = start()
  await silent.push(null, event)
  assert.deepEqual([silent.shown, errors], [[], []])
  const worker = start({ show: (shown, { isDeclared, data }) => ({ ...shown!, title: `${shown!.title} ${isDeclared} ${JSON.stringify(data)}` }) })
  await worker.push(null, event)
  const [[title, options]] = worker.shown as [[string, any]]
  assert.deepEqual([title, options.navigate, options.body, 'tag' in options], ['Declared true {"n":1}', 'https://app.test/x', 'B', false])
})

test('options that are no member of the standard are not passed on; defaults are', async () => {
  service(200)
  const worker = start({ title: 'Shop', defaults: { icon: '/i.png', badge: '/b.png', tag: 'one' } })
  await worker.push({ id: 'a', notification: { body: 'B', thread: 't', level: 'passive', silent: true, require_interaction: true, navigate: 'https://app.test/x', url: 'https://app.test/x', actions: [] } })
  const data = { noroshi: { id: 'a', url: 'https://app.test/x', actions: {}, data: undefined } }
  assert.deepEqual(worker.shown, [['Shop', { icon: '/i.png', badge: '/b.png', tag: 'one', body: 'B', silent: true, requireInteraction: true, data }]])
})

test('a changed subscription is registered later if the service cannot be reached', async () => {
  await writeState({ device: 'd', key: 'BCVx', isChanged: false })
  service([503, { 'retry-after': '60' }])
  const worker = start()
  await worker.dispatch('pushsubscriptionchange')
  assert.deepEqual([worker.state.subscribed.length, worker.state.subscribed[0].userVisibleOnly, codes()], [1, true, ['unavailable 503']])
  const requests = service(204)
  await worker.dispatch('activate')
  assert.deepEqual([requests.length, requests[0]!.method, requests[0]!.path, requests[0]!.body.endpoint], [1, 'PUT', '/v1/me/push-tokens/webpush', 'https://push.test/new'])
  await worker.dispatch('activate')
  assert.equal(requests.length, 1)
})

test('a browser that does not subscribe again is reported; one that has subscribed itself is not asked', async () => {
  await writeState({ device: 'd', key: 'BCVx', isChanged: false })
  const requests = service(204)
  const worker = start()
  worker.state.refuses = true
  await worker.dispatch('pushsubscriptionchange')
  assert.deepEqual(codes(), ['subscribe_failed '])
  const { subscription } = await import('./environment.js')
  worker.state.subscription = subscription('https://push.test/own')
  await worker.dispatch('pushsubscriptionchange', { newSubscription: worker.state.subscription })
  assert.deepEqual([requests[0]!.body.endpoint, worker.state.subscribed], ['https://push.test/own', []])
})

test('notifications of the application itself are not handled', async () => {
  service(200)
  const worker = start()
  await worker.dispatch('notificationclick', { action: '', notification: { data: { own: 1 }, close: () => assert.fail('closed') } })
})
