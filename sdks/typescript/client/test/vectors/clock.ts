/** A clock that moves only when a vector says so, and the random numbers of the vector. */

import type { Runtime } from '../../src/runtime.js'

/** 2026-01-01T00:00:00Z */
const START = 1_767_225_600_000

export const settle = async () => {
  for (let i = 0; i < 4; i++) await new Promise((resolve) => setImmediate(resolve))
}

export class Clock {
  #now = START
  #timers = new Map<object, { at: number; callback: () => void }>()
  #random: number[]

  constructor(random: number[] = []) {
    this.#random = [...random]
  }

  get runtime(): Pick<Runtime, 'now' | 'setTimeout' | 'clearTimeout' | 'random'> {
    return {
      now: () => this.#now,
      setTimeout: (callback, ms) => {
        const timer = {}
        this.#timers.set(timer, { at: this.#now + Math.max(0, ms), callback })
        return timer
      },
      clearTimeout: (timer) => void this.#timers.delete(timer),
      random: () => {
        const next = this.#random.shift()
        if (next === undefined) throw new Error('the vector has no more random numbers')
        return next
      },
    }
  }

  get now(): number {
    return this.#now
  }

  get unusedRandom(): number[] {
    return this.#random
  }

  /** Calls every timer that is due, in order. */
  async advance(ms: number, between: () => Promise<void> = settle): Promise<void> {
    const end = this.#now + ms
    for (;;) {
      let first: [object, { at: number; callback: () => void }] | undefined
      for (const entry of this.#timers) if (entry[1].at <= end && (!first || entry[1].at < first[1].at)) first = entry
      if (!first) break
      this.#timers.delete(first[0])
      this.#now = Math.max(this.#now, first[1].at)
      first[1].callback()
      await between()
    }
    this.#now = end
  }
}
