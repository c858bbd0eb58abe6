/**
 * Waits for a condition, with one generous deadline for all tests: a slow machine makes
 * a test slow, but never fail.
 */

export const DEADLINE_MS = 30_000

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** Calls `probe` until it returns something truthy, and returns that. */
export async function until(what, probe, deadlineMs = DEADLINE_MS) {
  const end = Date.now() + deadlineMs
  for (;;) {
    const value = await probe()
    if (value) return value
    if (Date.now() > end) throw new Error(`waited ${deadlineMs} ms for: ${what}`)
    await sleep(20)
  }
}

/** The promise's value, or an error that names what did not happen. */
export function within(what, promise, deadlineMs = DEADLINE_MS) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`waited ${deadlineMs} ms for: ${what}`)), deadlineMs)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}
