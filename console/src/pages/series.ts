/** Points of the time series as charts show them. */

import type { AdminSchemas } from '../api/client'

export type Series = AdminSchemas['Series']
export type SeriesName = AdminSchemas['SeriesFigure']['name']
export type Points = (number | null)[]

export const SPANS = { '1h': 3_600_000, '6h': 21_600_000, '24h': 86_400_000, '7d': 604_800_000, '30d': 2_592_000_000 } as const
export type Span = keyof typeof SPANS
export const isSpan = (text: string | null): text is Span => text !== null && Object.hasOwn(SPANS, text)

/** How often new points appear. */
export const refreshMs = (span: Span): number => (span === '1h' ? 10_000 : span === '6h' || span === '24h' ? 60_000 : 300_000)

function pointsOf({ series }: Series, name: SeriesName): Points {
  return series.find((one) => one.name === name)?.points ?? []
}

/** Of a gauge: as it is. */
export const gauge = pointsOf

/** Of a count: per second of what was measured. */
export function rate(series: Series, name: SeriesName): Points {
  return pointsOf(series, name).map((point, index) => {
    const seconds = series.covered_s[index] ?? 0
    return point === null || seconds === 0 ? null : point / seconds
  })
}

/** Of a time: in milliseconds. */
export const milliseconds = (series: Series, name: SeriesName): Points =>
  pointsOf(series, name).map((point) => (point === null ? null : point * 1000))

/** Cores in use, from milliseconds of CPU time. */
export const cores = (series: Series): Points => rate(series, 'cpu').map((point) => (point === null ? null : point / 1000))

/** Nobody measured anything. */
export const isEmpty = ({ covered_s }: Series): boolean => covered_s.every((seconds) => seconds === 0)
