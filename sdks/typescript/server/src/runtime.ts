/** What the library needs from its environment. Tests replace it: clock, random numbers and network are arguments. */

export interface Runtime {
  /** Milliseconds since 1970. */
  now(): number
  setTimeout(callback: () => void, ms: number): unknown
  clearTimeout(timer: any): void
  /** 0 <= random() < 1 */
  random(): number
  fetch: typeof fetch
}

/** @internal */
export const defaultRuntime: Runtime = {
  now: () => Date.now(),
  setTimeout: (callback, ms) => setTimeout(callback, ms),
  clearTimeout: (timer) => clearTimeout(timer),
  random: () => Math.random(),
  fetch: (...args) => globalThis.fetch(...args),
}

/** Waits, unless the signal aborts first. @internal */
export function sleep(runtime: Runtime, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      runtime.clearTimeout(timer)
      reject(signal!.reason)
    }
    const timer = runtime.setTimeout(() => {
      signal?.removeEventListener('abort', stop)
      resolve()
    }, ms)
    if (signal?.aborted) stop()
    else signal?.addEventListener('abort', stop, { once: true })
  })
}
