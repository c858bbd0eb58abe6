import type { Cancelled, ListedNotification, Notification, NotificationState, Notifications, NotificationsQuery, Receipt, Trace } from './api.js'
import { batch, type IdempotentBatchOptions, type LineResult, type Lines } from './batch.js'
import type { Http, IdempotentOptions, RequestOptions } from './http.js'
import { list, type Pages } from './pages.js'

/** Notifications that the service still keeps. */
export class NotificationsApi {
  readonly #http: Http

  /** @internal */
  constructor(http: Http) {
    this.#http = http
  }

  /** Newest first. A page may have fewer entries than `limit`, or none, although more follow. */
  list(options: NotificationsQuery & RequestOptions = {}): Pages<Notifications, ListedNotification> {
    return list(this.#http, '/v1/notifications', {}, options, (page) => page.notifications)
  }

  /** State, and the number of devices by outcome. */
  get(id: string, options?: RequestOptions): Promise<NotificationState> {
    return this.#http.call('get', '/v1/notifications/{id}', { path: { id } }, options)
  }

  /** Cancels what has not been delivered yet. */
  cancel(id: string, options?: RequestOptions): Promise<Cancelled> {
    return this.#http.call('delete', '/v1/notifications/{id}', { path: { id } }, options)
  }

  /** What happened to a notification on a device, and why it did not arrive. */
  explain(id: string, device: string, options?: RequestOptions): Promise<Trace> {
    return this.#http.call('get', '/v1/notifications/{id}/devices/{device}', { path: { id, device } }, options)
  }
}

/** @internal */
export function publish(http: Http, notification: Notification, { idempotencyKey = crypto.randomUUID(), ...options }: IdempotentOptions = {}): Promise<Receipt> {
  return http.call('post', '/v1/notifications', { body: notification, idempotencyKey }, options)
}

/** @internal */
export function publishBatch(http: Http, lines: Lines<Notification>, { idempotencyKey, ...options }: IdempotentBatchOptions = {}): AsyncGenerator<LineResult<Notification, Receipt>, void, void> {
  if (idempotencyKey !== undefined && idempotencyKey.length > 240) throw new RangeError('idempotencyKey of a batch must have at most 240 characters')
  const key = idempotencyKey ?? crypto.randomUUID()
  const bounds = idempotencyKey === undefined ? options : { ...options, flushAfterMs: Infinity }
  return batch(http, lines, bounds, (lines, request, options, read) =>
    http.lines('post', '/v1/notifications/batch', { lines, idempotencyKey: `${key}-${request}` }, options, read),
  )
}
