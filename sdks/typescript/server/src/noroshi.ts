import { ActivitiesApi } from './activities.js'
import type { Invalidation, Invalidations, InvalidationsQuery, Notification, PresenceAnswer, Receipt } from './api.js'
import { AppApi } from './app.js'
import type { IdempotentBatchOptions, LineResult, Lines } from './batch.js'
import { CampaignsApi } from './campaigns.js'
import { ChannelsApi } from './channels.js'
import { DevicesApi } from './devices.js'
import { Http, type Attempt, type IdempotentOptions, type RequestOptions, type TraceContext } from './http.js'
import { NotificationsApi, publish, publishBatch } from './notifications.js'
import { list, type Pages } from './pages.js'
import { defaultRuntime, type Runtime } from './runtime.js'
import { TopicsApi } from './topics.js'
import { UsersApi } from './users.js'

export interface NoroshiOptions {
  /** The address of a node, or of what stands in front of nodes, such as `https://push.example.com`. */
  url: string | URL
  /** An API key. A function is called for each attempt, so that a key can be rotated without a restart. */
  key: string | (() => string | Promise<string>)
  /** For each attempt, until its answer was read. Default: 30,000. */
  timeoutMs?: number
  /** For all attempts of a request and the time between them. Default: 120,000. */
  deadlineMs?: number
  /** How many attempts a request has at most. Default: 5. */
  attempts?: number
  /** The trace of a request, for example that of the active span. */
  trace?: () => TraceContext | undefined
  /** Called after each attempt, for logs and metrics. Errors that it throws are ignored. */
  onAttempt?: (attempt: Attempt) => void
  /** Default: that of the platform. */
  fetch?: typeof fetch
  /** Clock, timers and random numbers, for tests. */
  runtime?: Partial<Runtime>
}

/**
 * The API of a provider: what a backend does with an API key.
 *
 * ```ts
 * const noroshi = new Noroshi({ url: 'https://push.example.com', key: process.env.NOROSHI_KEY })
 * const { id } = await noroshi.publish({ to: { users: ['u1'] }, notification: { title: 'Hello' } })
 * ```
 */
export class Noroshi {
  readonly #http: Http
  readonly notifications: NotificationsApi
  readonly devices: DevicesApi
  readonly users: UsersApi
  readonly topics: TopicsApi
  readonly campaigns: CampaignsApi
  readonly activities: ActivitiesApi
  readonly channels: ChannelsApi

  constructor(options: NoroshiOptions) {
    const { url, key, timeoutMs = 30_000, deadlineMs = 120_000, attempts = 5, trace, onAttempt, fetch, runtime } = options
    // Not as a method: the `fetch` of Workers needs its own `this`.
    const own = fetch && { fetch: (...args: Parameters<typeof fetch>) => fetch(...args) }
    const http = new Http({ url, key, timeoutMs, deadlineMs, attempts, trace, onAttempt, runtime: { ...defaultRuntime, ...runtime, ...own } })
    this.#http = http
    this.notifications = new NotificationsApi(http)
    this.devices = new DevicesApi(http)
    this.users = new UsersApi(http)
    this.topics = new TopicsApi(http)
    this.campaigns = new CampaignsApi(http)
    this.activities = new ActivitiesApi(http)
    this.channels = new ChannelsApi(http)
  }

  /** The app of the key, for keys with the scope `admin`. */
  app(name: string): AppApi {
    return new AppApi(this.#http, name)
  }

  /** Notifies users, devices, a topic, a condition, or everyone. Retried attempts deliver nothing twice. */
  publish(notification: Notification, options?: IdempotentOptions): Promise<Receipt> {
    return publish(this.#http, notification, options)
  }

  /**
   * Publishes many notifications. Takes lines as it sends them, and returns a result for each, in order:
   *
   * ```ts
   * for await (const { ok, line, error } of noroshi.publishBatch(notifications())) if (!ok) log(line.to, error.code)
   * ```
   *
   * The service accepts lines in order, except those that it rejects for now (`overloaded`, `quota_exceeded`): the
   * library sends them again. If a request fails as a whole, the loop throws; lines without a result may have been
   * accepted.
   */
  publishBatch(lines: Lines<Notification>, options?: IdempotentBatchOptions): AsyncGenerator<LineResult<Notification, Receipt>, void, void> {
    return publishBatch(this.#http, lines, options)
  }

  /** Whether users are present, and on which devices. At most 1,000 users. */
  async presence(users: string[], options?: RequestOptions): Promise<PresenceAnswer['users']> {
    return (await this.#http.call('post', '/v1/presence', { body: { users }, safe: true }, options)).users
  }

  /** Push tokens that the service removed or suspended, oldest first. Continue after the last `seq` that you know. */
  invalidations(options: InvalidationsQuery & RequestOptions = {}): Pages<Invalidations, Invalidation> {
    return list(this.#http, '/v1/push/invalidations', {}, options, (page) => page.invalidations)
  }
}
