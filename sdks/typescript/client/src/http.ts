/** Requests of the device's API, with one retry after a rejected token. */

import { NoroshiError, ProblemError } from './error.js'
import { retryAfter, type Runtime } from './runtime.js'
import type { Tokens } from './token.js'
import { address } from './transport.js'

export interface RequestOptions {
  signal?: AbortSignal | undefined
}

const TIMEOUT_MS = 30_000

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
    for (let attempt = 0; ; attempt++) {
      call.signal?.throwIfAborted()
      const token = await this.tokens.take()
      call.signal?.throwIfAborted()
      const { status, headers, text } = await this.#send(method, path, token, call)
      const json = () => {
        try {
          return JSON.parse(text)
        } catch (cause) {
          throw new NoroshiError('network', `${method} ${path}: the answer is not JSON`, { cause })
        }
      }
      if ((status >= 200 && status < 300) || status === 304) return { status, headers, json }
      if (status === 401 && attempt === 0) {
        this.tokens.reject(token) // T6
        continue
      }
      let problem = {}
      try {
        problem = json() ?? {}
      } catch {
        // a proxy's page
      }
      throw new ProblemError(status, problem, retryAfter(headers.get('retry-after'), this.runtime.now()))
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
