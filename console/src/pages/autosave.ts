/**
 * Saves a draft while somebody writes it: one request at a time, the newest content last. A conflict stops it until the
 * person has decided whose version stays.
 */

import { ApiError } from '../api/error'

export interface Saved { id: string; revision: number }
export type SaveState = 'new' | 'waiting' | 'saving' | 'saved' | 'conflict' | 'failed'

export interface Saver<T extends Saved> {
  create(content: Record<string, unknown>): Promise<T>
  change(id: string, revision: number, content: Record<string, unknown>): Promise<T>
}

export class Autosave<T extends Saved> {
  state: SaveState = 'new'
  error: unknown
  saved: T | undefined
  private wanted: Record<string, unknown> | undefined
  private running: Promise<void> | undefined
  private timer: ReturnType<typeof setTimeout> | undefined

  constructor(
    private readonly saver: Saver<T>,
    private readonly changed: () => void,
    private readonly delayMs = 700,
  ) {}

  /** Begins with what the server has. */
  begin(saved: T): void {
    clearTimeout(this.timer)
    this.wanted = undefined
    this.error = undefined
    this.saved = saved
    this.show('saved')
  }

  write(content: Record<string, unknown>): void {
    this.wanted = content
    if (this.state === 'conflict') return
    clearTimeout(this.timer)
    this.timer = setTimeout(() => void this.flush(), this.delayMs)
    if (!this.running) this.show('waiting')
  }

  /** Saves what is not saved yet. Resolves when nothing is left, or it failed. */
  flush(): Promise<void> {
    clearTimeout(this.timer)
    this.running ??= this.drain().finally(() => (this.running = undefined))
    return this.running
  }

  /** Replaces the version of somebody else, which has this revision. */
  async overwrite(revision: number): Promise<void> {
    if (this.saved) this.saved = { ...this.saved, revision }
    this.show('waiting')
    await this.flush()
  }

  private async drain(): Promise<void> {
    while (this.wanted && this.state !== 'conflict') {
      const content = this.wanted
      this.show('saving')
      try {
        this.saved = this.saved
          ? await this.saver.change(this.saved.id, this.saved.revision, content)
          : await this.saver.create(content)
      } catch (error) {
        this.error = error
        this.show(error instanceof ApiError && error.is('revision_conflict') ? 'conflict' : 'failed')
        return
      }
      if (this.wanted === content) this.wanted = undefined
      this.error = undefined
    }
    if (this.state !== 'conflict' && this.saved) this.show('saved')
  }

  private show(state: SaveState): void {
    this.state = state
    this.changed()
  }
}
