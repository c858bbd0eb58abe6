/** Names of the time series that the server keeps, and how a chart shows them. */

export type Unit = 'count' | 'per_second' | 'milliseconds'

export interface SeriesName { name: string; unit: Unit }

export const CONNECTIONS = { name: 'connections', unit: 'count' } as const
export const LOGINS = { name: 'logins', unit: 'per_second' } as const
export const PUBLISHES = { name: 'publishes', unit: 'per_second' } as const
export const DELIVERIES = { name: 'deliveries', unit: 'per_second' } as const
export const LATENCY_P50 = { name: 'latency_p50', unit: 'milliseconds' } as const
export const LATENCY_P99 = { name: 'latency_p99', unit: 'milliseconds' } as const
export const PUSH_RESPONSES = { name: 'push_responses', unit: 'per_second' } as const
export const BACKLOG = { name: 'backlog', unit: 'count' } as const
export const ERRORS = { name: 'errors', unit: 'per_second' } as const

export const ALL_SERIES: readonly SeriesName[] = [
  CONNECTIONS, LOGINS, PUBLISHES, DELIVERIES, LATENCY_P50, LATENCY_P99, PUSH_RESPONSES, BACKLOG, ERRORS,
]

const HOUR_MS = 3_600_000
/** Spans of the overview, with the step that keeps a chart at 60 to 720 points. */
export const SPANS = {
  '1h': { ms: HOUR_MS, step: 10 },
  '6h': { ms: 6 * HOUR_MS, step: 60 },
  '24h': { ms: 24 * HOUR_MS, step: 300 },
  '7d': { ms: 7 * 24 * HOUR_MS, step: 3600 },
  '30d': { ms: 30 * 24 * HOUR_MS, step: 3600 },
} as const
export type Span = keyof typeof SPANS
