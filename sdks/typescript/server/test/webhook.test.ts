import assert from 'node:assert/strict'
import { createHmac, randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, expect, onTestFinished, test } from 'vitest'

import { verifyWebhook, webhookFetchHandler, webhookNodeHandler, type HandlerOptions, type TopicQuestion, type Webhook } from '../src/index.js'

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
const AT = 1_614_265_330
const now = () => AT * 1000

function sign(body: string, { secret = SECRET, id = 'msg_1', timestamp = String(AT) } = {}) {
  const signature = createHmac('sha256', Buffer.from(secret.slice(6), 'base64')).update(`${id}.${timestamp}.${body}`).digest('base64')
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': `v1,${signature}` }
}

describe('verifyWebhook', () => {
  test('follows Standard Webhooks', async () => {
    const headers = { 'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek', 'webhook-timestamp': String(AT), 'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=' }
    const body = '{"test": 2432232314}'
    for (const [given, bytes] of [[headers, body], [new Headers(headers), new TextEncoder().encode(body)]] as const) {
      const webhook = await verifyWebhook(given, bytes, { secret: SECRET, now })
      assert.equal(webhook.id, 'msg_p5jXN8AQM9LWM0D4loKWxJek')
      assert.equal(webhook.sentAt.getTime(), AT * 1000)
      assert.deepEqual(webhook.json(), { test: 2432232314 })
      assert.equal(webhook.body, body)
    }
  })

  test('reads lines', async () => {
    const body = '{"v":1,"event":"started"}\n{"v":1,"event":"accepted","title":"烽火"}\n'
    const webhook = await verifyWebhook(sign(body), body, { secret: SECRET, now })
    assert.deepEqual(webhook.lines().map(({ event }) => event), ['started', 'accepted'])
  })

  test('accepts a signature by any secret, among those of other versions', async () => {
    const other = `whsec_${randomBytes(64).toString('base64')}`
    const headers = sign('{}')
    const more = { ...headers, 'webhook-signature': `v1a,xyz v1,AAAA ${sign('{}', { secret: other })['webhook-signature']} v2,${headers['webhook-signature'].slice(3)}` }
    await verifyWebhook(more, '{}', { secret: [SECRET, other], now })
    await expect(verifyWebhook(more, '{}', { secret: SECRET, now })).rejects.toThrow(expect.objectContaining({ code: 'bad_signature' }))
  })

  test.each([
    ['another body', sign('{}'), '{ }'],
    ['another id', { ...sign('{}'), 'webhook-id': 'msg_2' }, '{}'],
    ['another time', { ...sign('{}'), 'webhook-timestamp': String(AT + 1) }, '{}'],
    ['another secret', sign('{}', { secret: `whsec_${randomBytes(24).toString('base64')}` }), '{}'],
    ['no signature', { ...sign('{}'), 'webhook-signature': '' }, '{}'],
    ['no id', { ...sign('{}'), 'webhook-id': undefined }, '{}'],
    ['another version', { ...sign('{}'), 'webhook-signature': sign('{}')['webhook-signature'].replace('v1', 'v2') }, '{}'],
    ['a short signature', { ...sign('{}'), 'webhook-signature': sign('{}')['webhook-signature'].slice(0, 20) }, '{}'],
    ['no base64', { ...sign('{}'), 'webhook-signature': 'v1,!' }, '{}'],
    ['too many signatures', { ...sign('{}'), 'webhook-signature': `${'v1,AAAA '.repeat(16)}${sign('{}')['webhook-signature']}` }, '{}'],
    ['nothing', {}, '{}'],
  ])('rejects %s', async (_, headers, body) => {
    await expect(verifyWebhook(headers, body, { secret: SECRET, now })).rejects.toThrow(expect.objectContaining({ code: 'bad_signature' }))
  })

  test('rejects times that are off, after the signature', async () => {
    const at = (offset: number, toleranceSeconds?: number) => verifyWebhook(sign('{}'), '{}', { secret: SECRET, toleranceSeconds, now: () => (AT + offset) * 1000 })
    for (const offset of [-300, 0, 300]) await at(offset)
    for (const offset of [-301, 301, 1e9]) await expect(at(offset)).rejects.toThrow(expect.objectContaining({ code: 'bad_timestamp' }))
    await at(900, 1_000)
    for (const timestamp of ['', 'now', '-1', '1e9', '1'.repeat(13), ' 1614265330']) {
      await expect(verifyWebhook(sign('{}', { timestamp }), '{}', { secret: SECRET, now })).rejects.toThrow(/webhook-timestamp/)
    }
  })

  test.each(['', 'whsec_', 'whsec_!', SECRET.slice(6), `whsec_${randomBytes(23).toString('base64')}`, `whsec_${randomBytes(65).toString('base64')}`])('needs a secret of the right form: %s', async (secret) => {
    await expect(verifyWebhook(sign('{}'), '{}', { secret, now })).rejects.toThrow(TypeError)
  })

  test('needs a secret', async () => {
    await expect(verifyWebhook(sign('{}'), '{}', { secret: [], now })).rejects.toThrow(TypeError)
  })
})

interface Given {
  method?: string
  headers?: Record<string, string>
  body?: string
}
type Served = (given: Given) => Promise<{ status: number; text: string }>

const served: [string, (options: HandlerOptions, handler: (webhook: Webhook) => unknown) => Promise<Served>][] = [
  [
    'webhookFetchHandler',
    async (options, handler) => {
      const handle = webhookFetchHandler(options, handler)
      return async ({ method = 'POST', headers = {}, body }) => {
        const response = await handle(new Request('http://app.test/hook', { method, headers, ...(body !== undefined && { body }) }))
        return { status: response.status, text: await response.text() }
      }
    },
  ],
  [
    'webhookNodeHandler',
    async (options, handler) => {
      const server = createServer(webhookNodeHandler(options, handler))
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
      onTestFinished(() => void server.close())
      const { port } = server.address() as AddressInfo
      return async ({ method = 'POST', headers = {}, body }) => {
        const response = await fetch(`http://127.0.0.1:${port}/hook`, { method, headers, ...(body !== undefined && { body }) })
        return { status: response.status, text: await response.text() }
      }
    },
  ],
]

describe.each(served)('%s', (_, serve) => {
  test('answers with what the handler returns', async () => {
    const question: TopicQuestion = { app: 'shop', device: 'd1', user: 'u1', action: 'subscribe', topic: 'room/7', protocol: 'native' }
    const body = JSON.stringify(question)
    const send = await serve({ secret: SECRET, now }, (webhook) => ({ allow: webhook.json<TopicQuestion>().topic === 'room/7' }))
    assert.deepEqual(await send({ headers: sign(body), body }), { status: 200, text: '{"allow":true}' })
    const silent = await serve({ secret: SECRET, now }, () => {})
    assert.deepEqual(await silent({ headers: sign(body), body }), { status: 204, text: '' })
  })

  test('rejects what the service did not sign, without calling the handler', async () => {
    let calls = 0
    const errors: unknown[] = []
    const send = await serve({ secret: SECRET, now, bodyBytesMax: 100, onError: (error) => errors.push(error) }, () => calls++)
    // 401: the service keeps events that a receiver rejects with it, but not those that it rejects with 400.
    assert.deepEqual(await send({ headers: sign('{}'), body: '{ }' }), { status: 401, text: '{"error":"bad_signature"}' })
    assert.deepEqual(await send({ headers: sign('{}', { timestamp: '1' }), body: '{}' }), { status: 401, text: '{"error":"bad_timestamp"}' })
    assert.equal((await send({ headers: sign('x'.repeat(101)), body: 'x'.repeat(101) })).status, 413)
    assert.equal((await send({ method: 'GET' })).status, 405)
    assert.equal(calls, 0)
    assert.equal(errors.length, 4)
  })

  test('answers 500 if the handler or the configuration fails', async () => {
    const errors: unknown[] = []
    const onError = (error: unknown) => errors.push(error)
    const failing = await serve({ secret: SECRET, now, onError }, () => Promise.reject(new Error('with a secret')))
    assert.deepEqual(await failing({ headers: sign('{}'), body: '{}' }), { status: 500, text: '{"error":"internal"}' })
    const wrong = await serve({ secret: 'password', now, onError }, () => {})
    assert.deepEqual(await wrong({ headers: sign('{}'), body: '{}' }), { status: 500, text: '{"error":"internal"}' })
    assert.equal(errors.length, 2)
  })
})
