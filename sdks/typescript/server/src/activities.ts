import type { Activities, ActivitiesQuery, Activity, ActivityDevice, ActivityEnd, ActivityUpdate, NewActivity } from './api.js'
import type { Http, IdempotentOptions, RequestOptions } from './http.js'
import { list, type Pages } from './pages.js'

/** Live Activities of iOS, and Live Updates of Android. */
export class ActivitiesApi {
  readonly #http: Http

  /** @internal */
  constructor(http: Http) {
    this.#http = http
  }

  start(activity: NewActivity, { idempotencyKey = crypto.randomUUID(), ...options }: IdempotentOptions = {}): Promise<Activity> {
    return this.#http.call('post', '/v1/activities', { body: activity, idempotencyKey }, options)
  }

  list(options: ActivitiesQuery & RequestOptions = {}): Pages<Activities, Activity> {
    return list(this.#http, '/v1/activities', {}, options, (page) => page.activities)
  }

  get(id: string, options?: RequestOptions): Promise<Activity> {
    return this.#http.call('get', '/v1/activities/{id}', { path: { id } }, options)
  }

  /** Sends the new state to all devices that have the activity. A lost answer is not retried: an `alert` may sound twice. */
  update(id: string, update: ActivityUpdate, options?: RequestOptions): Promise<Activity> {
    return this.#http.call('patch', '/v1/activities/{id}', { path: { id }, body: update }, options)
  }

  /** Ends it on all devices that have it. */
  end(id: string, end: ActivityEnd = {}, options?: RequestOptions): Promise<Activity> {
    return this.#http.call('delete', '/v1/activities/{id}', { path: { id }, body: end, safe: false }, options)
  }

  /** What happened to it on a device. */
  explain(id: string, device: string, options?: RequestOptions): Promise<ActivityDevice> {
    return this.#http.call('get', '/v1/activities/{id}/devices/{device}', { path: { id, device } }, options)
  }
}
