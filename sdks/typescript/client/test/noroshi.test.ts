/** The client above its connection: who handles a message, and what topics share. */

import assert from 'node:assert/strict'
import { test } from 'vitest'

import { Noroshi, NoroshiError, ProblemError, type NoroshiOptions } from '../src/index.js'
import { Clock, settle } from './vectors/clock.js'
import { LocalWire } from './vectors/wire.js'

const message = (id: string, topic?: string, offset = 1) => ({ t: 'msg', id, ack: true, sent_at: '', ...(topic && { topic, epoch: 'e', offset }) })
const ack = (...ids: string[]) => ({ frame: { t: 'ack', ids } })
const sub = (...topics: string[]) => ({ frame: { t: 'sub', topics } })

async function connected(options: Partial<NoroshiOptions> = {}, prepare: (noroshi: Noroshi) => void = () => {}) {
  const wire = new LocalWire()
  const clock = new Clock(Array(10).fill(0))
  const noroshi = new Noroshi({ url: wire.url, getToken: () => 't1', runtime: { ...wire.runtime, ...clock.runtime }, ...options })
  prepare(noroshi)
  noroshi.connect()
  await settle()
  await wire.step({ accept: {} })
  await wire.step({ send: { t: 'ready', device: 'd1', session: '1', ping_s: 240 } })
  return { wire, clock, noroshi, send: (frame: object) => wire.step({ send: frame }) }
}
const LOGIN = [{ open: 'websocket' }, { frame: { t: 'connect', token: 't1' } }]

test('a listener of a topic alone handles its messages', async () => {
  const seen: string[] = []
  const { wire, clock, send } = await connected({}, (noroshi) => noroshi.topic('news').on('message', ({ id }) => void seen.push(id)))
  await wire.expect([...LOGIN, sub('news')])
  await clock.advance(1_000)
  await send(message('m1', 'news'))
  await wire.expect([ack('m1')])
  await clock.advance(1_000)
  await send(message('m2'))
  await wire.expect([])
  assert.deepEqual(seen, ['m1'])
})

test('a message is acknowledged after the listeners of its topic and of all messages', async () => {
  let finish!: () => void
  const { wire, clock, send, noroshi } = await connected({}, (noroshi) => {
    noroshi.topic('news').on('message', () => new Promise<void>((resolve) => (finish = resolve)))
    noroshi.on('message', () => {})
  })
  await clock.advance(1_000)
  await wire.expect([...LOGIN, sub('news')])
  await send(message('m1', 'news'))
  await wire.expect([])
  finish()
  await settle()
  await wire.expect([ack('m1')])
  noroshi.close()
})

test('the same topic is the same object until it is unsubscribed, and keeps its options', async () => {
  const { wire, clock, noroshi, send } = await connected({}, (noroshi) => noroshi.on('message', () => {}))
  await wire.expect(LOGIN)
  const news = noroshi.topic('news', { recover: true })
  assert.equal(noroshi.topic('news'), news)
  await settle()
  await wire.expect([{ frame: { t: 'sub', topics: ['news'], since: { news: null } } }])
  await clock.advance(1_000)
  await send(message('m1', 'news', 7))
  await wire.step({ end: {} })
  await clock.advance(250)
  await wire.step({ accept: {} })
  await wire.step({ send: { t: 'ready', device: 'd1', session: '2', ping_s: 240 } })
  await wire.expect([ack('m1'), ...LOGIN, { frame: { t: 'sub', topics: ['news'], since: { news: { epoch: 'e', offset: 7 } } } }])
  news.unsubscribe()
  news.unsubscribe()
  assert.notEqual(noroshi.topic('news'), news)
  noroshi.close()
})

test('A8: an iterator of a topic acknowledges when the next message is asked for', async () => {
  const { wire, clock, noroshi, send } = await connected()
  await wire.expect(LOGIN)
  const iterator = noroshi.topic('news').messages()
  const first = iterator.next()
  await settle()
  await wire.expect([sub('news')])
  await clock.advance(1_000)
  await send(message('m1', 'news'))
  assert.equal((await first).value?.id, 'm1')
  await clock.advance(1_000)
  await wire.expect([])
  const second = iterator.next()
  await settle()
  await wire.expect([ack('m1')])
  await clock.advance(1_000)
  await send(message('m2', 'news', 2))
  await second
  await iterator.return()
  await settle()
  await wire.expect([])
  noroshi.close()
})

test('A8: a loop whose body throws leaves its message, which arrives again', async () => {
  const { wire, clock, noroshi, send } = await connected()
  await wire.expect(LOGIN)
  const errors: string[] = []
  noroshi.on('error', ({ code }) => errors.push(code))
  const seen: string[] = []
  const loop = async () => {
    for await (const { id } of noroshi.messages()) {
      seen.push(id)
      if (seen.length === 1) throw new Error('the body failed')
    }
  }
  const first = loop().catch(({ message }) => message)
  await settle()
  await send(message('m1'))
  assert.equal(await first, 'the body failed')
  await clock.advance(1_000)
  await wire.expect([])
  const second = loop()
  await settle()
  await send(message('m1'))
  await wire.expect([ack('m1')])
  assert.deepEqual([seen, errors], [['m1', 'm1'], []])
  noroshi.close()
  await second
})

test('A8: loops end with the client, and those of a topic with its subscription', async () => {
  const ended = async (end: (noroshi: Noroshi, send: (frame: object) => Promise<void>) => unknown) => {
    const { noroshi, send } = await connected()
    const loops = [noroshi.messages(), noroshi.topic('news').messages(), noroshi.events('state')]
    const results = loops.map(async (loop) => {
      for await (const _ of loop);
    })
    const all = Promise.all(results.map((loop) => loop.then(() => 'ended', ({ code }) => code)))
    await settle()
    await end(noroshi, send)
    noroshi.close()
    return all
  }
  assert.deepEqual(await ended(() => {}), ['ended', 'ended', 'ended'])
  assert.deepEqual(await ended((noroshi) => noroshi.topic('news').unsubscribe()), ['ended', 'ended', 'ended'])
  assert.deepEqual(await ended((_, send) => send({ t: 'close', reason: 'replaced', reconnect: false }).then(() => send({ t: 'error', code: 'x' }))), ['ended', 'ended', 'ended'])
  const denied = { t: 'error', code: 'topic_forbidden', topic: 'news', reason: 'no_rule', message: '' }
  assert.deepEqual(await ended((_, send) => send(denied)), ['ended', 'topic_forbidden', 'ended'])
})

test('A8: loops of a client that was replaced throw', async () => {
  const { wire, noroshi, send } = await connected()
  const loop = (async () => {
    for await (const _ of noroshi.messages());
  })().then(() => 'ended', (error) => [error instanceof NoroshiError, error.code])
  await send({ t: 'close', reason: 'replaced', reconnect: false })
  await wire.step({ end: { code: 4001 } })
  assert.deepEqual(await loop, [true, 'replaced'])
})

test('a request is aborted while the token is awaited, and between repetitions', async () => {
  const clock = new Clock()
  let asked = 0
  const runtime = { ...clock.runtime, WebSocket: undefined, fetch: async () => (asked++, new Response('{}', { status: 503, headers: { 'retry-after': '5' } })) }
  let token!: (token: string) => void
  const noroshi = new Noroshi({ url: 'http://service.test', getToken: () => new Promise<string>((resolve) => (token = resolve)), runtime })
  for (const isToken of [true, false]) {
    const abort = new AbortController()
    const request = noroshi.me({ signal: abort.signal })
    await settle()
    if (!isToken) token('t1')
    await settle()
    abort.abort(new Error('the page changed'))
    await assert.rejects(request, /the page changed/)
  }
  assert.equal(asked, 1)
  await clock.advance(60_000)
  assert.equal(asked, 1)
})

test('a bad id of a thousand costs twenty requests, and is the only one that is lost', async () => {
  const wire = new LocalWire()
  const clock = new Clock()
  const sent: string[][] = []
  const kept: string[] = []
  const runtime = {
    ...wire.runtime,
    ...clock.runtime,
    fetch: (async (_: unknown, { body }: RequestInit) => {
      const { ids } = JSON.parse(body as string)
      sent.push(ids)
      if (ids.includes('bad')) return new Response('{"code":"invalid_field"}', { status: 400 })
      kept.push(...ids)
      return new Response('{}')
    }) as typeof fetch,
  }
  const noroshi = new Noroshi({ url: wire.url, getToken: () => 't1', runtime })
  const errors: string[] = []
  noroshi.on('error', ({ code }) => errors.push(code))
  const ids = Array.from({ length: 1_000 }, (_, n) => (n === 700 ? 'bad' : `${n}`))
  noroshi.opened(...ids)
  for (let n = 0; n < 20; n++) await settle()
  assert.deepEqual(kept, ids.filter((id) => id !== 'bad'))
  assert.deepEqual(errors, ['invalid_field'])
  assert.ok(sent.length <= 21, `${sent.length} requests`)
  noroshi.close()
})

test('a client that was closed connects again, and sends its reports', async () => {
  const { wire, noroshi } = await connected()
  noroshi.close()
  await wire.expect([...LOGIN, { close: 1000 }])
  noroshi.opened('a')
  await settle()
  await wire.expect([])
  noroshi.connect()
  await settle()
  await wire.expect([{ open: 'websocket' }, { request: { method: 'POST', path: '/v1/me/opened', token: 't1', body: { ids: ['a'] } } }])
  noroshi.close()
})

test('errors are typed: a problem, a page of a proxy, a network that breaks, a timeout', async () => {
  const { wire, clock, noroshi } = await connected()
  await wire.expect(LOGIN)
  const failure = async (reply: object) => {
    const request = noroshi.inbox.list().catch((error: unknown) => error)
    await settle()
    await wire.step({ reply })
    return (await request) as ProblemError
  }
  const problem = await failure({ status: 429, headers: { 'retry-after': '31' }, body: { code: 'too_many_requests', detail: 'wait', field: 'limit' } })
  assert.ok(problem instanceof ProblemError && problem instanceof NoroshiError)
  assert.deepEqual([problem.code, problem.status, problem.retryAfterMs, problem.field, problem.message], ['too_many_requests', 429, 31_000, 'limit', 'wait'])
  assert.equal((await failure({ status: 502 })).code, 'http_502')
  assert.equal((await failure({ status: 200 })).code, 'network')
  assert.equal((await failure({ status: 0 })).code, 'network')
  const late = noroshi.me().catch(({ code }: NoroshiError) => code)
  await settle()
  await clock.advance(30_000)
  assert.equal(await late, 'timeout')
  noroshi.close()
})

test('more than 100 ids are changed in several requests', async () => {
  const { wire, noroshi } = await connected()
  await wire.expect(LOGIN)
  const ids = Array.from({ length: 150 }, (_, n) => `i${n}`)
  const change = noroshi.inbox.archive(ids)
  await settle()
  await wire.step({ reply: { body: { changed: 90, unread: 9, categories: {} } } })
  await wire.step({ reply: { body: { changed: 50, unread: 4, categories: {} } } })
  assert.deepEqual(await change, { changed: 140, unread: 4, categories: {} })
  assert.equal(noroshi.inbox.unread, 4)
  const patch = (ids: string[]) => ({ request: { method: 'PATCH', path: '/v1/me/items', token: 't1', body: { action: 'archive', ids } } })
  await wire.expect([patch(ids.slice(0, 100)), patch(ids.slice(100))])
  noroshi.close()
})

test('a request of the API that has no method', async () => {
  const { wire, noroshi } = await connected()
  await wire.expect(LOGIN)
  const put = noroshi.request('PUT', '/v1/me/push-tokens/webpush', { body: { endpoint: 'https://push.test/1' } })
  await settle()
  await wire.step({ reply: { status: 204 } })
  assert.equal(await put, undefined)
  const get = noroshi.request<{ tokens: [] }>('GET', '/v1/me/push-tokens')
  await settle()
  await wire.step({ reply: { body: { tokens: [] } } })
  assert.deepEqual(await get, { tokens: [] })
  await wire.expect([
    { request: { method: 'PUT', path: '/v1/me/push-tokens/webpush', token: 't1', body: { endpoint: 'https://push.test/1' } } },
    { request: { method: 'GET', path: '/v1/me/push-tokens', token: 't1' } },
  ])
  noroshi.close()
})

test('T2: while a token is requested, everything else waits for the same one', async () => {
  const wire = new LocalWire()
  const clock = new Clock()
  let asked = 0
  let answer!: (token: string) => void
  const getToken = () => (asked++, new Promise<string>((resolve) => (answer = resolve)))
  const noroshi = new Noroshi({ url: wire.url, getToken, runtime: { ...wire.runtime, ...clock.runtime } })
  noroshi.connect()
  noroshi.opened('a')
  await settle()
  await wire.expect([])
  answer('t1')
  await settle()
  await wire.expect([{ open: 'websocket' }, { request: { method: 'POST', path: '/v1/me/opened', token: 't1', body: { ids: ['a'] } } }])
  assert.equal(asked, 1)
  noroshi.close()
})

test('without any transport the constructor throws', () => {
  const options = { url: 'http://service.test', getToken: () => 't1', transports: ['websocket'] as const, runtime: { WebSocket: undefined } }
  assert.throws(() => new Noroshi(options), { code: 'no_transport' })
})

test('an address that is not valid is reported, and the client stays closed', async () => {
  const noroshi = new Noroshi({ url: 'nowhere', getToken: () => 't1', runtime: new LocalWire().runtime })
  const errors: string[] = []
  noroshi.on('error', ({ code }) => errors.push(code))
  noroshi.connect()
  await settle()
  assert.deepEqual([errors, noroshi.state.state], [['no_transport'], 'closed'])
})
