/** Requests of the device's API: one retry after a rejected token, and of reads if the service asks for it. */

import { NoroshiError, ProblemError } from './error.js'
import { retryAfter, type Runtime } from './runtime.js'
import type { Tokens } from './token.js'
import { address } from './transport.js'

export interface RequestOptions {
  signal?: AbortSignal | undefined
}

const TIMEOUT_MS = 30_000
/** U6: from the call to the last repetition of a read. */
const REPEAT_MS = 30_000
const REPEATS_MAX = 2

/** @internal */
export interface Call extends RequestOptions {
  query?: Record<string, string | undefined>
  body?: unknown
  headers?: Record<string, string>
  /** The request outlives its page. */
  keepalive?: boolean
}

/** @internal */
export interface Answer {
  status: number
  headers: Headers
  token: string
  json(): unknown
}

/** @internal */
export class Http {
  constructor(
    private readonly url: string,
    private readonly app: string | undefined,
    private readonly tokens: Tokens,
    private readonly runtime: Runtime,
  ) {}

  /** The answer with status 200 to 299 or 304; every other one is a `ProblemError`. */
  async request(method: string, path: string, call: Call = {}): Promise<Answer> {
    const { signal } = call
    const { now, setTimeout, clearTimeout } = this.runtime
    const end = now() + REPEAT_MS
    let isRejected = false
    for (let repeats = 0; ; ) {
      const token = await unlessAborted(signal, this.tokens.take())
      const { status, headers, text } = await this.#send(method, path, token, call)
      const json = () => {
        try {
          return JSON.parse(text)
        } catch (cause) {
          throw new NoroshiError('network', `${method} ${path}: the answer is not JSON`, { cause })
        }
      }
      if ((status >= 200 && status < 300) || status === 304) return { status, headers, json, token }
      if (status === 401 && !isRejected) {
        isRejected = true
        this.tokens.reject(token) // T6
        continue
      }
      const wait = retryAfter(headers.get('retry-after'), now())
      if (method === 'GET' && (status === 429 || status === 503) && wait !== undefined && now() + wait <= end && repeats++ < REPEATS_MAX) {
        let timer
        try {
          await unlessAborted(signal, new Promise<void>((resolve) => (timer = setTimeout(resolve, wait))))
        } finally {
          clearTimeout(timer)
        }
        continue
      }
      let problem = {}
      try {
        problem = json() ?? {}
      } catch {
        // a proxy's page
      }
      throw new ProblemError(status, problem, wait)
    }
  }

  async json<Body>(method: string, path: string, call?: Call): Promise<Body> {
    return (await this.request(method, path, call)).json() as Body
  }

  async #send(method: string, path: string, token: string, { query = {}, body, headers, signal, keepalive }: Call) {
    const abort = new AbortController()
    const stop = () => abort.abort(signal!.reason)
    signal?.addEventListener('abort', stop)
    let isLate = false
    const timer = this.runtime.setTimeout(() => {
      isLate = true
      abort.abort()
    }, TIMEOUT_MS)
    try {
      const init: RequestInit = { method, signal: abort.signal, headers: { authorization: `Bearer ${token}`, ...headers } }
      if (body !== undefined) {
        ;(init.headers as Record<string, string>)['content-type'] = 'application/json'
        init.body = JSON.stringify(body)
      }
      if (keepalive) init.keepalive = true
      const response = await this.runtime.fetch(address(this.url, path, { ...query, app: this.app }), init)
      return { status: response.status, headers: response.headers, text: await response.text() }
    } catch (cause) {
      signal?.throwIfAborted()
      throw isLate
        ? new NoroshiError('timeout', `${method} ${path}: no answer after ${TIMEOUT_MS / 1000} s`)
        : new NoroshiError('network', `${method} ${path}: ${cause}`, { cause })
    } finally {
      this.runtime.clearTimeout(timer)
      signal?.removeEventListener('abort', stop)
    }
  }
}

/** Waits for the promise, but not longer than until the signal is aborted. */
async function unlessAborted<Value>(signal: AbortSignal | undefined, promise: Value | Promise<Value>): Promise<Value> {
  signal?.throwIfAborted()
  let abort = () => {}
  const aborted = new Promise<never>((_, reject) => (abort = () => reject(signal!.reason)))
  signal?.addEventListener('abort', abort)
  try {
    return await Promise.race([promise, aborted])
  } finally {
    signal?.removeEventListener('abort', abort)
  }
}
