/** Typed events, and the same events as an async iterator. */

/** A listener of messages returns this if it has no listener for the message either. @internal */
export const UNHANDLED = Symbol()

export type Listener<Event> = (event: Event) => unknown

export interface ListenOptions {
  /** Removes the listener. */
  signal?: AbortSignal | undefined
}

export class Emitter<Events> {
  #listeners = new Map<keyof Events, Set<Listener<any>>>()

  /** Adds a listener; returns a function that removes it. */
  on<Type extends keyof Events>(type: Type, listener: Listener<Events[Type]>, { signal }: ListenOptions = {}): () => void {
    const off = () => this.off(type, listener)
    if (signal?.aborted) return off
    let all = this.#listeners.get(type)
    if (!all) this.#listeners.set(type, (all = new Set()))
    all.add(listener)
    signal?.addEventListener('abort', off, { once: true })
    this.listened(type)
    return off
  }

  off<Type extends keyof Events>(type: Type, listener: Listener<Events[Type]>): void {
    this.#listeners.get(type)?.delete(listener)
  }

  /** @internal */
  protected listened(_type: keyof Events): void {}

  /** @internal */
  has(type: keyof Events): boolean {
    return !!this.#listeners.get(type)?.size
  }

  /** Calls the listeners. An error in one of them reaches the environment's handler of uncaught errors. @internal */
  emit<Type extends keyof Events>(type: Type, event: Events[Type]): void {
    for (const listener of [...(this.#listeners.get(type) ?? [])]) {
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
    for (const listener of [...(this.#listeners.get(type) ?? [])]) {
      try {
        results.push(listener(event))
      } catch (error) {
        results.push(Promise.reject(error))
      }
    }
    return combine(results)
  }

  /** Each event until `signal` is aborted. The next one is asked for after the loop's body, so it can be slow. */
  async *events<Type extends keyof Events>(type: Type, { signal }: ListenOptions = {}): AsyncGenerator<Events[Type], void, void> {
    // Each waiting event holds a promise of its listener: what arrives meanwhile waits in the connection's bounded queue.
    const waiting: { event: Events[Type]; done: () => void; failed: (error: unknown) => void }[] = []
    let wake = () => {}
    let current: (typeof waiting)[number] | undefined
    const off = this.on(type, (event) => {
      // Messages are bounded by the connection; of other events the newest are kept.
      if (type !== 'message' && waiting.length >= 1000) waiting.splice(current ? 1 : 0, 1)[0]!.done()
      const handled = new Promise<void>((done, failed) => waiting.push({ event, done, failed }))
      wake()
      return handled
    })
    const abort = () => wake()
    signal?.addEventListener('abort', abort)
    try {
      while (!signal?.aborted) {
        const next = waiting[0]
        if (!next) {
          await new Promise<void>((resolve) => (wake = resolve))
          continue
        }
        current = next
        yield next.event
        current = undefined
        waiting.shift()
        next.done()
      }
    } finally {
      off()
      signal?.removeEventListener('abort', abort)
      // `break` and `return` in the loop's body end the generator at its `yield`: that event was handled.
      for (const one of waiting) one === current ? one.done() : one.failed(UNHANDLED)
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
