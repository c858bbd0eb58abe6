import type { Problem } from './api.js'

/** The codes of the service's problem documents: `/docs` on a node explains each. */
export type ProblemCode = Problem['code']

/** Codes of errors that the library itself reports. */
export type ClientErrorCode =
  /** The request found no server, or the connection broke. `cause` is the error of `fetch`. */
  | 'network'
  /** No answer in time: `timeoutMs` of one attempt, or `deadlineMs` of all. */
  | 'timeout'
  /** The answer is not what the service sends: no JSON, too large, or too few lines. */
  | 'bad_answer'
  /** The status of an answer without a problem document, for example of a proxy. */
  | `http_${number}`
  /** A line of a batch is not JSON, for example because it contains a `BigInt`. */
  | 'invalid_line'
  /** A webhook is not signed by the service. */
  | 'bad_signature'
  /** A webhook is older than its tolerance, or from the future. */
  | 'bad_timestamp'

export type ErrorCode = ProblemCode | ClientErrorCode

/** What the error belongs to. */
export interface ErrorContext {
  cause?: unknown
  /** Method and path of the request, such as `POST /v1/notifications`. */
  request?: string | undefined
  requestId?: string | undefined
  attempts?: number | undefined
}

/** Every error of this library. `code` is stable, texts are not. */
export class NoroshiError extends Error {
  override name = 'NoroshiError'
  /** A later version of the service may have codes that this version does not know. */
  readonly code: ErrorCode | (string & {})
  /** Method and path of the request, such as `POST /v1/notifications`. */
  declare readonly request?: string
  /** `X-Request-Id` of the request. The service's log has it. */
  declare readonly requestId?: string
  /** How many times the request was sent. */
  declare readonly attempts?: number

  constructor(code: ErrorCode | (string & {}), message: string, { cause, request, requestId, attempts }: ErrorContext = {}) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
    if (request !== undefined) this.request = request
    if (requestId !== undefined) this.requestId = requestId
    if (attempts !== undefined) this.attempts = attempts
  }
}

/** The service answered with a problem document (RFC 9457), or rejected a line of a batch with one. */
export class ProblemError extends NoroshiError {
  override name = 'ProblemError'
  readonly status: number
  /** What is wrong in general; `message` is what is wrong with this request. */
  readonly title: string
  /** The wrong field or parameter, such as `to.users[3]`. */
  declare readonly field?: string
  /** How long to wait before another attempt, if the service stated it. */
  declare readonly retryAfterMs?: number

  constructor(status: number, problem: unknown, retryAfterMs?: number, context?: ErrorContext) {
    const { code, title, detail, field } = (typeof problem === 'object' && problem !== null ? problem : {}) as Record<string, unknown>
    const text = (value: unknown) => (typeof value === 'string' && value ? value : undefined)
    super(text(code) ?? `http_${status}`, text(detail) ?? text(title) ?? `status ${status}`, context)
    this.status = status
    this.title = text(title) ?? ''
    if (text(field) !== undefined) this.field = text(field)!
    if (retryAfterMs !== undefined) this.retryAfterMs = retryAfterMs
  }
}

/** @internal */
export function networkError(cause: unknown): NoroshiError {
  const { message, cause: reason } = cause as { message?: string; cause?: { message?: string } }
  return new NoroshiError('network', `${message ?? cause}${reason?.message ? `: ${reason.message}` : ''}`, { cause })
}
