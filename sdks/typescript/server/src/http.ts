/**
 * Requests with timeouts, retries and typed answers. `call` takes methods and paths of the OpenAPI document only, and
 * the parameters and bodies that it states.
 */

import type { paths } from './paths.js'
import { readText } from './body.js'
import { networkError, NoroshiError, ProblemError, type ProblemCode } from './error.js'
import { sleep, type Runtime } from './runtime.js'

/** W3C Trace Context. */
export interface TraceContext {
  traceparent: string
  tracestate?: string | undefined
}

/** One attempt at a request, after it ended. */
export interface Attempt {
  /** `GET`, `POST`, … */
  method: string
  /** The path of the API, without values: `/v1/notifications/{id}`. */
  path: string
  requestId: string
  /** From 1. */
  attempt: number
  /** Until the answer was read. */
  durationMs: number
  /** Absent if there was no answer. */
  status?: number
  /** Absent if the attempt succeeded. */
  error?: unknown
  /** After how long the next attempt follows. Absent if none does. */
  retryInMs?: number
}

export interface RequestOptions {
  /** Ends the request, and the wait for the next attempt. The promise rejects with the signal's reason. */
  signal?: AbortSignal | undefined
  /** For each attempt, until its answer was read. Default: `timeoutMs` of the client. */
  timeoutMs?: number | undefined
  /** For all attempts and the time between them. Default: `deadlineMs` of the client. */
  deadlineMs?: number | undefined
  /** How many attempts at most; 1 means no retry. Default: `attempts` of the client. */
  attempts?: number | undefined
  /** The trace to which the request belongs. Default: `trace` of the client. */
  trace?: TraceContext | undefined
  /** `X-Request-Id`, which the service logs: 1 to 128 letters, digits, `-`, `_`, `.`. Default: a UUID. */
  requestId?: string | undefined
}

/** Options of requests that accept something once, however often they are sent. */
export interface IdempotentOptions extends RequestOptions {
  /**
   * 1 to 255 visible ASCII characters: for 24 hours, the service answers a request with the same key as it answered
   * the first one, and accepts nothing again. Default: a random key for each call, the same for all of its attempts.
   */
  idempotencyKey?: string | undefined
}

type Path = keyof paths
/** @internal */
export type Method<P extends Path> = Extract<keyof paths[P], string>
type Content<T, Type extends string> = T extends { content: Record<Type, infer Body> } ? Body : never
type Answers<O> = O extends { responses: infer Responses } ? Responses[keyof Responses] : never

/** @internal */
export type Query<P extends Path, M extends Method<P>> = paths[P][M] extends { parameters: { query?: infer T } } ? T : never
/** @internal */
export type Result<P extends Path, M extends Method<P>> =
  | Content<Answers<paths[P][M]>, 'application/json'>
  | (Answers<paths[P][M]> extends { content?: never } ? void : never)
type JsonBody<O> = O extends { requestBody?: infer T } ? Content<NonNullable<T>, 'application/json'> : never
type LinesBody<O> = O extends { requestBody: { content: { 'application/x-ndjson': infer T } } } ? T : never

type Loose<T> = { [K in keyof T]: T[K] | undefined }

/** @internal */
export type Input<O> = Extra &
  (O extends { parameters: { path: infer T } } ? { path: T } : { path?: never }) &
  (O extends { parameters: { query?: infer T } } ? { query?: Loose<NonNullable<T>> | undefined } : { query?: never }) &
  ([JsonBody<O>] extends [never] ? { body?: never } : { body: JsonBody<O> })

/** @internal */
export interface Extra {
  /** Repeating it has no other effect than sending it once. Default: `GET`, `PUT`, `DELETE`. */
  safe?: boolean
  idempotencyKey?: string
}

/** A request as the transport sends it. */
interface Sent extends Extra {
  method: string
  path: string
  url: string
  contentType?: string
  body?: string | Uint8Array<ArrayBuffer>
}

/** @internal */
export interface HttpOptions {
  url: string | URL
  key: string | (() => string | Promise<string>)
  timeoutMs: number
  deadlineMs: number
  attempts: number
  trace?: (() => TraceContext | undefined) | undefined
  onAttempt?: ((attempt: Attempt) => void) | undefined
  runtime: Runtime
}

const ANSWER_BYTES_MAX = 32 << 20
const PROBLEM_BYTES_MAX = 64 << 10
const BACKOFF_MS = 250
const BACKOFF_MS_MAX = 10_000
/** Statuses after which the same request may succeed. */
const TRANSIENT = [408, 425, 429, 500, 502, 503, 504]
/** Of these, the ones after which the service has not done it. */
const NOTHING_DONE = [408, 425, 429, 503]
/** Errors of connections over which nothing was sent: codes of Node.js and Bun, texts of Deno. */
const NOT_CONNECTED = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'UND_ERR_CONNECT_TIMEOUT', 'ConnectionRefused']
const NOT_CONNECTED_TEXT = /client error \(Connect\): (tcp connect|dns) error/

/** @internal */
export class Http {
  readonly runtime: Runtime
  readonly attempts: number
  readonly #options: HttpOptions
  readonly #base: string

  constructor(options: HttpOptions) {
    const { protocol, href } = new URL(options.url)
    if (protocol !== 'http:' && protocol !== 'https:') throw new TypeError('url must begin with http:// or https://')
    this.#base = href.replace(/[?#].*$/, '').replace(/\/+$/, '')
    for (const name of ['timeoutMs', 'deadlineMs', 'attempts'] as const) {
      if (!(options[name] > 0)) throw new RangeError(`${name} must be greater than 0`)
    }
    this.#options = options
    this.runtime = options.runtime
    this.attempts = options.attempts
  }

  /** The JSON of the answer; undefined if it has no body. */
  call<P extends Path, M extends Method<P>>(method: M, path: P, input: Input<paths[P][M]>, options?: RequestOptions): Promise<Result<P, M>> {
    const { path: values, query, body, ...extra } = input as Extra & { path?: Record<string, string>; query?: object; body?: unknown }
    const sent: Sent = { method, path, url: this.#url(path, values, query), ...extra }
    if (body !== undefined) {
      sent.contentType = 'application/json'
      sent.body = JSON.stringify(body)
    }
    return this.#send(sent, options, async (response) => {
      if (response.status === 204) return undefined
      const text = await readText(response.body, ANSWER_BYTES_MAX)
      try {
        return JSON.parse(text)
      } catch (cause) {
        const type = response.headers.get('content-type')
        throw new NoroshiError('bad_answer', `the answer is not JSON: status ${response.status}, content type ${type}`, { cause })
      }
    }) as Promise<Result<P, M>>
  }

  /** Sends lines of JSON; `read` gets the answer's body. */
  lines<P extends Path, M extends Method<P>, T>(
    method: M,
    path: P,
    input: { path?: Record<string, string>; lines: LinesBody<paths[P][M]> extends string ? Uint8Array<ArrayBuffer> : never } & Extra,
    options: RequestOptions,
    read: (body: Response['body']) => Promise<T>,
  ): Promise<T> {
    const { path: values, lines: body, ...extra } = input
    const sent = { method, path, url: this.#url(path, values), contentType: 'application/x-ndjson', body, ...extra }
    return this.#send(sent, options, ({ body }) => read(body))
  }

  #url(path: string, values: Record<string, string> = {}, query: object = {}): string {
    const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = values[name]
      // A dot segment would name another path.
      if (typeof value !== 'string' || !value || value === '.' || value === '..') throw new TypeError(`${name} of ${path} must be a text, and neither empty nor a dot segment`)
      return encodeURIComponent(value)
    })
    const search = new URLSearchParams()
    for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null) search.set(name, String(value))
    return `${this.#base}${filled}${search.size ? `?${search}` : ''}`
  }

  async #send<T>(sent: Sent, options: RequestOptions = {}, read: (response: Response) => Promise<T>): Promise<T> {
    const { runtime } = this
    const method = sent.method.toUpperCase()
    const request = `${method} ${sent.path}`
    const isSafe = sent.safe ?? (sent.idempotencyKey !== undefined || ['GET', 'PUT', 'DELETE'].includes(method))
    const { signal, timeoutMs = this.#options.timeoutMs, attempts = this.attempts } = options
    const requestId = visible('requestId', options.requestId ?? crypto.randomUUID())
    const endsAt = runtime.now() + (options.deadlineMs ?? this.#options.deadlineMs)
    const headers = this.#headers(sent, requestId, options.trace)
    /** An earlier attempt may have had its effect. */
    let isUnclear = false
    for (let attempt = 1; ; attempt++) {
      signal?.throwIfAborted()
      const began = runtime.now()
      const ended: Attempt = { method, path: sent.path, requestId, attempt, durationMs: 0 }
      try {
        return await this.#attempt(sent, headers, Math.min(timeoutMs, endsAt - began), signal, ended, read)
      } catch (error) {
        ended.error = signal?.aborted ? signal.reason : error
        if (signal?.aborted || !(error instanceof NoroshiError)) throw ended.error
        const failure = Object.assign(error, { request, requestId: ended.requestId, attempts: attempt })
        if (method === 'DELETE' && isUnclear && failure.code === ('not_found' satisfies ProblemCode)) return undefined as T // An earlier attempt deleted it.
        const mayRepeat = isSafe ? isTransient(failure) : isUndone(failure)
        const delay = retryDelay(failure, attempt, runtime.random())
        if (attempt >= attempts || !mayRepeat || runtime.now() + delay >= endsAt) throw failure
        isUnclear ||= !isUndone(failure)
        ended.retryInMs = delay
      } finally {
        ended.durationMs = runtime.now() - began
        this.#report(ended)
      }
      await sleep(runtime, ended.retryInMs!, signal)
    }
  }

  #headers({ contentType, idempotencyKey }: Sent, requestId: string, trace = this.#options.trace?.()): Record<string, string> {
    const headers: Record<string, string> = { accept: 'application/json, application/problem+json', 'x-request-id': requestId }
    if (contentType) headers['content-type'] = contentType
    if (contentType === 'application/x-ndjson') headers['accept'] = 'application/x-ndjson, application/problem+json'
    if (idempotencyKey !== undefined) headers['idempotency-key'] = visible('idempotencyKey', idempotencyKey)
    // Like the service, ignores a context that violates the specification: tracing must not prevent a delivery.
    if (trace && /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/.test(trace.traceparent)) {
      headers['traceparent'] = trace.traceparent
      if (trace.tracestate && /^[ -~]{1,512}$/.test(trace.tracestate)) headers['tracestate'] = trace.tracestate
    }
    return headers
  }

  async #attempt<T>(
    sent: Sent,
    headers: Record<string, string>,
    timeoutMs: number,
    signal: AbortSignal | undefined,
    ended: Attempt,
    read: (response: Response) => Promise<T>,
  ): Promise<T> {
    const { runtime } = this
    const abort = new AbortController()
    const stop = () => abort.abort(signal!.reason)
    signal?.addEventListener('abort', stop)
    const late = new NoroshiError('timeout', `no answer after ${Math.round(timeoutMs)} ms`)
    const timer = runtime.setTimeout(() => abort.abort(late), timeoutMs)
    try {
      const authorization = `Bearer ${await this.#key(abort.signal)}`
      const init: RequestInit = { method: sent.method.toUpperCase(), headers: { ...headers, authorization }, signal: abort.signal, redirect: 'manual' }
      if (sent.body !== undefined) init.body = sent.body
      const response = await runtime.fetch(sent.url, init).catch((error) => {
        throw networkError(error)
      })
      ended.status = response.status
      ended.requestId = response.headers.get('x-request-id') ?? ended.requestId
      if (response.ok) return await read(response)
      const text = await readText(response.body, PROBLEM_BYTES_MAX).catch(() => '')
      let problem: unknown
      try {
        problem = JSON.parse(text)
      } catch {
        // The page of a proxy.
      }
      throw new ProblemError(response.status, problem, retryAfter(response.headers.get('retry-after'), runtime.now()))
    } catch (error) {
      throw abort.signal.aborted && !signal?.aborted ? late : error
    } finally {
      runtime.clearTimeout(timer)
      signal?.removeEventListener('abort', stop)
    }
  }

  async #key(signal: AbortSignal): Promise<string> {
    const { key } = this.#options
    const text = typeof key === 'string' ? key : await unlessAborted(key(), signal)
    if (!/^[!-~]+$/.test(text)) throw new TypeError('key must be visible ASCII characters')
    return text
  }

  #report(attempt: Attempt): void {
    try {
      this.#options.onAttempt?.(attempt)
    } catch {
      // An observer must not change the result of a request.
    }
  }
}

function visible(name: string, text: string): string {
  if (!/^[!-~]{1,255}$/.test(text)) throw new TypeError(`${name} must be 1 to 255 visible ASCII characters`)
  return text
}

function unlessAborted<T>(value: T | Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop, { once: true })
    Promise.resolve(value).then(resolve, reject).finally(() => signal.removeEventListener('abort', stop))
  })
}

/** Sending it again may succeed. @internal */
export function isTransient(error: unknown): boolean {
  if (error instanceof ProblemError) return TRANSIENT.includes(error.status)
  return error instanceof NoroshiError && (error.code === 'network' || error.code === 'timeout')
}

/** The service has certainly not done it. */
function isUndone(error: NoroshiError): boolean {
  // A cell may have done it without an answer to its front.
  if (error instanceof ProblemError) return NOTHING_DONE.includes(error.status) && error.code !== ('cell_unavailable' satisfies ProblemCode)
  if (error.code !== 'network') return false
  const { code, cause } = (error.cause ?? {}) as { code?: string; cause?: { code?: string; errors?: { code?: string }[] } }
  const codes = [code, cause?.code, ...(cause?.errors ?? []).map((one) => one.code)]
  return codes.some((code) => NOT_CONNECTED.includes(code!)) || NOT_CONNECTED_TEXT.test(error.message)
}

/** Exponential backoff with full jitter, after `Retry-After` if the answer has it. @internal */
export function retryDelay(error: unknown, attempt: number, random: number): number {
  const after = error instanceof ProblemError ? (error.retryAfterMs ?? 0) : 0
  return after + Math.round(random * Math.min(BACKOFF_MS_MAX, BACKOFF_MS * 2 ** (attempt - 1)))
}

/** Milliseconds of a `Retry-After` header, which states seconds or a date (RFC 9110 §10.2.3). @internal */
export function retryAfter(text: string | null, now: number): number | undefined {
  if (!text) return undefined
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now
  return Number.isFinite(ms) ? Math.max(ms, 0) : undefined
}
