/** Stable names of the errors that the library itself reports. */
export type ClientErrorCode =
  /** `getToken` failed or took too long. */
  | 'token_failed'
  /** The service rejected several tokens in a row. */
  | 'unauthorized'
  /** A request found no server, or broke. */
  | 'network'
  /** A request took longer than 30 seconds. */
  | 'timeout'
  /** The service sent something that is not a frame of the protocol. */
  | 'bad_frame'
  /** A listener for messages threw an error, or its promise was rejected. `cause` is that error. */
  | 'listener_failed'
  /** Server-sent events cannot carry this topic, whose name has a comma; a WebSocket will. */
  | 'bad_topic'
  /** A bounded queue is full; the oldest entry was dropped. */
  | 'queue_full'
  /** This browser, or this insecure page, has no Web Locks: tabs cannot share a connection. */
  | 'tabs_unavailable'
  /** There is no WebSocket, and no other transport: pass `WebSocket`. */
  | 'no_transport'
  /** `getToken` returned `null`: nobody is signed in. */
  | 'signed_out'

/** Every error of this library. `code` is stable, texts are not. */
export class NoroshiError extends Error {
  override name = 'NoroshiError'
  /** A name of this library, or of the service: docs/native.md#errors. */
  readonly code: ClientErrorCode | (string & {})
  /** For an error about one topic. */
  readonly topic?: string
  /** Why topic rules denied the topic. */
  readonly reason?: string
  constructor(code: ClientErrorCode | (string & {}), message: string, more: { cause?: unknown; topic?: string | undefined; reason?: string | undefined } = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause })
    this.code = code
    if (more.topic !== undefined) this.topic = more.topic
    if (more.reason !== undefined) this.reason = more.reason
  }
}

/** The service answered a request with a problem document (RFC 9457). */
export class ProblemError extends NoroshiError {
  override name = 'ProblemError'
  readonly status: number
  /** The wrong field or parameter. */
  readonly field?: string
  /** How long to wait before another attempt, if the service stated it. */
  readonly retryAfterMs?: number
  constructor(status: number, problem: { code?: string; title?: string; detail?: string; field?: string }, retryAfterMs?: number) {
    super(problem.code ?? `http_${status}`, problem.detail ?? problem.title ?? `status ${status}`)
    this.status = status
    if (problem.field !== undefined) this.field = problem.field
    if (retryAfterMs !== undefined) this.retryAfterMs = retryAfterMs
  }
}
