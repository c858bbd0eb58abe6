/**
 * The session of a device: connects, reconnects, subscribes, recovers and acknowledges. The rules are in CONTRACT.md, whose
 * numbers are in the comments.
 */

import { Emitter } from './emitter.js'
import { NoroshiError } from './error.js'
import { Inflow, QUEUE_MAX } from './inflow.js'
import { reasonOf, type CloseReason, type Frame, type ItemsChange, type Message, type Position, type Recovered } from './protocol.js'
import { Recent } from './recent.js'
import { backoff, defaultRuntime, type Runtime } from './runtime.js'
import { SignedOut, Tokens, type GetToken } from './token.js'
import { watchPage } from './page.js'
import { websocket, type End, type Link, type Transport } from './transport.js'

/**
 * `idle`: not started. `connecting`: until the service accepts the log-in. `connected`. `waiting`: until the next attempt.
 * `closed`: ended, until `connect` is called again.
 */
export interface State {
  state: 'idle' | 'connecting' | 'connected' | 'waiting' | 'closed'
  /** `waiting`, `closed`: why the last connection ended. */
  reason?: CloseReason
  /** `waiting`: until the next attempt. */
  retryInMs?: number
  /** `connected`: which transport. */
  transport?: 'websocket' | 'sse'
  /** `connected`: the id of the device. Server-sent events do not report it. */
  device?: string
}

export interface ConnectionEvents {
  /** A message. Return a promise to be acknowledged later: after it is resolved. */
  message: Message
  state: State
  recovered: Recovered
  /** R7: where `recovered` ended. @internal */
  position: Position & { topic: string }
  items: ItemsChange
  /** A subscription was refused, or ended because topic rules changed. It is not tried again. */
  denied: { topic: string; code: string; reason: string }
  error: NoroshiError
}

export interface ConnectionOptions {
  /** The public address of the service, such as `https://push.example.com`. */
  url: string
  getToken: GetToken
  /** The name of the app, if its JWTs do not name it. */
  app?: string
  /**
   * When a stored message is acknowledged. `handled` (default): after the listeners returned, or the promises that they
   * returned were resolved; a message without a listener is not acknowledged. `received`: at once. `manual`: by `ack`.
   */
  acknowledge?: 'handled' | 'received' | 'manual'
  /** Seconds of silence after which the client checks the connection. Default 60; never more than the service's interval. */
  pingInterval?: number
  /** Replaces clocks and networks. Pass `{ WebSocket }` in Node.js 20. */
  runtime?: Partial<Runtime>
  /** Shared with the requests of the HTTP API. @internal */
  tokens?: Tokens
  /** @internal */
  transports?: Transport[]
  /** @internal */
  parallel?: number
  /** Called before each attempt to connect. @internal */
  permit?: () => Promise<unknown>
  /** @internal */
  ignoresPage?: boolean
}

export interface SubscribeOptions {
  /** After a reconnection the service sends what was missed, and `recovered` follows. */
  recover?: boolean
}

const CONNECT_TIMEOUT_MS = 15_000
const PONG_TIMEOUT_MS = 10_000
const STABLE_MS = 5_000
const FLUSH_MS = 100
const IDLE_MS = 10_000
const WEBSOCKET_AGAIN_MS = 300_000
const ACKS_MAX = 10_000
/** Four minutes between comments of a stream, which has no `ping_s`, and half a minute for them to arrive. */
const STREAM_SILENCE_S = 270
const REJECTIONS_MAX = 5
/** Of JSON, in the worst case: below the 64 KiB of `limits.client_message`. */
const FRAME_BYTES_MAX = 60_000

export class Connection extends Emitter<ConnectionEvents> {
  state: State = { state: 'idle' }
  /** @internal */
  readonly runtime: Runtime
  /** @internal */
  readonly tokens: Tokens
  readonly #options: ConnectionOptions
  readonly #transports: Transport[]
  readonly #inflow: Inflow
  #link: Link | undefined
  #transport!: Transport
  /** Outdated callbacks compare it. */
  #attempt = 0
  #failures = 0
  #rejections = 0
  /** Attempts in a row of the WebSocket that found no server. */
  #unopened = 0
  /** X3: streams in between do not postpone it. */
  #websocketAt: number | undefined
  #readyAt: number | undefined
  #closing: Frame | undefined
  #waitsForHint = false
  #isTooSlow = false
  readonly #timers: Record<string, unknown> = {}
  #heardAt = 0
  #flushedAt = -Infinity
  #flushes = false
  #renewals = 0
  #sentToken: string | undefined
  /** The token of the session; requests may have got a newer one. */
  #token: string | undefined
  /** The topics in the request of a stream. */
  #dialed = ''

  readonly #topics = new Map<string, SubscribeOptions>()
  /** Topics that a session had: without a position a gap cannot be excluded. */
  readonly #joined = new Set<string>()
  readonly #toSub = new Set<string>()
  /** Topics that are subscribed again for another tab, until `recovered`. */
  readonly #rejoined = new Set<string>()
  /** Topics whose position the service was asked for. */
  readonly #asked = new Set<string>()
  readonly #toUnsub = new Set<string>()
  readonly #acks = new Set<string>()
  /** What the application acknowledged itself, for the case that it arrives again (D2). */
  readonly #acked = new Recent<true>()
  #presence: 'active' | 'idle' = 'active'
  #sentPresence: 'active' | 'idle' = 'active'
  #preference: 'auto' | 'active' | 'idle' = 'auto'
  #isHidden = false
  #unwatch: (() => void) | undefined

  constructor(options: ConnectionOptions) {
    super()
    this.#options = options
    this.runtime = { ...defaultRuntime(), ...options.runtime }
    this.tokens = options.tokens ?? new Tokens(options.getToken, this.runtime)
    const all = options.transports ?? [websocket]
    this.#transports = this.runtime.WebSocket ? all : all.filter(({ name }) => name !== 'websocket')
    if (!this.#transports.length) throw new NoroshiError('no_transport', 'this environment has no WebSocket: pass runtime.WebSocket')
    this.#inflow = new Inflow(
      (message) => this.ask('message', message),
      ({ id }) => (options.acknowledge === undefined || options.acknowledge === 'handled' || this.#acked.get(id)) && this.ack([id]),
      (cause) => this.emit('error', new NoroshiError('listener_failed', `a listener failed: ${cause}`, { cause })),
      options.parallel,
      (topic) => this.#topics.has(topic),
      () => this.#isTooSlow && this.#caughtUp(),
    )
  }

  /** The last position of each topic. @internal */
  get positions(): Map<string, Position> {
    return this.#inflow.positions
  }

  /** Connects, and stays connected until `close`. */
  connect(): void {
    if (!/idle|closed/.test(this.state.state)) return
    this.#failures = this.#rejections = this.#unopened = 0
    if (!this.#options.ignoresPage) this.#unwatch ??= watchPage((page) => this.pageChanged(page))
    this.#open()
  }

  /** Sends pending acknowledgements, and ends the connection. */
  close(): void {
    if (/idle|closed/.test(this.state.state)) return
    this.#closing = { t: 'close' }
    this.#flush()
    this.#stop('closed')
  }

  subscribe(topic: string, options: SubscribeOptions = {}): void {
    const known = this.#topics.get(topic)
    this.#topics.set(topic, options)
    if (known) return
    this.#toUnsub.delete(topic)
    this.#toSub.add(topic)
    this.#soon()
  }

  unsubscribe(topic: string): void {
    if (!this.#topics.delete(topic)) return
    this.#forget(topic)
    this.#toUnsub.add(topic)
    this.#soon()
  }

  /** Another connection had this subscription. @internal */
  adopt(topic: string, position: Position | undefined): void {
    this.#joined.add(topic)
    if (position) this.positions.set(topic, position)
  }

  /** Subscribes again, for another tab: the service sends the retained message to new subscriptions only. @internal */
  rejoin(topic: string): void {
    // Without a position the topic had no message since this session began, and so has no retained one.
    if (this.#toSub.has(topic) || !this.positions.has(topic)) return
    this.#toUnsub.add(topic)
    this.#toSub.add(topic)
    this.#rejoined.add(topic)
    this.#soon()
  }

  /** Acknowledges messages that the application handled (`acknowledge: 'manual'`). */
  ack(ids: Iterable<string>): void {
    for (const id of ids) {
      this.#acks.add(id)
      if (this.#options.acknowledge === 'manual') this.#acked.set(id, true)
      // O1: a message whose acknowledgement was dropped arrives again, and is acknowledged then.
      if (this.#acks.size > ACKS_MAX) this.#acks.delete(this.#acks.values().next().value!)
    }
    this.#soon()
  }

  /** `auto` follows the visibility of the page. */
  get presence(): 'auto' | 'active' | 'idle' {
    return this.#preference
  }

  set presence(presence: 'auto' | 'active' | 'idle') {
    this.#preference = presence
    this.#updatePresence()
  }

  /** The page was hidden or shown, or the network returned. @internal */
  pageChanged({ hidden = this.#isHidden, online = false }: { hidden?: boolean; online?: boolean }): void {
    const appeared = this.#isHidden && !hidden
    if (hidden !== this.#isHidden) {
      this.#isHidden = hidden
      if (hidden) this.#timer('idle', IDLE_MS, () => this.#updatePresence())
      else this.#updatePresence()
    }
    if (!appeared && !online) return
    if (this.state.state === 'waiting' && !this.#waitsForHint) this.#open() // B5
    else if (this.state.state === 'connected') this.#ping() // H3
  }

  #updatePresence(): void {
    this.#timer('idle')
    this.#presence = this.#preference === 'auto' ? (this.#isHidden ? 'idle' : 'active') : this.#preference
    this.#soon()
  }

  #timer(name: string, ms?: number, callback?: () => void): void {
    this.runtime.clearTimeout(this.#timers[name])
    delete this.#timers[name]
    if (!callback) return
    this.#timers[name] = this.runtime.setTimeout(() => {
      delete this.#timers[name]
      callback()
    }, ms!)
  }

  #become(state: State): void {
    this.state = state
    this.emit('state', state)
    if (state.state === 'closed') this.finish(state.reason!)
  }

  #open(): void {
    this.#timer('retry')
    const attempt = ++this.#attempt
    this.#closing = this.#readyAt = undefined
    this.#become({ state: 'connecting' })
    // The application may have called `close` in its listener.
    if (attempt !== this.#attempt) return
    const { permit } = this.#options
    const token = permit ? permit().then(() => this.tokens.take()) : this.tokens.take()
    if (typeof token === 'string') return this.#dial(token)
    token.then(
      (token) => attempt === this.#attempt && this.#dial(token),
      (error) => attempt === this.#attempt && this.#noToken(error),
    )
  }

  #noToken(error: NoroshiError): void {
    if (error instanceof SignedOut) return this.#stop('signed_out')
    this.emit('error', error)
    this.#retry('connection_lost', backoff(this.#failures++, this.runtime.random()), false)
  }

  #dial(token: string): void {
    const attempt = this.#attempt
    const isCurrent = <Args extends unknown[]>(handle: (...args: Args) => void) => (...args: Args) => {
      if (attempt === this.#attempt) handle(...args)
    }
    // X1: another transport after two attempts that found no server.
    this.#transport = this.#transports[this.#unopened >= 2 ? 1 : 0] ?? this.#transports[0]!
    const { url, app } = this.#options
    let isOpen = false
    const ended = isCurrent((end: End) => {
      if (!isOpen) this.#unopened = this.#transport.oneWay ? 0 : this.#unopened + 1
      this.#lost(end)
    })
    this.#timer('connect', CONNECT_TIMEOUT_MS, () => ended({}))
    this.#dialed = this.#topicNames()
    this.#token = token
    try {
      this.#link = this.#transport.open(
        { url, app, token, topics: this.#dialed, lastId: this.#inflow.lastId, runtime: this.runtime },
        {
          opened: isCurrent(() => {
            isOpen = true
            this.#unopened = this.#transport.oneWay ? 2 : 0
            if (this.#transport.oneWay) this.#ready({ t: 'ready' })
          }),
          heard: isCurrent(() => {
            this.#heardAt = this.runtime.now()
            this.#timer('pong')
          }),
          frame: isCurrent((text) => this.#frame(text)),
          ended,
        },
      )
    } catch (cause) {
      // The address is not valid, or the page may not open it: no later attempt can succeed.
      this.emit('error', new NoroshiError('no_transport', `cannot connect to ${url}: ${cause}`, { cause }))
      this.#stop('connection_lost')
    }
  }

  #frame(text: unknown): void {
    let frame: Frame
    try {
      frame = JSON.parse(text as string)
      const { t } = frame
      const valid =
        t === 'msg' ? isText(frame.id) : t === 'recovered' ? isText(frame.topic) : t === 'close' ? isText(frame.reason) : isText(t)
      if (!valid) throw new TypeError('a field is missing')
    } catch (cause) {
      return this.emit('error', new NoroshiError('bad_frame', `not a frame of the service: ${cause}`, { cause })) // F4
    }
    const { t } = frame
    if (t === 'msg') this.#message(frame)
    else if (t === 'ready') this.#ready(frame)
    else if (t === 'recovered') {
      const { topic, complete, epoch, offset } = frame
      const { session } = this.#inflow
      const isAsked = this.#asked.delete(topic)
      this.#rejoined.delete(topic)
      this.#inflow.after(() => {
        if (!this.#topics.get(topic)?.recover) return
        // R7
        if (isText(epoch) && session === this.#inflow.session && this.#inflow.reach(topic, { epoch, offset }))
          this.emit('position', { topic, epoch, offset })
        if (!isAsked) this.emit('recovered', { topic, complete: complete === true }) // R4
      })
    } else if (t === 'items') this.emit('items', strip(frame) as unknown as ItemsChange)
    else if (t === 'error') this.#error(frame)
    else if (t === 'close') {
      this.#closing = frame
      this.#timer('connect', PONG_TIMEOUT_MS, () => this.#lost({})) // C5
      if (this.#readyAt !== undefined) this.#flush() // A5: a draining node accepts acknowledgements until the connection ends.
    }
  }

  #message(frame: Frame): void {
    const message = strip(frame) as unknown as Message
    if (this.#options.acknowledge === 'received' && message.ack) this.ack([message.id])
    // The other tab has not seen it.
    if (this.#rejoined.has(message.topic!)) this.#inflow.forget(message.id)
    if (this.#inflow.receive(message)) return
    // L2: unhandled messages arrive again after the application has caught up.
    this.#isTooSlow = true
    this.#detach()
    this.#waitsForHint = true
    this.emit('error', new NoroshiError('queue_full', `${QUEUE_MAX} messages wait for the application`))
    this.#become({ state: 'waiting', reason: 'queue_full' })
  }

  #caughtUp(): void {
    this.#isTooSlow = false
    if (this.state.reason === 'queue_full') this.#open()
  }

  #ready({ device, ping_s }: Frame): void {
    if (this.#readyAt !== undefined) return
    this.#timer('connect')
    this.#readyAt = this.#heardAt = this.runtime.now()
    this.#rejections = 0
    this.#inflow.restart(this.#transport.oneWay)
    this.#sentPresence = 'active'
    this.#flushedAt = -Infinity
    this.#toUnsub.clear()
    this.#rejoined.clear()
    this.#asked.clear()
    for (const [topic, { recover }] of this.#topics) {
      this.#toSub.add(topic)
      // R3: nobody knows what was missed.
      const isUnknown = recover && this.#joined.has(topic) && !(this.#transport.oneWay ? this.#inflow.lastId : this.positions.has(topic))
      if (isUnknown) this.emit('recovered', { topic, complete: false })
      else if (recover && this.#transport.oneWay && this.#joined.has(topic)) this.emit('recovered', { topic, complete: null })
    }
    const interval = Math.min(ping_s || 240, this.#options.pingInterval ?? 60)
    this.#beat((this.#transport.oneWay ? STREAM_SILENCE_S : interval) * 1000)
    this.#scheduleRenewal()
    if (this.#transport.oneWay) {
      this.#websocketAt ??= this.#readyAt + WEBSOCKET_AGAIN_MS
      this.#timer('websocket', Math.max(0, this.#websocketAt - this.#readyAt), () => this.#tryWebSocket())
    } else this.#websocketAt = undefined
    const state: State = { state: 'connected', transport: this.#transport.name }
    if (device !== undefined) state.device = device
    this.#become(state)
    this.#flush()
  }

  /** X3 */
  #tryWebSocket(): void {
    this.#websocketAt = undefined
    if (this.#transports.length < 2) return
    this.#unopened = 0
    this.#reopen()
  }

  #reopen(): void {
    this.#detach()
    this.#open()
  }

  #error({ code, message, topic, reason }: Frame): void {
    if (isText(topic) && /^topic_/.test(code)) {
      this.#topics.delete(topic)
      this.#forget(topic)
      return this.emit('denied', { topic, code, reason: reason ?? '' })
    }
    const token = this.#sentToken
    if (token !== undefined && /^(unauthorized|expired|rate_limited|overloaded)$/.test(code)) {
      this.#sentToken = undefined
      const isRejected = /^[ue]/.test(code)
      if (isRejected) this.tokens.reject(token)
      this.#renewLater(!isRejected)
    }
    this.emit('error', new NoroshiError(code ?? 'bad_frame', message ?? '', { topic, reason }))
  }

  #forget(topic: string): void {
    this.#joined.delete(topic)
    this.#rejoined.delete(topic)
    this.#asked.delete(topic)
    this.#toSub.delete(topic)
    this.positions.delete(topic)
  }

  /** H1, H2 */
  #beat(intervalMs: number): void {
    const wait = () => {
      const left = this.#heardAt + intervalMs - this.runtime.now()
      if (left > 0) return this.#timer('beat', left, wait)
      if (this.#transport.oneWay) return this.#lost({})
      this.#ping()
      this.#timer('beat', intervalMs, wait)
    }
    this.#timer('beat', intervalMs, wait)
  }

  #ping(): void {
    if (this.#transport.oneWay || this.#timers.pong !== undefined) return
    this.#link!.send({ t: 'ping' })
    this.#timer('pong', PONG_TIMEOUT_MS, () => this.#lost({}))
  }

  #scheduleRenewal(): void {
    this.#sentToken = undefined
    const { renewAt } = this.tokens
    // Timers of browsers end at 2^31 ms.
    if (renewAt !== Infinity) {
      this.#timer('renew', Math.max(0, Math.min(renewAt - this.runtime.now(), 2 ** 31 - 1)), () =>
        this.runtime.now() < renewAt ? this.#scheduleRenewal() : this.#renew(),
      )
    }
  }

  /** T5 */
  #renewLater(withCurrent = false): void {
    this.#timer('renew', backoff(3 + this.#renewals++, this.runtime.random()), () => this.#renew(withCurrent))
  }

  /** T4: over an open connection; the session continues. */
  #renew(withCurrent = false): void {
    const attempt = this.#attempt
    Promise.resolve(withCurrent ? this.tokens.take() : this.tokens.renew()).then(
      (token) => {
        if (attempt !== this.#attempt || this.state.state !== 'connected') return
        if (this.#transport.oneWay) return this.#reopen()
        this.#link!.send({ t: 'token', token })
        this.#scheduleRenewal()
        this.#sentToken = this.#token = token
      },
      (error) => {
        if (attempt !== this.#attempt) return
        if (error instanceof SignedOut) return this.#stop('signed_out')
        this.emit('error', error)
        this.#renewLater()
      },
    )
  }

  /** The connection is dead to this client: no event of it is processed. */
  #detach(): void {
    this.#attempt++
    for (const name of ['connect', 'pong', 'beat', 'renew', 'websocket', 'flush', 'retry']) this.#timer(name)
    this.#flushes = false
    this.#renewals = 0
    this.#readyAt = undefined
    const link = this.#link
    this.#link = undefined
    link?.close()
  }

  #stop(reason: CloseReason): void {
    this.#detach()
    this.#unwatch?.()
    this.#unwatch = undefined
    this.#timer('idle')
    this.#isTooSlow = false
    this.#inflow.clear()
    this.#become({ state: 'closed', reason })
  }

  #lost({ code, status, problem, retryAfterMs }: End): void {
    const closing = this.#closing
    const readyAt = this.#readyAt
    const reason: CloseReason = closing?.reason ?? reasonOf(code) ?? (status === 401 ? (problem ?? 'unauthorized') : 'connection_lost')
    const token = this.#token
    this.#detach()
    if (readyAt !== undefined && this.runtime.now() - readyAt >= STABLE_MS) this.#failures = 0 // B2
    if (/^(expired|revoked|unauthorized)$/.test(reason) || status === 401) {
      this.tokens.reject(token) // C3
      if (++this.#rejections > REJECTIONS_MAX) {
        this.emit('error', new NoroshiError('unauthorized', `the service rejected ${REJECTIONS_MAX} tokens`))
        return this.#stop('unauthorized')
      }
      const { random } = this.runtime
      const failures = this.#failures++
      // A JWT of the second of the revocation stays rejected.
      const first = () => (reason === 'revoked' ? Math.round(1_000 + 1_000 * random()) : 0)
      const wait = this.#rejections > 1 ? backoff(failures, random()) : first()
      return this.#retry(reason, wait, false)
    }
    if (reason === 'replaced' || closing?.reconnect === false) return this.#stop(reason) // C2, C4
    const hint = closing?.after_ms ?? retryAfterMs
    const failures = this.#failures++
    // B3: a hint counts as it is, and at least as the backoff of earlier failures.
    const own = hint === undefined || failures > 0 ? backoff(failures, this.runtime.random()) : 0
    this.#retry(reason, Math.max(hint ?? 0, own), hint !== undefined && hint >= own)
  }

  #retry(reason: CloseReason, ms: number, isHint: boolean): void {
    this.#waitsForHint = isHint
    this.#become({ state: 'waiting', reason, retryInMs: ms })
    if (this.state.state === 'waiting') this.#timer('retry', ms, () => this.#open())
  }

  /** F7: at most one flush in 100 ms, so that frames are few and large. */
  #soon(): void {
    if (this.#readyAt === undefined || this.#flushes) return
    this.#flushes = true
    const left = this.#flushedAt + FLUSH_MS - this.runtime.now()
    if (left > 0) this.#timer('flush', left, () => this.#flush())
    else {
      const attempt = this.#attempt
      queueMicrotask(() => attempt === this.#attempt && this.#flush())
    }
  }

  /** F3: the order of what is sent. */
  #flush(): void {
    if (this.#readyAt === undefined) return
    const { oneWay } = this.#transport
    const send = (frame: object) => {
      this.#flushedAt = this.runtime.now()
      this.#link!.send(frame)
    }
    this.#timer('flush')
    this.#flushes = false
    if (this.#presence !== this.#sentPresence) {
      this.#sentPresence = this.#presence
      send({ t: 'presence', state: this.#presence })
    }
    const topics = [...this.#toSub]
    if (!oneWay) for (const part of parts(this.#toUnsub)) send({ t: 'unsub', topics: part })
    this.#toUnsub.clear()
    this.#toSub.clear()
    for (const topic of topics) {
      this.#joined.add(topic)
      // X4
      if (oneWay && topic.includes(',')) this.emit('error', new NoroshiError('bad_topic', 'a stream has no topics with a comma', { topic }))
    }
    if (!oneWay) {
      for (const part of parts(topics)) {
        const since: Record<string, Position | null> = {}
        for (const topic of part) {
          const position = this.positions.get(topic)
          const recover = this.#topics.get(topic)?.recover
          if (position ? recover || this.#rejoined.has(topic) : recover) since[topic] = position ?? null // R2
          if (recover && !position) this.#asked.add(topic)
        }
        send(Object.keys(since).length ? { t: 'sub', topics: part, since } : { t: 'sub', topics: part })
      }
    }
    for (const ids of parts(this.#acks)) send({ t: 'ack', ids })
    this.#acks.clear()
    if (oneWay && !this.#closing && this.#dialed !== this.#topicNames()) this.#reopen() // X4
  }

  /** Of a stream: the comma separates them. */
  #topicNames(): string {
    return [...this.#topics.keys()].filter((topic) => !topic.includes(',')).join()
  }
}

const isText = (value: unknown): value is string => typeof value === 'string'

const strip = ({ t, ...rest }: Frame) => rest

/** L1: at most 1,000 texts and 64 KiB in a frame. */
function* parts(texts: Iterable<string>): Generator<string[]> {
  let part: string[] = []
  let bytes = 0
  for (const text of texts) {
    // Three bytes of UTF-8 a code unit, once more in `since` with its position.
    const cost = 6 * text.length + 64
    if (part.length >= 1_000 || bytes + cost > FRAME_BYTES_MAX) {
      yield part
      part = []
      bytes = 0
    }
    part.push(text)
    bytes += cost
  }
  if (part.length) yield part
}
