/**
 * One connection for all tabs of a browser. The tab with the lock `leader` has it and passes on what it receives; a message is
 * acknowledged after every tab has handled it. When the leader ends, the lock passes to another tab, which connects, recovers
 * topics from the last position that was passed on, and gets all unacknowledged messages; each tab drops what it has already
 * handled. CONTRACT.md N1 to N10.
 *
 * A tab holds a lock of its own for as long as it lives: the browser releases it however the tab ends. A leader that the browser
 * has frozen, or that hangs, answers no question: another tab steals its lock, and it becomes a follower.
 */

import { Connection, type ConnectionEvents, type ConnectionOptions, type State, type SubscribeOptions } from './connection.js'
import { combine, Emitter, UNHANDLED } from './emitter.js'
import { NoroshiError } from './error.js'
import { watchPage, type PageChange } from './page.js'
import { QUEUE_MAX } from './inflow.js'
import type { Message, Position } from './protocol.js'
import { Recent } from './recent.js'
import type { Runtime } from './runtime.js'

type Outcome = 'handled' | 'failed' | 'none'

type Note =
  | { k: 'hello'; from: string; topics: [string, SubscribeOptions][]; hidden: boolean; positions: [string, Position][]; follows: boolean }
  | { k: 'leader' | 'here'; from: string }
  | { k: 'welcome'; from: string; to: string; state: State; positions: [string, Position][] }
  | { k: 'msg'; from: string; n: number; message: Message; ofSession: boolean }
  | { k: 'done'; to: string; from: string; n: number; outcome: Outcome }
  | { k: 'event'; from: string; type: 'state' | 'recovered' | 'position' | 'items' | 'denied'; event: any }
  | { k: 'error'; from: string; code: string; message: string; topic?: string | undefined; reason?: string | undefined }
  | { k: 'ack'; ids: string[] }
  | { k: 'connect' | 'online' | 'ask' }

/** How long the leader waits for a tab, which the browser may have frozen. Its messages stay in the tab's own queue. */
const TAB_TIMEOUT_MS = 30_000
const HELLO_TIMEOUT_MS = 2_000
/** N10: between questions to a leader that is silent. After two without an answer the lock is stolen. */
const ASK_MS = 4_000
/** Messages on their way through the tabs. */
const PARALLEL = 64
const POSITIONS_MAX = 1_000

/** Whether this environment can share a connection. @internal */
export const canShare = (): boolean => !!(globalThis.navigator?.locks && globalThis.BroadcastChannel)

/** @internal */
export class SharedConnection extends Emitter<ConnectionEvents> {
  state: State = { state: 'idle' }
  readonly #id = crypto.randomUUID()
  readonly #name: string
  readonly #topics = new Map<string, SubscribeOptions>()
  readonly #positions = new Map<string, Position>()
  /** Messages that this tab has, oldest first. */
  readonly #seen = new Recent<Promise<Outcome>>()
  /** What the application acknowledged itself. */
  readonly #acked = new Recent<true>()
  #chain: Promise<unknown> = Promise.resolve()
  /** Messages that wait in the chain. */
  #waiting = 0
  #channel: BroadcastChannel | undefined
  #leader: Leader | undefined
  #end: AbortController | undefined
  /** Ends this tab's leadership, or its wait for it. */
  #tenure: AbortController | undefined
  /** Which tab leads: a deposed one may not have noticed. */
  #leading: string | undefined
  /** How often `ASK_MS` passed without a sign of the leader. */
  #silence = 0
  #timer: unknown
  #unwatch: (() => void) | undefined
  #preference: 'auto' | 'active' | 'idle' = 'auto'
  #isPageHidden = false
  /** Another tab had the connection. */
  #follows = false

  constructor(
    readonly options: ConnectionOptions,
    group: string,
  ) {
    super()
    this.#name = `noroshi:${options.url}:${options.app ?? ''}:${group}`
  }

  connect(): void {
    if (this.#channel) {
      if (this.state.state === 'closed') this.#post({ k: 'connect' })
      return
    }
    const channel = (this.#channel = new BroadcastChannel(this.#name))
    channel.onmessage = ({ data }) => this.#receive(data)
    const end = (this.#end = new AbortController())
    this.#set({ state: 'connecting' })
    this.#unwatch = watchPage((page) => this.pageChanged(page))
    const ended = new Promise<void>((resolve) => end.signal.addEventListener('abort', () => resolve()))
    navigator.locks
      .request(this.#lock(this.#id), { signal: end.signal }, () => {
        this.#follow()
        this.#ask()
        for (const type of ['freeze', 'resume']) {
          globalThis.document?.addEventListener(type, () => this.#resign(type === 'resume'), { signal: end.signal })
        }
        return ended
      })
      .catch((cause) => end.signal.aborted || this.#failed(cause))
  }

  #failed(cause: unknown): void {
    this.emit('error', cause instanceof NoroshiError ? cause : new NoroshiError('tabs_unavailable', `no lock: ${cause}`, { cause }))
    this.close()
  }

  /** Waits for the lock of the leader, or takes it from a leader that is silent. */
  #follow(steal = false): void {
    const { signal } = (this.#tenure = new AbortController())
    const ended = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
    navigator.locks
      .request(`${this.#name}:leader`, steal ? { steal } : { signal }, async () => {
        if (signal.aborted) return
        this.#leader = new Leader(this, this.#channel!, this.#name, this.#id, signal)
        await this.#leader.begin()
        await ended
      })
      .catch((cause) => {
        if (signal.aborted) return
        if (cause.name === 'AbortError') this.#resign(true)
        else this.#failed(cause)
      })
    this.announce()
  }

  /** Another tab leads, or shall lead. */
  #resign(follows: boolean): void {
    const leader = this.#leader
    this.#leader = undefined
    this.#tenure?.abort()
    leader?.close()
    this.#follows ||= !!leader
    this.#silence = 0
    if (follows) this.#follow()
  }

  /** N10 */
  #ask(): void {
    this.#timer = (this.options.runtime as Runtime).setTimeout(() => this.#ask(), ASK_MS)
    if (this.#leader) return
    if (this.#silence > 2) {
      this.#resign(false)
      return this.#follow(true)
    }
    if (this.#silence++) this.#post({ k: 'ask' })
  }

  close(): void {
    if (!this.#channel) return
    this.#resign(false)
    ;(this.options.runtime as Runtime).clearTimeout(this.#timer)
    this.#unwatch?.()
    this.#channel.close()
    this.#channel = undefined
    this.#end!.abort()
    this.#follows = true
    this.#set({ state: 'closed', reason: 'closed' })
  }

  subscribe(topic: string, options: SubscribeOptions = {}): void {
    this.#topics.set(topic, options)
    this.announce()
  }

  unsubscribe(topic: string): void {
    this.#positions.delete(topic)
    if (this.#topics.delete(topic)) this.announce()
  }

  ack(ids: Iterable<string>): void {
    const all = [...ids]
    for (const id of all) this.#acked.set(id, true)
    this.#post({ k: 'ack', ids: all })
  }

  get presence(): 'auto' | 'active' | 'idle' {
    return this.#preference
  }

  set presence(presence: 'auto' | 'active' | 'idle') {
    this.#preference = presence
    this.announce()
  }

  pageChanged({ hidden, online }: PageChange): void {
    if (online) this.#post({ k: 'online' })
    if (hidden === undefined || hidden === this.#isPageHidden) return
    this.#isPageHidden = hidden
    this.announce()
  }

  #lock(id: string): string {
    return `${this.#name}:tab:${id}`
  }

  /** Tells the leader what this tab needs. */
  announce(): void {
    const hidden = this.#preference === 'auto' ? this.#isPageHidden : this.#preference === 'idle'
    this.#post({ k: 'hello', from: this.#id, topics: [...this.#topics], hidden, positions: [...this.#positions], follows: this.#follows })
  }

  /** To the leader, which may be this tab. */
  #post(note: Note): void {
    if (this.#leader) this.#leader.receive(note)
    else this.#channel?.postMessage(note)
  }

  #set(state: State): void {
    this.state = state
    this.emit('state', state)
  }

  #receive(note: Note): void {
    if (note.k === 'leader' && this.#leader) this.#resign(true)
    if (this.#leader) return this.#leader.receive(note)
    if (note.k === 'leader' || note.k === 'here') this.#silence = 0
    if (note.k === 'leader') {
      this.#leading = note.from
      this.announce()
    } else if (note.k === 'welcome') {
      if (note.to !== this.#id) return
      this.#leading = note.from
      this.#follows = true
      for (const [topic, position] of note.positions) this.#positions.set(topic, position)
      this.#set(note.state)
    } else if (note.k === 'msg') {
      const { from, n } = note
      void this.take(note.message, note.ofSession).then((outcome) =>
        this.#channel?.postMessage({ k: 'done', to: from, from: this.#id, n, outcome } satisfies Note),
      )
    } else if ((note as { from?: string }).from === this.#leading) this.heard(note)
  }

  /** An event of the connection, for the listeners in this tab. */
  heard(note: Note): void {
    if (note.k === 'error') this.emit('error', new NoroshiError(note.code, note.message, note))
    if (note.k !== 'event') return
    if (note.type === 'state') return this.#set(note.event)
    if (note.type === 'position') return this.#passed(note.event)
    if (note.type === 'denied') this.#topics.delete(note.event.topic)
    this.emit(note.type, note.event)
  }

  /** The position from which the next leader recovers a topic. */
  #passed({ topic, epoch, offset }: Position & { topic: string }): void {
    this.#positions.delete(topic)
    this.#positions.set(topic, { epoch, offset })
    if (this.#positions.size > POSITIONS_MAX) this.#positions.delete(this.#positions.keys().next().value!)
  }

  /** A message for the listeners in this tab, once. */
  take(message: Message, ofSession: boolean): Promise<Outcome> {
    const { id, topic, epoch, offset } = message
    if (ofSession && epoch !== undefined && offset !== undefined) this.#passed({ topic: topic!, epoch, offset })
    // Another tab subscribed to the topic.
    if (ofSession && !this.#topics.has(topic!)) return Promise.resolve('none')
    const known = this.#seen.get(id)
    if (known) {
      if (this.#acked.get(id)) this.ack([id]) // D2
      return known
    }
    if (this.#waiting >= QUEUE_MAX) {
      this.emit('error', new NoroshiError('queue_full', `${QUEUE_MAX} messages wait for this tab`))
      return Promise.resolve('failed') // it arrives again in the next session
    }
    this.#waiting++
    const handle = async (): Promise<Outcome> => {
      let outcome: Outcome
      try {
        // S4: what waits is dropped.
        const isDropped = this.state.state === 'closed'
        outcome = isDropped || (await combine([this.ask('message', message)])) === UNHANDLED ? 'none' : 'handled'
      } catch (cause) {
        outcome = cause === UNHANDLED ? 'none' : 'failed'
        if (typeof cause !== 'symbol') this.emit('error', new NoroshiError('listener_failed', `a listener failed: ${cause}`, { cause }))
      }
      this.#waiting--
      if (outcome !== 'handled') this.#seen.delete(id)
      return outcome
    }
    const result = this.#chain.then(handle)
    this.#chain = result
    this.#seen.set(id, result)
    return result
  }
}

interface Tab {
  topics: Map<string, SubscribeOptions>
  hidden: boolean
  /** It did not answer in time, and is not waited for until it does. */
  isFrozen: boolean
}

interface Pending {
  waiting: Set<string>
  outcomes: Outcome[]
  timer: unknown
  resolve: (result: unknown) => void
  reject: (error: unknown) => void
}

/** The connection, and the tabs that share it. */
class Leader {
  readonly #connection: Connection
  readonly #tabs = new Map<string, Tab>()
  readonly #pending = new Map<number, Pending>()
  /** Positions that tabs know from an earlier leader. */
  readonly #known = new Map<string, Position>()
  /** Tabs that have not announced their topics yet. */
  readonly #expected = new Set<string>()
  #allExpected = () => {}
  #subscribed = new Map<string, SubscribeOptions>()
  #n = 0
  #isReady = false
  #isSuccessor = false
  #isClosed = false

  constructor(
    private readonly own: SharedConnection,
    private readonly channel: BroadcastChannel,
    private readonly name: string,
    private readonly id: string,
    private readonly signal: AbortSignal,
  ) {
    const connection = (this.#connection = new Connection({ ...own.options, parallel: PARALLEL, ignoresPage: true, permit: () => this.#stillLeads() }))
    connection.on('message', (message) => this.#pass(message))
    for (const type of ['state', 'recovered', 'position', 'items', 'denied'] as const) {
      connection.on(type, (event) => {
        if (type === 'denied') for (const { topics } of this.#tabs.values()) topics.delete((event as { topic: string }).topic)
        const tell = () => this.#tell({ k: 'event', type, event })
        // The connection of this tab's successor replaced it.
        if ((event as State).reason === 'replaced') void this.#stillLeads().then(tell)
        else tell()
      })
    }
    connection.on('error', ({ code, message, topic, reason }) => this.#tell({ k: 'error', code, message, topic, reason }))
  }

  /** Never, if this tab was frozen, its lock was stolen, and it has not noticed yet. */
  async #stillLeads(): Promise<void> {
    const { held = [] } = await navigator.locks.query()
    const holder = (lock: string) => held.find(({ name }) => name === `${this.name}:${lock}`)?.clientId
    if (holder('leader') !== holder('tab:' + this.id)) await new Promise(() => {})
  }

  /** Learns which tabs there are and what they need, and connects. */
  async begin(): Promise<void> {
    const prefix = `${this.name}:tab:`
    for (const { name } of (await navigator.locks.query()).held ?? []) {
      if (!name?.startsWith(prefix) || name === prefix + this.id || this.#tabs.has(name.slice(prefix.length))) continue
      this.#expected.add(name.slice(prefix.length))
      this.#watch(name.slice(prefix.length))
    }
    this.#send({ k: 'leader' })
    if (this.#expected.size) {
      await new Promise<void>((resolve) => {
        this.#allExpected = resolve
        this.#connection.runtime.setTimeout(resolve, HELLO_TIMEOUT_MS)
      })
    }
    this.own.announce()
    this.#isReady = true
    if (this.signal.aborted) return
    if (this.#isSuccessor) {
      for (const { topics } of this.#tabs.values()) {
        for (const topic of topics.keys()) this.#connection.adopt(topic, this.#known.get(topic))
      }
    }
    this.#known.clear()
    this.#apply()
    this.#connection.connect()
  }

  close(): void {
    // The other tabs get another leader.
    this.#isClosed = true
    this.#connection.close()
    for (const { timer } of this.#pending.values()) this.#connection.runtime.clearTimeout(timer)
    this.#pending.clear()
  }

  receive(note: Note): void {
    if (note.k === 'hello') this.#hello(note)
    else if (note.k === 'done') {
      const tab = this.#tabs.get(note.from)
      if (tab) tab.isFrozen = false
      if (note.to === this.id) this.#settle(note.n, note.from, note.outcome)
    } else if (note.k === 'ack') this.#connection.ack(note.ids)
    else if (note.k === 'ask') this.#send({ k: 'here' })
    else if (note.k === 'connect') this.#connection.connect()
    else if (note.k === 'online') this.#connection.pageChanged({ online: true })
  }

  #hello({ from, topics, hidden, positions, follows }: Extract<Note, { k: 'hello' }>): void {
    const known = this.#tabs.get(from)
    this.#tabs.set(from, { topics: new Map(topics), hidden, isFrozen: false })
    this.#isSuccessor ||= follows
    if (!this.#isReady) {
      for (const [topic, position] of positions) {
        const best = this.#known.get(topic)
        if (best?.epoch !== position.epoch || best.offset < position.offset) this.#known.set(topic, position)
      }
    }
    if (from !== this.id && !known) {
      if (!this.#expected.has(from)) this.#watch(from)
      this.#send({ k: 'welcome', to: from, state: this.#connection.state, positions: [...this.#connection.positions] })
    }
    this.#expected.delete(from)
    if (!this.#expected.size) this.#allExpected()
    if (!this.#isReady) return
    // N6: the retained message of a topic is sent to new subscriptions only.
    for (const [topic] of topics) {
      if (known?.topics.has(topic)) continue
      if (this.#subscribed.has(topic)) this.#connection.rejoin(topic)
      // It was frozen when this leader began.
      else if (!known && follows) this.#connection.adopt(topic, new Map(positions).get(topic))
    }
    this.#apply()
  }

  /** Subscribes to what the tabs need together. */
  #apply(): void {
    const wanted = new Map<string, SubscribeOptions>()
    let hidden = true
    for (const tab of this.#tabs.values()) {
      hidden &&= tab.hidden
      for (const [topic, { recover = false }] of tab.topics) wanted.set(topic, { recover: recover || wanted.get(topic)?.recover === true })
    }
    for (const [topic, options] of wanted) this.#connection.subscribe(topic, options)
    for (const topic of this.#subscribed.keys()) if (!wanted.has(topic)) this.#connection.unsubscribe(topic)
    this.#subscribed = wanted
    this.#connection.pageChanged({ hidden })
  }

  /** The browser grants the lock of a tab when the tab has ended. */
  #watch(tab: string): void {
    navigator.locks
      .request(`${this.name}:tab:${tab}`, { signal: this.signal }, () => {
        this.#tabs.delete(tab)
        this.#expected.delete(tab)
        if (!this.#expected.size) this.#allExpected()
        for (const n of [...this.#pending.keys()]) this.#settle(n, tab, 'none')
        if (this.#isReady) this.#apply()
      })
      .catch(() => {}) // this tab ended first
  }

  #pass(message: Message): Promise<unknown> {
    const n = ++this.#n
    const ofSession = message.topic !== undefined && this.#subscribed.has(message.topic)
    const waiting = new Set<string>()
    for (const [tab, { isFrozen }] of this.#tabs) if (!isFrozen) waiting.add(tab)
    const result = new Promise<unknown>((resolve, reject) => {
      const late = () => {
        for (const tab of [...waiting]) {
          if (tab !== this.id) {
            this.#tabs.get(tab)!.isFrozen = true
            this.#settle(n, tab, 'none')
          }
        }
      }
      this.#pending.set(n, { waiting, outcomes: [], timer: this.#connection.runtime.setTimeout(late, TAB_TIMEOUT_MS), resolve, reject })
    })
    this.#send({ k: 'msg', n, message, ofSession })
    void this.own.take(message, ofSession).then((outcome) => this.#settle(n, this.id, outcome))
    return result
  }

  #settle(n: number, tab: string, outcome: Outcome): void {
    const pending = this.#pending.get(n)
    if (!pending?.waiting.delete(tab)) return
    pending.outcomes.push(outcome)
    if (pending.waiting.size) return
    this.#pending.delete(n)
    this.#connection.runtime.clearTimeout(pending.timer)
    // A tab has reported the error of its listener.
    if (pending.outcomes.includes('failed')) pending.reject(UNHANDLED)
    else pending.resolve(pending.outcomes.includes('handled') ? undefined : UNHANDLED)
  }

  #send(note: DistributedOmit<Note, 'from'>): void {
    this.channel.postMessage({ ...note, from: this.id })
  }

  /** All tabs, and the listeners of this one. */
  #tell(note: DistributedOmit<Extract<Note, { k: 'event' | 'error' }>, 'from'>): void {
    if (this.#isClosed) return
    this.#send(note)
    this.own.heard({ ...note, from: this.id })
  }
}

type DistributedOmit<Type, Key extends PropertyKey> = Type extends unknown ? Omit<Type, Key> : never
