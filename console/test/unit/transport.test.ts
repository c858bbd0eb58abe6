import { expect, test, vi } from 'vitest'

import { ApiError, problemOf, Unreachable } from '../../src/api/error'
import { type Context, prepare, transport } from '../../src/api/transport'

const BASE = 'https://push.example.com/console/api'
const request = (path: string, method = 'GET'): Request => new Request(BASE + path, { method, ...(method === 'POST' ? { body: '{"a":1}' } : {}) })
const answer = (status: number, body?: unknown, headers: Record<string, string> = {}): Response =>
  new Response(body === undefined ? null : JSON.stringify(body), { status, headers })

const context = (over: Partial<Context> = {}): Context => ({
  csrf: () => 'token', app: () => 'dev', attended: () => true, confirmLogin: async () => false, signedOut: () => undefined, ...over,
})

test.each(['POST', 'PUT', 'PATCH', 'DELETE'])('%s sends the CSRF token', (method) => {
  expect(prepare(request('/v1/devices', method), context()).headers.get('Noroshi-Csrf')).toBe('token')
})

test('GET sends no CSRF token', () => {
  expect(prepare(request('/v1/devices'), context()).headers.has('Noroshi-Csrf')).toBe(false)
})

test('a request names its app once: in the path or in the header', () => {
  expect(prepare(request('/v1/devices'), context()).headers.get('Noroshi-App')).toBe('dev')
  expect(prepare(request('/v1/apps/shop/keys'), context()).headers.has('Noroshi-App')).toBe(false)
})

test('a request keeps the app that it names, and the one of its page while a person confirms', async () => {
  const named = new Request(`${BASE}/v1/campaigns`, { headers: { 'Noroshi-App': 'shop' } })
  expect(prepare(named, context()).headers.get('Noroshi-App')).toBe('shop')
  let app = 'dev'
  const seen: (string | null)[] = []
  const fetch = async (sent: Request | URL | string) => {
    seen.push((sent as Request).headers.get('Noroshi-App'))
    return seen.length === 1 ? answer(403, { code: 'confirm_log_in' }) : answer(200, {})
  }
  const confirmLogin = async () => {
    app = 'shop'
    return true
  }
  await transport(context({ app: () => app, confirmLogin }), fetch)(request('/v1/campaigns/1/start', 'POST'))
  expect(seen).toEqual(['dev', 'dev'])
})

test('a page that nobody uses says so with each request', () => {
  expect(prepare(request('/v1/devices'), context()).headers.has('Noroshi-Background')).toBe(false)
  expect(prepare(request('/v1/devices'), context({ attended: () => false })).headers.get('Noroshi-Background')).toBe('true')
})

test('a failure becomes an error with code, field and request id', async () => {
  const send = transport(context(), async () => answer(409, { title: 'Wrong state', detail: 'it has ended', code: 'wrong_state', field: 'state' }, { 'x-request-id': 'r1' }))
  const error = await send(request('/v1/campaigns/1/pause', 'POST')).catch((caught: unknown) => caught)
  expect(error).toBeInstanceOf(ApiError)
  expect((error as ApiError).message).toBe('it has ended')
  expect((error as ApiError).problem).toMatchObject({ status: 409, code: 'wrong_state', field: 'state', requestId: 'r1' })
})

test('the request id of the body is preferred, and a page of a proxy does not break anything', async () => {
  expect((await problemOf(answer(500, { request_id: 'body' }, { 'x-request-id': 'header' }))).requestId).toBe('body')
  expect(await problemOf(new Response('<h1>Bad gateway</h1>', { status: 502, statusText: 'Bad Gateway' }))).toMatchObject({ status: 502, code: 'http_502', detail: 'Bad Gateway' })
})

test('a server that does not answer is its own kind of error', async () => {
  const send = transport(context(), async () => Promise.reject(new TypeError('Failed to fetch')))
  await expect(send(request('/v1/devices'))).rejects.toBeInstanceOf(Unreachable)
})

test('confirm_log_in asks, then repeats the same request with its body', async () => {
  const bodies: string[] = []
  const fetch = vi.fn(async (sent: Request | URL | string) => {
    bodies.push(await (sent as Request).text())
    return bodies.length === 1 ? answer(403, { code: 'confirm_log_in' }) : answer(201, { key: 'k' })
  })
  const confirmLogin = vi.fn(async () => true)
  const response = await transport(context({ confirmLogin }), fetch)(request('/v1/apps/dev/keys', 'POST'))
  expect(response.status).toBe(201)
  expect(bodies).toEqual(['{"a":1}', '{"a":1}'])
  expect(confirmLogin).toHaveBeenCalledOnce()
})

test('a person who gives up sees the refusal, and nothing is repeated', async () => {
  const fetch = vi.fn(async () => answer(403, { code: 'confirm_log_in', detail: 'log in again' }))
  await expect(transport(context(), fetch)(request('/v1/apps/dev/keys', 'POST'))).rejects.toThrow('log in again')
  expect(fetch).toHaveBeenCalledOnce()
})

test('401 ends the session, but not for wrong credentials', async () => {
  const signedOut = vi.fn()
  const send = transport(context({ signedOut }), async () => answer(401, { code: 'unauthorized' }))
  await send(request('/v1/session', 'POST')).catch(() => undefined)
  for (const part of ['confirm', 'password', 'totp-secret']) await send(request(`/v1/session/${part}`, 'POST')).catch(() => undefined)
  expect(signedOut).not.toHaveBeenCalled()
  await send(request('/v1/devices')).catch(() => undefined)
  expect(signedOut).toHaveBeenCalledOnce()
})
