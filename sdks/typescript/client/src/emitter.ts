/** Typed events, and the same events as an async iterator. */

import { NoroshiError } from './error.js'

/** A listener of messages returns this if it has no listener for the message either. @internal */
export const UNHANDLED = Symbol()

/** The failure of a loop that ended before it asked for the next message. The loop's caller knows the error. @internal */
export const LEFT = Symbol()

export type Listener<Event> = (event: Event) => unknown

export interface ListenOptions {
  /** Removes the listener. */
  signal?: AbortSignal | undefined
}

export class Emitter<Events> {
  /** Each with what removes it from its signal. */
  #listeners = new Map<keyof Events, Map<Listener<any>, (() => void) | undefined>>()
  /** Of iterators. */
  readonly #ends = new Set<(end: () => void) => void>()

  /** Adds a listener; returns a function that removes it. */
  on<Type extends keyof Events>(type: Type, listener: Listener<Events[Type]>, { signal }: ListenOptions = {}): () => void {
    const off = () => this.off(type, listener)
    if (signal?.aborted) return off
    let all = this.#listeners.get(type)
    if (!all) this.#listeners.set(type, (all = new Map()))
    // Added again, it has the newest signal.
    all.get(listener)?.()
    all.set(listener, signal && (() => signal.removeEventListener('abort', off)))
    signal?.addEventListener('abort', off)
    this.listened(type)
    return off
  }

  off<Type extends keyof Events>(type: Type, listener: Listener<Events[Type]>): void {
    const all = this.#listeners.get(type)
    all?.get(listener)?.()
    all?.delete(listener)
  }

  /** Ends the iterators after the events that wait; with an error unless the application wanted it. @internal */
  finish(reason: string): void {
    const end = () => {
      if (!/^(closed|signed_out)$/.test(reason)) throw new NoroshiError(reason, 'closed: ' + reason)
    }
    for (const iterator of this.#ends) iterator(end)
  }

  /** @internal */
  protected listened(_type: keyof Events): void {}

  /** @internal */
  has(type: keyof Events): boolean {
    return !!this.#listeners.get(type)?.size
  }

  /** Calls the listeners. An error in one of them reaches the environment's handler of uncaught errors. @internal */
  emit<Type extends keyof Events>(type: Type, event: Events[Type]): void {
    for (const listener of [...(this.#listeners.get(type)?.keys() ?? [])]) {
      try {
        listener(event)
      } catch (error) {
        queueMicrotask(() => {
          throw error
        })
      }
    }
  }

  /**
   * Calls the listeners and collects their results: `UNHANDLED` if there are none, a promise if one of them returned a
   * promise. Throws, or is rejected, if one of them failed; the others are called all the same. @internal
   */
  ask<Type extends keyof Events>(type: Type, event: Events[Type]): unknown {
    const results: unknown[] = []
    for (const listener of [...(this.#listeners.get(type)?.keys() ?? [])]) {
      try {
        results.push(listener(event))
      } catch (error) {
        results.push(Promise.reject(error))
      }
    }
    return combine(results)
  }

  /**
   * Each event, until `signal` is aborted or the client is closed. An event is handled when the loop asks for the next one. A
   * loop that ends by `break`, `return` or an error has not handled its last message, which arrives again in the next session.
   * If the client closes for another reason than `close` or `signed_out`, the loop throws a `NoroshiError` with it.
   */
  async *events<Type extends keyof Events>(type: Type, { signal }: ListenOptions = {}): AsyncGenerator<Events[Type], void, void> {
    // Each waiting event holds a promise of its listener: what arrives meanwhile waits in the connection's bounded queue.
    const waiting: { event: Events[Type]; done: () => void; failed: (error: unknown) => void }[] = []
    let wake = () => {}
    let isCurrent = false
    let end: (() => void) | undefined
    const off = this.on(type, (event) => {
      // Messages are bounded by the connection; of other events the newest are kept.
      if (type !== 'message' && waiting.length >= 1000) waiting.splice(+isCurrent, 1)[0]!.done()
      const handled = new Promise<void>((done, failed) => waiting.push({ event, done, failed }))
      handled.catch(() => {}) // of other events nobody waits for the result
      wake()
      return handled
    })
    const abort = () => wake()
    signal?.addEventListener('abort', abort)
    const finish = (how: () => void) => {
      end = how
      wake()
    }
    this.#ends.add(finish)
    try {
      while (!signal?.aborted) {
        const next = waiting[0]
        if (next) {
          isCurrent = true
          yield next.event
          isCurrent = false
          waiting.shift()
          next.done()
        } else if (end) return end()
        else await new Promise<void>((resolve) => (wake = resolve))
      }
    } finally {
      off()
      this.#ends.delete(finish)
      signal?.removeEventListener('abort', abort)
      // `break` and errors in the loop's body end the generator at its `yield`, and nothing tells one from the other.
      for (const { failed } of waiting) {
        failed(isCurrent ? LEFT : UNHANDLED)
        isCurrent = false
      }
    }
  }
}

/** @internal */
export function combine(results: unknown[]): unknown {
  const handled = results.filter((result) => result !== UNHANDLED)
  if (!handled.length) return UNHANDLED
  if (!handled.some((result) => typeof (result as PromiseLike<unknown>)?.then === 'function')) return undefined
  return Promise.allSettled(handled).then((all) => {
    const failed = all.find((one) => one.status === 'rejected' && one.reason !== UNHANDLED) as PromiseRejectedResult | undefined
    if (failed) throw failed.reason
    if (all.every((one) => one.status === 'rejected' || one.value === UNHANDLED)) return UNHANDLED
  })
}
