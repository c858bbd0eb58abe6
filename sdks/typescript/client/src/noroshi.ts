/** The client: messages, topics, the inbox, and what the device reports about itself. */

import { Connection, type ConnectionEvents, type ConnectionOptions, type State, type SubscribeOptions } from './connection.js'
import { combine, Emitter, UNHANDLED, type ListenOptions } from './emitter.js'
import { NoroshiError } from './error.js'
import { Http, type RequestOptions } from './http.js'
import { Inbox } from './inbox.js'
import { Outbox, type ReportStorage } from './outbox.js'
import type { Counts, Message, Notification, Recovered } from './protocol.js'
import { defaultRuntime } from './runtime.js'
import { sse } from './sse.js'
import { canShare, SharedConnection } from './tabs.js'
import { Tokens } from './token.js'
import { websocket } from './transport.js'

export interface NoroshiOptions extends Omit<ConnectionOptions, 'transports' | 'tokens' | 'parallel' | 'ignoresPage'> {
  /** All tabs of the origin use one connection. Needs Web Locks, which browsers offer to secure pages only. */
  shareTabs?: boolean
  /** Tabs with the same group share a connection: name the user if tabs may be signed in as different users. */
  group?: string
  /** Which transports to use, in this order. Default: WebSocket, and server-sent events where a network blocks it. */
  transports?: readonly ('websocket' | 'sse')[]
  /** Keeps reports of opened messages until the service has them, for example `localStorage`. */
  storage?: ReportStorage
}

/** The names of an application's topics. */
export type TopicName<Topics> = keyof Topics & string

/** A message of a topic, with its type, or one to the device, its user or everyone. */
export type AnyMessage<Topics> =
  | { [Name in TopicName<Topics>]: Message<Topics[Name]> & { topic: Name } }[TopicName<Topics>]
  | (Message & { topic?: never })

export interface NoroshiEvents<Topics> extends Omit<ConnectionEvents, 'message'> {
  message: AnyMessage<Topics>
  /** The number of unread items changed. */
  unread: Counts
}

/** A device's own state: `GET /v1/me`. The service may add fields. */
export interface Me {
  device: string
  user: string | null
  topics: string[]
  presence: 'active' | 'idle' | 'offline'
  /** How many messages wait for an acknowledgement. */
  inbox: number
  unread_items: number
  messages: Message[]
  preferences: { user: PreferenceValues | null; device: PreferenceValues | null }
  experiments: Record<string, Variant>
  maintenance: { name: string; state: 'announced' | 'active'; starts_at?: string; ends_at?: string; notification?: Notification; data?: unknown }[]
  [field: string]: unknown
}

export interface Variant<Data = unknown> {
  variant: string
  data?: Data
}

/** A request of the device's API: `crates/api/openapi.json`. */
export interface ApiRequest extends RequestOptions {
  /** Sent as JSON. */
  body?: unknown
  query?: Record<string, string | undefined>
}

/** A way in which notifications arrive. */
export type Channel = 'live' | 'push' | 'inbox'

/** Which notifications arrive, and how: docs/preferences.md. */
export interface PreferenceValues {
  channels?: Channel[] | null
  muted_topics?: string[] | null
  categories?: Record<string, { muted?: boolean | null; channels?: Channel[] | null; daily_max?: number | null }> | null
  quiet_hours?: { from: string; to: string; timezone?: string | null } | null
}

/** The preferences of the device, or those of its user. */
export class Preferences {
  readonly #http: Http
  readonly #path: string

  /** @internal */
  constructor(http: Http, path: string) {
    this.#http = http
    this.#path = path
  }

  get({ signal }: RequestOptions = {}): Promise<PreferenceValues> {
    return this.#http.json('GET', this.#path, { signal })
  }

  /** Replaces them; returns them as stored. */
  set(body: PreferenceValues, { signal }: RequestOptions = {}): Promise<PreferenceValues> {
    return this.#http.json('PUT', this.#path, { body, signal })
  }

  async delete({ signal }: RequestOptions = {}): Promise<void> {
    await this.#http.request('DELETE', this.#path, { signal })
  }
}

export interface TopicEvents<Data, Name extends string = string> {
  message: Message<Data> & { topic: Name }
  recovered: Recovered
  denied: ConnectionEvents['denied']
}

/** A subscription for as long as the client is connected. */
export class Topic<Data = unknown, Name extends string = string> extends Emitter<TopicEvents<Data, Name>> {
  readonly #leave: () => void

  /** @internal */
  constructor(
    readonly name: Name,
    leave: () => void,
  ) {
    super()
    this.#leave = leave
  }

  unsubscribe(): void {
    this.#leave()
  }

  /** The messages, each acknowledged when the loop asks for the next one; until the topic is unsubscribed. */
  messages(options?: ListenOptions): AsyncGenerator<Message<Data> & { topic: Name }, void, void> {
    return this.events('message', options)
  }

  [Symbol.asyncIterator](): AsyncGenerator<Message<Data> & { topic: Name }, void, void> {
    return this.messages()
  }
}

const EXPERIMENTS_MAX = 100
/** U5: how long variants count without another request. */
const VARIANTS_MS = 60_000

export class Noroshi<Topics extends object = Record<string, unknown>> extends Emitter<NoroshiEvents<Topics>> {
  /** The notification centre of the user. */
  readonly inbox: Inbox
  /** The preferences of this device, and under `user` those of its user. */
  readonly preferences: Preferences & { readonly user: Preferences }
  readonly #session: Connection | SharedConnection
  readonly #http: Http
  readonly #tokens: Tokens
  readonly #now: () => number
  readonly #topics = new Map<string, Topic<any, any>>()
  readonly #opened: Outbox
  readonly #exposures: Outbox
  readonly #outboxes: Outbox[]
  readonly #exposed = new Set<string>()
  #me: Me | undefined
  /** When `#me` was asked for, and with which token. */
  #askedAt = 0
  #token: string | undefined
  #etag: string | null = null

  constructor({ shareTabs, group = '', transports = ['websocket', 'sse'], storage, ...options }: NoroshiOptions) {
    super()
    const runtime = { ...defaultRuntime(), ...options.runtime }
    const failed = (error: NoroshiError) => this.emit('error', error)
    const isShared = shareTabs === true && canShare()
    const tokens = (this.#tokens = new Tokens(options.getToken, runtime))
    this.#now = runtime.now
    const { url, app } = options
    const http = (this.#http = new Http(url, app, tokens, runtime))
    const events = sse(http, runtime, failed)
    const all = { ...options, runtime, tokens, transports: transports.map((name) => (name === 'sse' ? events : websocket)) }
    const session = (this.#session = isShared ? new SharedConnection(all, group) : new Connection(all))
    if (shareTabs && !isShared) {
      queueMicrotask(() => failed(new NoroshiError('tabs_unavailable', 'tabs cannot share a connection: no Web Locks, or an insecure page')))
    }
    const key = `noroshi:opened:${url}:${app ?? ''}:${group}`
    this.#opened = new Outbox(http, runtime, failed, { path: '/v1/me/opened', field: 'ids', batch: 1_000, max: 1_000, storage, key })
    this.#exposures = new Outbox(http, runtime, failed, { path: '/v1/me/exposures', field: 'experiments', batch: 100, max: EXPERIMENTS_MAX })
    this.#outboxes = [this.#opened, this.#exposures, ...events.outboxes]
    this.inbox = new Inbox(http, (counts) => this.emit('unread', counts))
    this.preferences = Object.assign(new Preferences(http, '/v1/me/preferences'), { user: new Preferences(http, '/v1/me/user/preferences') })

    session.on('message', (message) => {
      const topic = this.#topics.get(message.topic!)
      return combine([topic ? topic.ask('message', message as any) : UNHANDLED, this.ask('message', message as any)])
    })
    session.on('state', (state) => {
      if (state.state === 'connected') {
        for (const outbox of this.#outboxes) outbox.wake()
        this.#refresh()
      }
      this.emit('state', state)
      if (state.state === 'closed') for (const one of [this, ...this.#topics.values()]) one.finish(state.reason!)
    })
    session.on('items', (change) => {
      this.inbox.update(change)
      this.emit('items', change)
    })
    session.on('recovered', (event) => {
      this.#topics.get(event.topic)?.emit('recovered', event)
      this.emit('recovered', event)
    })
    session.on('denied', (event) => {
      const topic = this.#topics.get(event.topic)
      this.#topics.delete(event.topic)
      topic?.emit('denied', event)
      topic?.finish(event.code)
      this.emit('denied', event)
    })
    session.on('error', failed)
  }

  get state(): State {
    return this.#session.state
  }

  /** Connects, and stays connected until `close`. */
  connect(): void {
    for (const outbox of this.#outboxes) outbox.open()
    this.#session.connect()
  }

  /** Ends the connection. Acknowledgements that wait are sent first; reports of opened messages stay in `storage`. */
  close(): void {
    this.#session.close()
    for (const outbox of this.#outboxes) outbox.close()
  }

  /** `auto` (the default) follows the visibility of the page. */
  get presence(): 'auto' | 'active' | 'idle' {
    return this.#session.presence
  }

  set presence(presence: 'auto' | 'active' | 'idle') {
    this.#session.presence = presence
  }

  /** Subscribes. The same name returns the same object until `unsubscribe`; `options` replace the earlier ones. */
  topic<Name extends TopicName<Topics>>(name: Name, options?: SubscribeOptions): Topic<Topics[Name], Name> {
    let topic = this.#topics.get(name)
    if (!topic) {
      topic = new Topic<Topics[Name], Name>(name, () => {
        if (this.#topics.get(name) !== topic) return
        this.#topics.delete(name)
        this.#session.unsubscribe(name)
        topic!.finish('closed')
      })
      this.#topics.set(name, topic)
      this.#session.subscribe(name, options)
    } else if (options) this.#session.subscribe(name, options)
    return topic
  }

  /** All messages, each acknowledged when the loop asks for the next one. */
  messages(options?: ListenOptions): AsyncGenerator<AnyMessage<Topics>, void, void> {
    return this.events('message', options)
  }

  /** Acknowledges messages (`acknowledge: 'manual'`). */
  ack(...ids: string[]): void {
    this.#session.ack(ids)
  }

  /** Reports that the user opened messages. Waits for the network if there is none. */
  opened(...ids: string[]): void {
    this.#opened.add(ids)
  }

  /** The device's state. Unchanged answers cost no body. */
  async me({ signal }: RequestOptions = {}): Promise<Me> {
    const headers = this.#etag === null ? {} : { 'if-none-match': this.#etag }
    const askedAt = this.#now()
    const response = await this.#http.request('GET', '/v1/me', { headers, signal })
    if (response.status !== 304) {
      this.#me = response.json() as Me
      // Pages of another origin cannot read it; there the browser's cache asks with it.
      this.#etag = response.headers.get('etag')
    }
    this.#askedAt = askedAt
    this.#token = response.token
    return this.#me!
  }

  /** The device's variant of an experiment, if it participates, at most a minute old; reports the exposure once per variant and user. */
  async variant<Data = unknown>(experiment: string, { expose = true, signal }: RequestOptions & { expose?: boolean } = {}): Promise<Variant<Data> | undefined> {
    // Another token may be that of another user.
    const isFresh = this.#me && this.#token === this.#tokens.current && this.#now() - this.#askedAt < VARIANTS_MS
    const me = isFresh ? this.#me! : await this.me({ signal })
    const variant = me.experiments?.[experiment] as Variant<Data> | undefined
    const key = [me.device, me.user, experiment, variant?.variant].join()
    if (variant && expose && !this.#exposed.has(key)) {
      this.#exposed.add(key)
      this.#exposures.add([experiment])
    }
    return variant
  }

  /** Sends a request of the device's API that has no method here; returns the answer's body, if there is one. */
  async request<Body = unknown>(method: string, path: string, { body, query = {}, signal }: ApiRequest = {}): Promise<Body> {
    const answer = await this.#http.request(method, path, { body, query, signal })
    return (answer.status === 204 ? undefined : answer.json()) as Body
  }

  /** The page was hidden or shown, or the network returned, in environments without a `document`. */
  pageChanged(page: { hidden?: boolean; online?: boolean }): void {
    this.#session.pageChanged(page)
    if (page.online) for (const outbox of this.#outboxes) outbox.wake()
  }

  /** @internal */
  protected override listened(type: keyof NoroshiEvents<Topics>): void {
    if (type === 'unread') this.#refresh()
  }

  /** U1: reports may have been lost meanwhile. */
  #refresh(): void {
    if (this.state.state !== 'connected' || !this.has('unread')) return
    this.inbox.refresh().catch((error: unknown) => this.emit('error', error as NoroshiError))
  }
}
