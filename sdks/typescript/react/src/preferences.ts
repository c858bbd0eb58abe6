/** Preferences that are visible at once when they are saved, and rolled back if the service refuses. */

import type { NoroshiError, Preferences, PreferenceValues } from '@noroshi/client'

import { Observable, quiet } from '../../inbox/src/observable.js'

export interface PreferencesSnapshot {
  /** `error`: the last attempt to read them failed. */
  readonly status: 'loading' | 'ready' | 'error'
  readonly values: PreferenceValues | undefined
  /** Why the last request failed; removed by the next one that succeeds. */
  readonly error: NoroshiError | undefined
}

export const NO_PREFERENCES: PreferencesSnapshot = { status: 'loading', values: undefined, error: undefined }

export class PreferencesStore extends Observable<PreferencesSnapshot> {
  readonly #preferences: Pick<Preferences, 'get' | 'set' | 'delete'>
  /** As the service stores them. */
  #stored: PreferenceValues | undefined
  /** Saved one after another. */
  #queue: Promise<unknown> = Promise.resolve()
  #saves = 0
  #waiting = 0
  #loading: Promise<void> | undefined

  constructor(preferences: Pick<Preferences, 'get' | 'set' | 'delete'>) {
    super(NO_PREFERENCES)
    this.#preferences = preferences
  }

  /** @internal */
  protected override observed(): void {
    void this.refresh()
  }

  refresh = (): Promise<void> => quiet((this.#loading ??= this.#load().finally(() => (this.#loading = undefined))))

  /** Replaces them. */
  save = (values: PreferenceValues): Promise<void> => quiet(this.#save(values, () => this.#preferences.set(values)))

  /** Removes them: the defaults apply. */
  reset = (): Promise<void> => quiet(this.#save({}, () => this.#preferences.delete().then(() => ({}))))

  async #load(): Promise<void> {
    if (this.getSnapshot().status === 'error') this.#set({ status: 'loading' })
    const saves = this.#saves
    try {
      const stored = await this.#preferences.get()
      if (this.#waiting || saves !== this.#saves) return
      this.#stored = stored
      this.#set({ status: 'ready', values: stored, error: undefined })
    } catch (error) {
      this.#set({ status: 'error', error: error as NoroshiError })
      throw error
    }
  }

  async #save(values: PreferenceValues, send: () => Promise<PreferenceValues>): Promise<void> {
    const save = ++this.#saves
    this.#waiting++
    this.#set({ status: 'ready', values, error: undefined })
    const sent = this.#queue.then(send)
    this.#queue = sent.catch(() => {})
    try {
      this.#stored = await sent
      if (save === this.#saves) this.#set({ values: this.#stored })
    } catch (error) {
      // A later change is visible already.
      const rollback = save === this.#saves && { values: this.#stored, status: this.#stored ? ('ready' as const) : ('error' as const) }
      this.#set({ ...rollback, error: error as NoroshiError })
      throw error
    } finally {
      this.#waiting--
    }
  }

  #set(change: { -readonly [Key in keyof PreferencesSnapshot]?: PreferencesSnapshot[Key] }): void {
    const { values } = this.getSnapshot()
    if ('values' in change && JSON.stringify(change.values) === JSON.stringify(values)) change.values = values
    this.publish(change)
  }
}
