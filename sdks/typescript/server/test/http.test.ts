import assert from 'node:assert/strict'
import { describe, expect, test } from 'vitest'

import { NoroshiError, ProblemError, type Attempt } from '../src/index.js'
import { problem, quick, receipt, Service } from './service.js'

const notification = { to: { users: ['u1'] }, notification: { title: 'Hello' } }

async function failure(promise: Promise<unknown>): Promise<ProblemError> {
  try {
    await promise
  } catch (error) {
    assert.ok(error instanceof NoroshiError, String(error))
    return error as ProblemError
  }
  throw new Error('it did not fail')
}

describe('a request', () => {
  test('has the key, a request id, an idempotency key and the body', async () => {
    const service = await Service.start(receipt)
    assert.deepEqual(await service.client().publish(notification), receipt.json)
    const [got] = service.got
    assert.equal(`${got!.method} ${got!.url}`, 'POST /v1/notifications')
    assert.equal(got!.headers.authorization, 'Bearer secret-key')
    assert.equal(got!.headers['content-type'], 'application/json')
    assert.match(got!.headers['idempotency-key'] as string, /^[0-9a-f-]{36}$/)
    assert.match(got!.headers['x-request-id'] as string, /^[0-9a-f-]{36}$/)
    assert.deepEqual(JSON.parse(got!.text), notification)
    assert.equal(got!.headers['traceparent'], undefined)
  })

  test('keeps the path of the address, and encodes names', async () => {
    const service = await Service.start({ json: { topic: 'a/b' } })
    await service.client({ url: `${service.url}/push/?ignored#too` }).topics.get('a/b ü?#%')
    assert.equal(service.got[0]!.url, '/push/v1/topics/a%2Fb%20%C3%BC%3F%23%25')
  })

  test('sends filters, and nothing for undefined ones', async () => {
    const service = await Service.start({ json: { devices: [], next: null } })
    await service.client().devices.list({ user: 'u&1', limit: 5, platform: undefined as never }).page()
    assert.equal(service.got[0]!.url, '/v1/devices?user=u%261&limit=5')
  })

  test('belongs to a trace', async () => {
    const service = await Service.start(receipt)
    const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
    const noroshi = service.client({ trace: () => ({ traceparent, tracestate: 'a=b' }) })
    await noroshi.publish(notification)
    await noroshi.publish(notification, { trace: { traceparent: traceparent.replace('-01', '-00') } })
    for (const wrong of ['', '00-00000000000000000000000000000000-00f067aa0ba902b7-01', 'a\r\nb', traceparent.toUpperCase()]) await noroshi.publish(notification, { trace: { traceparent: wrong } })
    assert.deepEqual(
      service.got.map(({ headers }) => [headers['traceparent'], headers['tracestate']]),
      [[traceparent, 'a=b'], [traceparent.replace('-01', '-00'), undefined], ...Array.from({ length: 4 }, () => [undefined, undefined])],
    )
  })

  test('asks for the key again', async () => {
    const service = await Service.start(problem(503, 'unavailable'), receipt)
    let n = 0
    await service.client({ ...quick(), key: async () => `key-${++n}` }).publish(notification)
    assert.deepEqual(service.got.map(({ headers }) => headers.authorization), ['Bearer key-1', 'Bearer key-2'])
  })

  test('fails with the error of the key function', async () => {
    const service = await Service.start(receipt)
    const broken = service.client({ key: () => Promise.reject(new Error('vault is sealed')) })
    await expect(broken.publish(notification)).rejects.toThrow('vault is sealed')
    await expect(service.client({ key: 'a\nb' }).publish(notification)).rejects.toThrow('visible ASCII')
    const slow = service.client({ key: () => new Promise(() => {}), timeoutMs: 20, attempts: 1 })
    assert.equal((await failure(slow.publish(notification))).code, 'timeout')
    assert.equal(service.got.length, 0)
  })

  test('calls `fetch` as a function', async () => {
    const service = await Service.start(receipt)
    function plain(this: unknown, ...args: Parameters<typeof fetch>) {
      assert.equal(this, undefined)
      return fetch(...args)
    }
    await service.client({ fetch: plain }).publish(notification)
  })

  test('has checked arguments', async () => {
    const service = await Service.start(receipt)
    const noroshi = service.client()
    for (const id of ['', '.', '..', undefined as never]) assert.throws(() => noroshi.notifications.get(id), /neither empty nor a dot segment/)
    await expect(noroshi.publish(notification, { idempotencyKey: 'a b' })).rejects.toThrow('idempotencyKey')
    await expect(noroshi.publish(notification, { requestId: '' })).rejects.toThrow('requestId')
    assert.throws(() => service.client({ url: 'ftp://service.test' }), /http/)
    assert.throws(() => service.client({ url: 'service.test' }), /URL/)
    for (const name of ['timeoutMs', 'deadlineMs', 'attempts']) for (const value of [0, -1, Number.NaN]) assert.throws(() => service.client({ [name]: value }), new RegExp(name))
    assert.equal(service.got.length, 0)
  })
})

describe('retries', () => {
  test.each([408, 425, 429, 500, 502, 503, 504])('after %i, with the same idempotency key and request id', async (status) => {
    const service = await Service.start(problem(status, 'overloaded'), receipt)
    const clock = quick()
    await service.client(clock).publish(notification)
    const [one, two] = service.got
    assert.equal(two!.headers['idempotency-key'], one!.headers['idempotency-key'])
    assert.equal(two!.headers['x-request-id'], one!.headers['x-request-id'])
    assert.equal(two!.text, one!.text)
    assert.deepEqual(clock.waits, [125])
  })

  // Not 421, after which `fetch` itself sends the request once more (Fetch standard, HTTP-network-or-cache fetch).
  test.each([400, 401, 403, 404, 405, 409, 410, 413, 415, 501, 507])('not after %i', async (status) => {
    const service = await Service.start(problem(status, 'wrong_state'), receipt)
    const error = await failure(service.client(quick()).publish(notification))
    assert.equal(error.status, status)
    assert.equal(service.got.length, 1)
  })

  test.each(['reset', 'truncated'] as const)('after a connection that is %s', async (answer) => {
    const service = await Service.start(answer, receipt)
    assert.deepEqual(await service.client(quick()).publish(notification), receipt.json)
    assert.equal(service.got.length, 2)
  })

  test.each(['silent', 'stalled'] as const)('after an attempt that is %s for too long', async (answer) => {
    const service = await Service.start(answer, receipt)
    assert.deepEqual(await service.client({ timeoutMs: 50 }).publish(notification), receipt.json)
    assert.equal(service.got.length, 2)
  })

  test('wait longer and longer, at most ten seconds', async () => {
    const service = await Service.start(problem(503, 'unavailable'))
    const clock = quick()
    const error = await failure(service.client({ ...clock, attempts: 8 }).publish(notification))
    assert.equal(error.attempts, 8)
    assert.equal(service.got.length, 8)
    assert.deepEqual(clock.waits, [125, 250, 500, 1000, 2000, 4000, 5000])
  })

  test('wait as long as Retry-After states, in seconds or as a date', async () => {
    const clock = quick()
    const date = new Date(Math.ceil(Date.now() / 1000) * 1000 + 8_000).toUTCString()
    const service = await Service.start(problem(429, 'too_many_requests', { 'retry-after': '7' }), problem(503, 'unavailable', { 'retry-after': date }), problem(503, 'unavailable', { 'retry-after': 'soon' }), receipt)
    await service.client(clock).publish(notification)
    const [seconds, untilDate, backoff] = clock.waits
    assert.equal(seconds, 7_125)
    // The clock has moved by the first wait.
    assert.ok(untilDate! > 250 && untilDate! <= 9_250, String(untilDate))
    assert.equal(backoff, 500)
  })

  test('end if Retry-After is behind the deadline', async () => {
    const service = await Service.start(problem(429, 'quota_exceeded', { 'retry-after': '3600' }))
    const error = await failure(service.client().publish(notification))
    assert.equal(error.code, 'quota_exceeded')
    assert.equal(error.retryAfterMs, 3_600_000)
    assert.equal(service.got.length, 1)
  })

  test('end at the deadline', async () => {
    const service = await Service.start('silent')
    const began = Date.now()
    const error = await failure(service.client({ timeoutMs: 60, deadlineMs: 200, attempts: 100 }).publish(notification))
    assert.equal(error.code, 'timeout')
    assert.ok(Date.now() - began < 5_000)
    assert.ok(error.attempts! >= 1)
  })

  test('can be turned off', async () => {
    const service = await Service.start(problem(503, 'unavailable'))
    assert.equal((await failure(service.client().publish(notification, { attempts: 1 }))).attempts, 1)
    assert.equal(service.got.length, 1)
  })
})

describe('requests that must not be repeated', () => {
  const create = (service: Service, options = {}) => service.client({ ...quick(), ...options }).app('shop').keys.create({ name: 'backend', scopes: ['publish'] })
  const key = { status: 201, json: { id: 'k1', key: 'secret' } }

  test.each(['reset', 'truncated', problem(500, 'internal'), problem(502, 'push_service_failed'), problem(504, 'unavailable'), problem(503, 'cell_unavailable')] as const)('are not, if they may have had their effect: %s', async (answer) => {
    const service = await Service.start(answer, key)
    await failure(create(service))
    assert.equal(service.got.length, 1)
  })

  test.each([problem(408, 'body_timeout'), problem(429, 'too_many_requests'), problem(503, 'overloaded')])('are repeated, if the service did nothing: %s', async (answer) => {
    const service = await Service.start(answer, key)
    await create(service)
    assert.equal(service.got.length, 2)
  })

  test('are repeated, if there was no connection', async () => {
    const service = await Service.start(key)
    let calls = 0
    const refused = new TypeError('fetch failed', { cause: Object.assign(new Error('connect'), { code: 'ECONNREFUSED' }) })
    await create(service, { fetch: (...args: Parameters<typeof fetch>) => (calls++ === 0 ? Promise.reject(refused) : fetch(...args)) })
    assert.equal(calls, 2)
    // A real one: nobody listens there any more.
    const { url } = service
    await service.stop()
    const attempts: Attempt[] = []
    const error = await failure(create(service, { url, attempts: 3, onAttempt: (attempt: Attempt) => attempts.push(attempt) }))
    assert.equal(error.code, 'network')
    assert.equal(attempts.length, 3)
  })

  test('a deletion that an earlier attempt has done is a success', async () => {
    const service = await Service.start('reset', problem(404, 'not_found'))
    await service.client(quick()).devices.delete('d1')
    assert.equal(service.got.length, 2)
    const missing = await Service.start(problem(503, 'unavailable'), problem(404, 'not_found'))
    assert.equal((await failure(missing.client(quick()).devices.delete('d1'))).code, 'not_found')
  })

  test('a step of a campaign that an earlier attempt has done is a success', async () => {
    const paused = { json: { id: 'c1', state: 'paused' } }
    const service = await Service.start('reset', problem(409, 'wrong_state'), paused)
    assert.equal((await service.client(quick()).campaigns.pause('c1')).state, 'paused')
    assert.deepEqual(service.got.map(({ method, url }) => `${method} ${url}`), ['POST /v1/campaigns/c1/pause', 'POST /v1/campaigns/c1/pause', 'GET /v1/campaigns/c1'])
    const ended = await Service.start('reset', problem(409, 'wrong_state'), { json: { id: 'c1', state: 'done' } })
    assert.equal((await failure(ended.client(quick()).campaigns.pause('c1'))).code, 'wrong_state')
    const first = await Service.start(problem(409, 'wrong_state'))
    assert.equal((await failure(first.client(quick()).campaigns.pause('c1'))).code, 'wrong_state')
    assert.equal(first.got.length, 1)
  })
})

describe('errors', () => {
  test('have everything that the problem document states', async () => {
    const body = { type: '/docs#invalid_field', title: 'A field is missing or invalid', status: 400, code: 'invalid_field', detail: 'at most 10,000', field: 'to.users[3]' }
    const service = await Service.start({ status: 400, headers: { 'content-type': 'application/problem+json', 'x-request-id': 'r-1' }, text: JSON.stringify(body) })
    const error = await failure(service.client().publish(notification))
    assert.ok(error instanceof ProblemError && error instanceof Error)
    const { name, code, status, title, message, field, request, requestId, attempts } = error
    assert.deepEqual(
      { name, code, status, title, message, field, request, requestId, attempts },
      { name: 'ProblemError', code: 'invalid_field', status: 400, title: body.title, message: body.detail, field: 'to.users[3]', request: 'POST /v1/notifications', requestId: 'r-1', attempts: 1 },
    )
    assert.ok(!JSON.stringify(error).includes('secret-key') && !String(error.stack).includes('secret-key'))
  })

  test.each([
    ['a page of a proxy', 502, '<html>', 'http_502'],
    ['nothing', 404, '', 'http_404'],
    ['JSON of another form', 400, '["no"]', 'http_400'],
    ['fields of another type', 400, '{"code":7,"detail":{},"title":null,"field":[]}', 'http_400'],
    ['null', 500, 'null', 'http_500'],
    ['a code of a later version', 400, '{"code":"from_the_future"}', 'from_the_future'],
    ['a redirect', 307, '', 'http_307'],
    ['a huge page', 500, 'x'.repeat(1 << 20), 'http_500'],
  ])('%s', async (_, status, text, code) => {
    const service = await Service.start({ status, text, headers: status === 307 ? { location: 'http://127.0.0.1:1/' } : {} })
    const error = await failure(service.client({ attempts: 1 }).publish(notification))
    assert.equal(error.code, code)
    assert.equal(error.status, status)
    assert.equal(error.field, undefined)
    assert.ok(error.message)
  })

  test.each([
    ['HTML', { text: '<html>', headers: { 'content-type': 'text/html' } }],
    ['half of it', { text: '{"id":' }],
    ['nothing', { text: '' }],
  ])('a success with %s is a bad answer, and is not repeated', async (_, answer) => {
    const service = await Service.start(answer)
    const error = await failure(service.client().publish(notification))
    assert.equal(error.code, 'bad_answer')
    assert.equal(service.got.length, 1)
  })

  test('an answer without an end is a bad answer', async () => {
    const service = await Service.start((_, response) => {
      response.writeHead(200, { 'content-type': 'application/json' })
      const chunk = Buffer.alloc(1 << 20, 32)
      const more = () => {
        while (!response.destroyed && response.write(chunk));
        if (!response.destroyed) response.once('drain', more)
      }
      more()
    })
    assert.equal((await failure(service.client().publish(notification))).code, 'bad_answer')
  })
})

describe('an abort', () => {
  test('ends an attempt', async () => {
    const service = await Service.start('silent')
    const abort = new AbortController()
    const publishing = service.client().publish(notification, { signal: abort.signal })
    setTimeout(() => abort.abort(new Error('shutting down')), 30)
    await expect(publishing).rejects.toThrow('shutting down')
  })

  test('ends the wait for the next attempt', async () => {
    const service = await Service.start(problem(503, 'unavailable', { 'retry-after': '60' }))
    const abort = new AbortController()
    const publishing = service.client({ onAttempt: () => setTimeout(() => abort.abort(), 10) }).publish(notification, { signal: abort.signal })
    await expect(publishing).rejects.toThrow(expect.objectContaining({ name: 'AbortError' }))
    assert.equal(service.got.length, 1)
  })

  test('before the request prevents it', async () => {
    const service = await Service.start(receipt)
    await expect(service.client().publish(notification, { signal: AbortSignal.abort(new Error('too late')) })).rejects.toThrow('too late')
    assert.equal(service.got.length, 0)
  })
})

describe('attempts', () => {
  test('are reported, with what follows', async () => {
    const service = await Service.start(problem(503, 'overloaded'), 'reset', { ...receipt, headers: { 'x-request-id': 'r-7' } })
    const attempts: Attempt[] = []
    await service.client({ ...quick(), onAttempt: (attempt) => attempts.push(attempt) }).publish(notification, { requestId: 'mine' })
    assert.deepEqual(
      attempts.map(({ method, path, attempt, status, error, retryInMs, requestId }) => ({ method, path, attempt, status, code: (error as NoroshiError)?.code, retryInMs, requestId })),
      [
        { method: 'POST', path: '/v1/notifications', attempt: 1, status: 503, code: 'overloaded', retryInMs: 125, requestId: 'mine' },
        { method: 'POST', path: '/v1/notifications', attempt: 2, status: undefined, code: 'network', retryInMs: 250, requestId: 'mine' },
        { method: 'POST', path: '/v1/notifications', attempt: 3, status: 202, code: undefined, retryInMs: undefined, requestId: 'r-7' },
      ],
    )
    for (const { durationMs } of attempts) assert.ok(durationMs >= 0)
  })

  test('an observer that throws changes nothing', async () => {
    const service = await Service.start(receipt)
    const observed = service.client({
      onAttempt: () => {
        throw new Error('a bug')
      },
    })
    assert.deepEqual(await observed.publish(notification), receipt.json)
  })
})
