/** Reports that wait for the network: bounded, sent in batches, retried. CONTRACT.md O1 to O6. */

import { NoroshiError, ProblemError } from './error.js'
import type { Http } from './http.js'
import { backoff, type Runtime } from './runtime.js'

/** Keeps reports until they were sent: `localStorage`, or anything like it. */
export interface ReportStorage {
  getItem(key: string): string | null
  setItem(key: string, value: string): void
  removeItem(key: string): void
}

/** @internal */
export interface OutboxOptions {
  path: string
  /** The field of the body with the entries; with `isState` with the newest alone, which replaces earlier ones. */
  field: string
  isState?: true
  /** Entries of a request. */
  batch: number
  /** Entries that wait. */
  max: number
  storage?: ReportStorage | undefined
  key?: string
}

/** @internal */
export class Outbox {
  readonly #waiting = new Set<string>()
  /** O4: less while a bad entry is sought. */
  #size: number
  #failures = 0
  #timer: unknown
  #isBusy = false
  #isClosed = false

  constructor(
    private readonly http: Http,
    private readonly runtime: Runtime,
    private readonly failed: (error: NoroshiError) => void,
    private readonly options: OutboxOptions,
  ) {
    this.#size = options.batch
    const kept = this.#kept()
    if (kept.length) this.add(kept)
  }

  #kept(): string[] {
    try {
      const kept: unknown = JSON.parse(this.options.storage?.getItem(this.options.key!) ?? '[]')
      return Array.isArray(kept) ? kept.filter((entry) => typeof entry === 'string') : []
    } catch {
      return [] // not ours, or cut off
    }
  }

  add(entries: Iterable<string>): void {
    for (const entry of entries) {
      this.#waiting.add(entry)
      if (this.#waiting.size > this.options.max) {
        this.#waiting.delete(this.#waiting.values().next().value!)
        if (!this.options.isState) this.failed(new NoroshiError('queue_full', `more than ${this.options.max} reports wait for ${this.options.path}`))
      }
    }
    this.#keep()
    if (this.#timer === undefined && !this.#isBusy) queueMicrotask(() => this.#send())
  }

  clear(): void {
    this.#waiting.clear()
  }

  /** The network has returned. */
  wake(): void {
    if (this.#timer !== undefined && this.#failures > 0) void this.#send()
  }

  /** After `close`. */
  open(): void {
    this.#isClosed = false
    void this.#send()
  }

  /** Sends what has not been tried, and nothing later. */
  close(): void {
    if (this.#timer === undefined) void this.#send()
    this.#isClosed = true
    this.runtime.clearTimeout(this.#timer)
  }

  /** Other tabs keep theirs in the same place. */
  #keep(sent: string[] = []): void {
    const { storage, key, max } = this.options
    if (!storage) return
    const kept = new Set([...this.#kept(), ...this.#waiting])
    for (const entry of sent) kept.delete(entry)
    try {
      if (kept.size) storage.setItem(key!, JSON.stringify([...kept].slice(-max)))
      else storage.removeItem(key!)
    } catch (cause) {
      this.failed(new NoroshiError('queue_full', `the storage refused reports: ${cause}`, { cause }))
    }
  }

  async #send(): Promise<void> {
    if (this.#isBusy || this.#isClosed || !this.#waiting.size) return
    this.runtime.clearTimeout(this.#timer)
    this.#timer = undefined
    this.#isBusy = true
    const { path, field, isState, batch } = this.options
    let entries = [...this.#waiting].slice(0, this.#size)
    let failure: unknown
    try {
      await this.http.request(isState ? 'PUT' : 'POST', path, { body: { [field]: isState ? entries[0] : entries }, keepalive: entries.length <= 100 })
      this.#failures = 0
    } catch (error) {
      const status = error instanceof ProblemError ? error.status : 0
      // O4: another attempt cannot help against an answer about the request itself.
      if (!(error instanceof ProblemError) || status > 499 || [401, 408, 429].includes(status)) failure = error
      else if ([400, 413, 422].includes(status) && entries.length > 1) {
        this.#size = entries.length >> 1
        entries = []
      } else {
        this.#size = batch
        this.failed(error)
      }
    }
    this.#isBusy = false
    if (failure === undefined) {
      for (const entry of entries) this.#waiting.delete(entry)
      this.#keep(entries)
      void this.#send()
    } else if (!this.#isClosed) {
      const wait = Math.max((failure as ProblemError).retryAfterMs ?? 0, backoff(this.#failures++, this.runtime.random()))
      this.#timer = this.runtime.setTimeout(() => void this.#send(), wait)
    }
  }
}
