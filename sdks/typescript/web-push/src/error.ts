export type WebPushErrorCode =
  /** This browser, or this page, has no Web Push: see `permission`. */
  | 'unsupported'
  /** The user denied the permission, now or earlier. */
  | 'permission_denied'
  /** The user closed the question without an answer. */
  | 'permission_dismissed'
  /** `applicationServerKey` is not a public key of VAPID: 65 bytes of P-256, base64url. */
  | 'invalid_key'
  /** The browser, or its push service, refused the subscription. `cause` is the browser's error. */
  | 'subscribe_failed'
  /** The service rejected a request of the worker, which cannot succeed later. */
  | 'rejected'
  /** The worker's request failed for now; it is repeated. */
  | 'unavailable'
  /** A push had a payload that the worker cannot show. */
  | 'bad_payload'

/** `code` is stable, texts are not. */
export class WebPushError extends Error {
  override name = 'WebPushError'
  readonly code: WebPushErrorCode
  /** The status of the service's answer. */
  readonly status?: number
  constructor(code: WebPushErrorCode, message: string, more: { cause?: unknown; status?: number } = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause })
    this.code = code
    if (more.status !== undefined) this.status = more.status
  }
}
