/** A snapshot and its listeners: what `useSyncExternalStore` needs. */

export class Observable<Snapshot extends object> {
  #snapshot: Snapshot
  readonly #listeners = new Set<() => void>()

  constructor(snapshot: Snapshot) {
    this.#snapshot = snapshot
  }

  getSnapshot = (): Snapshot => this.#snapshot

  /** Calls the listener after each change; returns a function that removes it. */
  subscribe = (listener: () => void): (() => void) => {
    const own = () => listener()
    this.#listeners.add(own)
    if (this.#listeners.size === 1) this.observed()
    return () => {
      if (this.#listeners.delete(own) && !this.#listeners.size) this.unobserved()
    }
  }

  /** The first listener was added. @internal */
  protected observed(): void {}

  /** The last listener was removed. @internal */
  protected unobserved(): void {}

  /** @internal */
  protected get isObserved(): boolean {
    return this.#listeners.size > 0
  }

  /** Notifies the listeners if a field has another value, or if they must look again. @internal */
  protected publish(change: Partial<Snapshot>, isForced = false): void {
    const old = this.#snapshot
    if (!isForced && (Object.keys(change) as (keyof Snapshot)[]).every((key) => change[key] === old[key])) return
    this.#snapshot = { ...old, ...change }
    for (const listener of [...this.#listeners]) listener()
  }
}

/** The promise, which nobody has to handle: the snapshot has the error too. */
export function quiet(promise: Promise<void>): Promise<void> {
  promise.catch(() => {})
  return promise
}
