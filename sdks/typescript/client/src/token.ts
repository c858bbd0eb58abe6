/** Gets tokens from the application: one request at a time, a new one before the old one expires or after a rejection. */

import { NoroshiError } from './error.js'
import type { Runtime } from './runtime.js'

/** Why a token is requested. Do not return a cached token for `expiring` and `rejected`. */
export interface TokenRequest {
  reason: 'first' | 'expiring' | 'rejected'
  /** The token that expires or was rejected. */
  previous?: string
  /** Aborted after 30 seconds. */
  signal: AbortSignal
}

/** Returns a token of the device: a device token, or a JWT of the app. `null` means that nobody is signed in. */
export type GetToken = (request: TokenRequest) => string | null | Promise<string | null>

const TIMEOUT_MS = 30_000

/** The application's user signed out. @internal */
export class SignedOut extends NoroshiError {
  constructor() {
    super('signed_out', 'getToken returned null')
  }
}

/** @internal */
export class Tokens {
  current?: string
  /** By the client's clock, or Infinity: when to ask for the next token. */
  renewAt = Infinity
  #reason: TokenRequest['reason'] = 'first'
  #previous?: string
  #pending: Promise<string> | undefined
  readonly #getToken: GetToken
  readonly #runtime: Runtime

  constructor(getToken: GetToken, runtime: Runtime) {
    this.#getToken = getToken
    this.#runtime = runtime
  }

  /** The current token, or a new one. */
  take(): string | Promise<string> {
    return this.current ?? this.#request()
  }

  /** A new token; the current one stays in use until it arrives. */
  renew(): Promise<string> {
    if (this.current !== undefined) {
      this.#reason = 'expiring'
      this.#previous = this.current
    }
    return this.#request()
  }

  /** The service rejected this token. */
  reject(token: string | undefined): void {
    if (token === undefined || token !== this.current) return
    this.#reason = 'rejected'
    this.#previous = token
    delete this.current
    this.renewAt = Infinity
  }

  #request(): Promise<string> {
    return (this.#pending ??= this.#fetch().finally(() => (this.#pending = undefined)))
  }

  async #fetch(): Promise<string> {
    const runtime = this.#runtime
    const abort = new AbortController()
    let timer: unknown
    const late = new Promise<never>((_, reject) => {
      timer = runtime.setTimeout(() => {
        abort.abort()
        reject(new Error(`no token after ${TIMEOUT_MS / 1000} s`))
      }, TIMEOUT_MS)
    })
    try {
      const request: TokenRequest = { reason: this.#reason, signal: abort.signal }
      if (this.#previous !== undefined) request.previous = this.#previous
      const token = await Promise.race([Promise.resolve(request).then(this.#getToken), late])
      if (token === null) throw new SignedOut()
      if (typeof token !== 'string' || !token) throw new TypeError('getToken returned no text')
      if (token === this.#previous) throw new Error('it returned the previous token') // T3
      this.current = token
      this.renewAt = renewal(token, runtime)
      return token
    } catch (cause) {
      throw cause instanceof SignedOut ? cause : new NoroshiError('token_failed', `getToken failed: ${cause}`, { cause })
    } finally {
      runtime.clearTimeout(timer)
    }
  }
}

/** CONTRACT.md T4 and K1 to K3. */
function renewal(token: string, { now, random }: Runtime): number {
  const { exp, iat } = claims(token)
  if (typeof exp !== 'number') return Infinity
  const here = now()
  const issued = typeof iat === 'number' ? iat * 1000 : here
  const lifetime = exp * 1000 - issued
  // The local clock is wrong if it contradicts a token that the application has just got.
  const left = here < issued || here >= exp * 1000 ? lifetime : exp * 1000 - here
  if (left <= 0) return Infinity // K3
  const margin = Math.min(60_000, left / 5)
  return here + Math.max(left - margin * (1 + random() / 2), Math.min(1_000, left / 2))
}

function claims(token: string): { exp?: unknown; iat?: unknown } {
  try {
    return JSON.parse(atob(token.split('.')[1]!.replace(/-/g, '+').replace(/_/g, '/'))) ?? {}
  } catch {
    return {} // an opaque device token
  }
}
