/**
 * Verifies webhooks of the service: events, questions of topic rules, and pushes to a provider. The service signs them
 * by Standard Webhooks (https://www.standardwebhooks.com, version 1).
 */

import { NoroshiError } from './error.js'

export interface VerifyOptions {
  /** `whsec_…`. While a secret is being replaced, both. */
  secret: string | readonly string[]
  /** How far the timestamp may be off. Default: 300. */
  toleranceSeconds?: number | undefined
  /** Milliseconds since 1970. Default: `Date.now`. */
  now?: (() => number) | undefined
}

/** A verified request. */
export interface Webhook {
  /** `webhook-id`: the same if the service sends the same request again. */
  id: string
  sentAt: Date
  body: string
  /** The body as JSON. */
  json<T = unknown>(): T
  /** The body as lines of JSON, as the event log sends it. */
  lines<T = EventLine>(): T[]
}

/** A line of the event log (docs/events.md). `node`, `run` and `n` identify it: the service may send it twice. */
export interface EventLine {
  v: number
  at: string
  node: string
  run: number
  n: number
  event: string
  [field: string]: unknown
}

/** May a device subscribe to a topic, or publish to it? (docs/authorization.md) */
export interface TopicQuestion {
  app: string
  device: string
  user: string | null
  action: 'subscribe' | 'publish'
  topic: string
  protocol: string
}

export interface TopicAnswer {
  allow: boolean
  /** How long the answer is valid, such as `5m`; at most a day. */
  expires_in?: string | number
}

/** Pushes to a provider behind a webhook (docs/push.md). */
export interface PushBatch {
  type: string
  provider: string
  messages: PushMessage[]
}

export interface PushMessage {
  notification_id: string
  notification?: Record<string, unknown>
  data?: unknown
  urgency: string
  collapse_key?: string
  expires_at: string
  /** `push.webhook` of the request. */
  options?: Record<string, unknown>
  recipients: PushRecipient[]
}

export interface PushRecipient {
  /** The same for each attempt: do not deliver twice. */
  id: string
  token: string
  device?: string
  user?: string
}

/** The answer to a `PushBatch`: recipients that it does not name are accepted. */
export interface PushResults {
  results: {
    id: string
    result: 'accepted' | 'invalid_token' | 'suspect_token' | 'retry' | 'rejected'
    /** Seconds. */
    retry_after?: number
    reason?: string
  }[]
}

/** Of a `Request`, or of a request of `node:http`. */
export type WebhookHeaders = Headers | Record<string, string | string[] | undefined>

/** The part of a request of `node:http` that the library uses. */
export interface NodeRequest extends AsyncIterable<Uint8Array | string> {
  headers: Record<string, string | string[] | undefined>
}

/** The part of a response of `node:http` that the library uses. */
export interface NodeResponse {
  writeHead(status: number, headers: Record<string, string>): unknown
  end(body?: string): unknown
}

export interface HandlerOptions extends VerifyOptions {
  /** Default: 8 MiB. The service sends at most 4 MiB of events, 1 MiB by default (`events.batch_bytes`). */
  bodyBytesMax?: number | undefined
  /** Gets errors of your handler (answered with 500) and of the verification (401). The service repeats both. */
  onError?: ((error: unknown) => void) | undefined
}

/** Returns the answer, which is sent as JSON; nothing is answered with 204. The service retries after an error. */
export type WebhookHandler = (webhook: Webhook) => unknown

const SIGNATURES_MAX = 16
const BODY_BYTES_MAX = 8 << 20
const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/**
 * Checks signature and timestamp of a webhook. Takes the body as it was received: JSON that was parsed and written again
 * has other bytes. Rejects with `bad_signature` or `bad_timestamp`.
 */
export async function verifyWebhook(headers: WebhookHeaders, body: string | Uint8Array, options: VerifyOptions): Promise<Webhook> {
  const { secret, toleranceSeconds = 300, now = Date.now } = options
  const keys = await Promise.all((typeof secret === 'string' ? [secret] : secret).map(importSecret))
  if (keys.length === 0) throw new TypeError('secret must not be empty')
  const id = header(headers, 'webhook-id')
  const timestamp = header(headers, 'webhook-timestamp')
  const signatures = header(headers, 'webhook-signature')
  if (!id || !timestamp || !signatures) throw new NoroshiError('bad_signature', 'a header is missing: webhook-id, webhook-timestamp or webhook-signature')
  if (!/^\d{1,12}$/.test(timestamp)) throw new NoroshiError('bad_timestamp', 'webhook-timestamp is not a number of seconds')
  const data = typeof body === 'string' ? encoder.encode(body) : body
  const head = encoder.encode(`${id}.${timestamp}.`)
  const signed = new Uint8Array(head.length + data.length)
  signed.set(head)
  signed.set(data, head.length)
  let isValid = false
  for (const text of signatures.split(' ').slice(0, SIGNATURES_MAX)) {
    const signature = text.startsWith('v1,') ? base64(text.slice(3)) : undefined
    // `verify` compares in constant time.
    for (const key of keys) if (signature && (await crypto.subtle.verify('HMAC', key, signature, signed))) isValid = true
  }
  if (!isValid) throw new NoroshiError('bad_signature', 'no signature is valid for this body')
  if (Math.abs(now() / 1000 - Number(timestamp)) > toleranceSeconds) throw new NoroshiError('bad_timestamp', `webhook-timestamp is more than ${toleranceSeconds} s off`)
  const text = typeof body === 'string' ? body : decoder.decode(data)
  return {
    id,
    sentAt: new Date(Number(timestamp) * 1000),
    body: text,
    json: () => JSON.parse(text),
    lines: () => text.split('\n').filter(Boolean).map((line) => JSON.parse(line)),
  }
}

/** A handler of `Request`s, for Deno, Bun, Workers and frameworks with `fetch` handlers. */
export function webhookFetchHandler(options: HandlerOptions, handler: WebhookHandler): (request: Request) => Promise<Response> {
  return async (request) => {
    const { status, body } = await respond(options, handler, request.method, request.headers, request.body ?? [])
    return new Response(body ?? null, { status, headers: body === undefined ? {} : { 'content-type': 'application/json' } })
  }
}

/** A handler for `node:http`, Express and others. No middleware may have read the body. */
export function webhookNodeHandler(options: HandlerOptions, handler: WebhookHandler): (request: NodeRequest & { method?: string | undefined }, response: NodeResponse) => Promise<void> {
  return async (request, response) => {
    const { status, body } = await respond(options, handler, request.method, request.headers, request)
    response.writeHead(status, body === undefined ? {} : { 'content-type': 'application/json' })
    response.end(body)
  }
}

interface Answer {
  status: number
  body?: string
}

async function respond(
  options: HandlerOptions,
  handler: WebhookHandler,
  method: string | undefined,
  headers: WebhookHeaders,
  chunks: AsyncIterable<Uint8Array | string> | Iterable<Uint8Array> | ReadableStream<Uint8Array>,
): Promise<Answer> {
  const { bodyBytesMax = BODY_BYTES_MAX, onError } = options
  const fail = (status: number, code: string, error: unknown): Answer => {
    onError?.(error)
    return { status, body: JSON.stringify({ error: code }) }
  }
  if (method !== 'POST') return fail(405, 'method_not_allowed', new NoroshiError('method_not_allowed', `a webhook is a POST, not ${method}`))
  let webhook: Webhook
  try {
    const body = await collect(chunks, bodyBytesMax)
    if (!body) return fail(413, 'body_too_large', new NoroshiError('body_too_large', `the body has more than ${bodyBytesMax} bytes`))
    webhook = await verifyWebhook(headers, body, options)
  } catch (error) {
    // 400 would make the service drop events for good (docs/events.md). It repeats a request that was answered with 401.
    return error instanceof NoroshiError ? fail(401, error.code, error) : fail(500, 'internal', error)
  }
  try {
    const answer = await handler(webhook)
    return answer === undefined ? { status: 204 } : { status: 200, body: JSON.stringify(answer) }
  } catch (error) {
    return fail(500, 'internal', error)
  }
}

/** Undefined if there are more bytes. */
async function collect(chunks: AsyncIterable<Uint8Array | string> | Iterable<Uint8Array> | ReadableStream<Uint8Array>, max: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const parts: Uint8Array[] = []
  let length = 0
  for await (const chunk of chunks as AsyncIterable<Uint8Array | string>) {
    const part = typeof chunk === 'string' ? encoder.encode(chunk) : chunk
    length += part.length
    if (length > max) return undefined
    parts.push(part)
  }
  const body = new Uint8Array(length)
  let at = 0
  for (const part of parts) {
    body.set(part, at)
    at += part.length
  }
  return body
}

function header(headers: WebhookHeaders, name: string): string | undefined {
  if (typeof headers.get === 'function') return headers.get(name) ?? undefined
  const value = (headers as Record<string, string | string[] | undefined>)[name]
  return Array.isArray(value) ? value.join(' ') : value
}

async function importSecret(secret: string): Promise<CryptoKey> {
  const bytes = secret.startsWith('whsec_') ? base64(secret.slice(6)) : undefined
  if (!bytes || bytes.length < 24 || bytes.length > 64) throw new TypeError('secret must be "whsec_" and 24 to 64 bytes in base64')
  return crypto.subtle.importKey('raw', bytes, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify'])
}

/** Undefined if it is not base64. */
function base64(text: string): Uint8Array<ArrayBuffer> | undefined {
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text)) return undefined
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0))
  } catch {
    return undefined
  }
}
