/** Filters by the day when a device was last seen, as words in the address: a shared address stays relative to today. */

export const SEEN = ['1d', '7d', '30d', 'over30d', 'over90d', 'never'] as const

export interface SeenQuery { seen?: 'never'; seen_after?: string; seen_before?: string }

const DAY = 86_400_000

/** The parameters of the API. Days are in UTC: "7d" is today and the seven days before. Anything else is no filter. */
export function seenQuery(seen: string | undefined, now: number): SeenQuery {
  const ago = (days: string | number) => new Date(now - Number(days) * DAY).toISOString()
  if (seen === undefined || !(SEEN as readonly string[]).includes(seen)) return {}
  if (seen === 'never') return { seen }
  return seen.startsWith('over') ? { seen_before: ago(seen.slice(4, -1)) } : { seen_after: ago(seen.slice(0, -1)) }
}
