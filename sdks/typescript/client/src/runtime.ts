/** What the library needs from its environment. Tests replace it: clocks, random numbers and networks are arguments. */

/** The part of the `WebSocket` of browsers, Node.js 22 and the package `ws` that the library uses. */
export interface WebSocketLike {
  onopen: ((event: any) => void) | null
  onmessage: ((event: any) => void) | null
  onclose: ((event: any) => void) | null
  onerror: ((event: any) => void) | null
  send(text: string): void
  close(code?: number): void
}

export interface Runtime {
  /** Milliseconds since 1970. */
  now(): number
  setTimeout(callback: () => void, ms: number): unknown
  clearTimeout(timer: any): void
  /** 0 <= random() < 1 */
  random(): number
  WebSocket?: (new (url: string, protocol: string) => WebSocketLike) | undefined
  fetch: typeof fetch
}

/** @internal */
export const defaultRuntime = (): Runtime => ({
  now: () => Date.now(),
  setTimeout: (callback, ms) => setTimeout(callback, ms),
  clearTimeout: (timer) => clearTimeout(timer),
  random: () => Math.random(),
  WebSocket: (globalThis as any).WebSocket,
  fetch: (...args) => globalThis.fetch(...args),
})

/** CONTRACT.md B1: half a second, doubled after each failure up to 30 s; the second half of it is random. @internal */
export const backoff = (failures: number, random: number): number => Math.round(Math.min(30_000, 500 * 2 ** failures) * (0.5 + random / 2))

/** Milliseconds of a `Retry-After` header, which states seconds or a date (RFC 9110 §10.2.3). @internal */
export function retryAfter(text: string | null | undefined, now: number): number | undefined {
  if (!text) return undefined
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now
  return Number.isFinite(ms) ? Math.min(Math.max(ms, 0), 3_600_000) : undefined
}
