/** When an API key expires: the choices for a new key, and what a list says. */

import { fromInput } from '../app/local-time'
import type { Tone } from '../ui/badge'

const DAY_MS = 86_400_000
/** `noroshi doctor` and this page warn this long before. */
const SOON_MS = 14 * DAY_MS

const DAYS = { days30: 30, days90: 90, year: 365 } as const
export type Lifetime = 'never' | keyof typeof DAYS | 'date'
export const LIFETIMES: readonly Lifetime[] = ['never', 'days30', 'days90', 'year', 'date']

/** RFC 3339. `date` is the value of the input, for a chosen date. */
export function expiryOf(lifetime: Lifetime, date: string, now: number = Date.now()): string | undefined {
  if (lifetime === 'never') return undefined
  if (lifetime === 'date') return fromInput(date)
  return new Date(now + DAYS[lifetime] * DAY_MS).toISOString()
}

export type ExpiryState = 'expired' | 'expires_soon'
export const EXPIRY_TONES: Record<ExpiryState, Tone> = { expired: 'bad', expires_soon: 'warn' }

/** None for a key that is valid for a longer time. */
export function expiryState(expiresAt: string | null | undefined, now: number): ExpiryState | undefined {
  if (!expiresAt) return undefined
  const left = Date.parse(expiresAt) - now
  return left <= 0 ? 'expired' : left <= SOON_MS ? 'expires_soon' : undefined
}
