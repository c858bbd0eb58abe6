/**
 * Messages on their way to the application: each id once, in order, acknowledged after it was handled. Bounded: the caller
 * stops to read when `receive` returns false.
 */

import { UNHANDLED } from './emitter.js'
import type { Message, Position } from './protocol.js'
import { Recent } from './recent.js'

/** @internal */
export const QUEUE_MAX = 1_000

interface Entry {
  message?: Message
  /** Called when everything before it is settled. */
  then?: () => unknown
  /** 0: waits or is being handled; 1: handled; 2: failed or not handled. */
  outcome: 0 | 1 | 2
  /** The session in which it arrived. */
  session: number
}

/** @internal */
export class Inflow {
  readonly #queue: Entry[] = []
  #started = 0
  /** Ids of the queue. */
  readonly #waiting = new Set<string>()
  readonly #handled = new Recent<true>()
  /** Messages that are not stored repeat only if they are retained, at the next log-in. */
  readonly #shown = new Recent<true>(128)
  /** Topics with a message that was not handled: acknowledging a later one would acknowledge it too. */
  #blocked = new Set<string>()
  /** Of topics: behind the last handled message. */
  readonly positions = new Map<string, Position>()
  /** X5: the last handled stored message of a stream, while none failed. */
  lastId: string | undefined
  /** Increases with each session. */
  session = 0
  #isStream = false
  #failed = false

  constructor(
    /** Passes a message on. Returns `UNHANDLED`, or a promise if it takes time. */
    private readonly handle: (message: Message) => unknown,
    private readonly acknowledge: (message: Message) => void,
    private readonly failed: (error: unknown) => void,
    /** How many messages may be handled at a time. */
    private readonly parallel = 1,
    private readonly isTracked: (topic: string) => boolean = () => true,
    /** Called when the queue is empty. */
    private readonly drained: () => void = () => {},
  ) {}

  /** A new session: unhandled messages arrive again. */
  restart(isStream = false): void {
    this.session++
    this.#isStream = isStream
    // A WebSocket sends logs of topics before older messages of the inbox: a stream behind its last message would skip those.
    if (!isStream) this.lastId = undefined
    this.#blocked = new Set()
    this.#failed = false
  }

  /** False if the queue is full; the message was dropped and has to arrive again. */
  receive(message: Message): boolean {
    if (this.#waiting.has(message.id)) return true
    if (this.#memory(message).get(message.id)) {
      // CONTRACT.md D2: the acknowledgement was lost.
      this.#done(message, this.session)
      return true
    }
    if (this.#queue.length >= QUEUE_MAX) return false
    this.#waiting.add(message.id)
    this.#queue.push({ message, outcome: 0, session: this.session })
    this.#pump()
    return true
  }

  /** Drops what the application has not begun to handle (S4). */
  clear(): void {
    for (const { message } of this.#queue.splice(this.#started)) if (message) this.#waiting.delete(message.id)
  }

  /** Passes a message on again if it arrives again. */
  forget(id: string): void {
    this.#handled.delete(id)
  }

  /** Everything up to here was handled (R7). False if that is not so. */
  reach(topic: string, { epoch, offset }: Position): boolean {
    if (this.#blocked.has(topic)) return false
    const known = this.positions.get(topic)
    const isFurther = known?.epoch !== epoch || known.offset < offset
    if (isFurther) this.positions.set(topic, { epoch, offset })
    return isFurther
  }

  /** Calls `then` after all earlier messages are settled. */
  after(then: () => unknown): void {
    if (!this.#queue.length) return void then()
    this.#queue.push({ then, outcome: 0, session: this.session })
    this.#pump()
  }

  #memory({ ack }: Message): Recent<true> {
    return ack ? this.#handled : this.#shown
  }

  #pump(): void {
    while (this.#started < this.parallel && this.#started < this.#queue.length) {
      const entry = this.#queue[this.#started++]!
      if (!entry.message) {
        this.#settle(entry, 1)
        continue
      }
      let result: unknown
      try {
        result = this.handle(entry.message)
      } catch (error) {
        this.#settle(entry, 2, error)
        continue
      }
      if (typeof (result as PromiseLike<unknown>)?.then === 'function') {
        ;(result as Promise<unknown>).then(
          (value) => {
            this.#settle(entry, value === UNHANDLED ? 2 : 1)
            this.#pump()
          },
          (error) => {
            this.#settle(entry, 2, error)
            this.#pump()
          },
        )
      } else this.#settle(entry, result === UNHANDLED ? 2 : 1)
    }
  }

  #settle(entry: Entry, outcome: 1 | 2, error?: unknown): void {
    entry.outcome = outcome
    if (error !== undefined && typeof error !== 'symbol') this.failed(error)
    while (this.#queue[0]?.outcome) {
      const { message, then, outcome, session } = this.#queue.shift()!
      this.#started--
      if (!message) {
        then!()
        continue
      }
      this.#waiting.delete(message.id)
      if (outcome === 1) {
        this.#memory(message).set(message.id, true)
        this.#done(message, session)
      } else {
        this.#failed = true
        if (message.topic !== undefined) this.#blocked.add(message.topic)
      }
    }
    if (!this.#queue.length) this.drained()
  }

  #done(message: Message, session: number): void {
    const { topic, epoch, offset } = message
    if (topic !== undefined) {
      if (this.#blocked.has(topic)) return
      if (epoch !== undefined && offset !== undefined && this.isTracked(topic)) this.reach(topic, { epoch, offset })
    }
    if (!message.ack) return
    if (this.#isStream && session === this.session && !this.#failed) this.lastId = message.id
    this.acknowledge(message)
  }
}
