/** Numbers, sizes, times and durations as people read them. */

import { signal } from '@preact/signals'

import { language } from '../i18n'
import { count } from '../i18n/number'

export type Unit = 'count' | 'per_second' | 'milliseconds'
/** Milliseconds since 1970, or RFC 3339 as in the API. */
export type Moment = number | string

/** Times in UTC instead of the zone of the browser. */
export const utc = signal(false)
/** Moves relative times ("3 min ago") forward; ticks while the page is visible. */
export const now = signal(Date.now())

export const zone = (): string => (utc.value ? 'UTC' : Intl.DateTimeFormat().resolvedOptions().timeZone)

export const millis = (moment: Moment): number => (typeof moment === 'number' ? moment : Date.parse(moment))

export const number = (value: number): string => count(value, language.value)

export function compact(value: number): string {
  return new Intl.NumberFormat(language.value, { notation: 'compact', maximumFractionDigits: 1 }).format(value)
}

export function percent(share: number): string {
  return new Intl.NumberFormat(language.value, { style: 'percent', maximumFractionDigits: 1 }).format(share)
}

export function dateTime(moment: Moment, precise = false): string {
  return new Intl.DateTimeFormat(language.value === 'ja' ? 'ja-JP' : 'en-GB', {
    year: 'numeric', month: language.value === 'ja' ? '2-digit' : 'short', day: '2-digit',
    hour: '2-digit', minute: '2-digit', second: '2-digit',
    ...(precise ? { fractionalSecondDigits: 3 as const } : {}),
    timeZone: zone(),
  }).format(millis(moment))
}

const STEPS: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400_000], ['hour', 3_600_000], ['minute', 60_000], ['second', 1000],
]

/** A day in UTC, such as `2026-11-27`. */
export function date(day: string): string {
  return new Intl.DateTimeFormat(language.value === 'ja' ? 'ja-JP' : 'en-GB', {
    year: 'numeric', month: language.value === 'ja' ? '2-digit' : 'short', day: '2-digit', timeZone: 'UTC',
  }).format(Date.parse(day))
}

/** "today", "yesterday", "5 days ago": days in UTC. */
export function relativeDay(day: string, at: number = now.value): string {
  const days = Math.round((Date.parse(day) - Date.parse(new Date(at).toISOString().slice(0, 10))) / 86_400_000)
  return new Intl.RelativeTimeFormat(language.value, { numeric: 'auto' }).format(days, 'day')
}

export function relative(moment: Moment, at: number = now.value): string {
  const difference = millis(moment) - at
  const [unit, size] = STEPS.find(([, step]) => Math.abs(difference) >= step) ?? ['second', 1000]
  return new Intl.RelativeTimeFormat(language.value, { numeric: 'auto', style: 'short' })
    .format(Math.round(difference / size), unit)
}

const UNITS = { en: { d: 'd', h: 'h', min: 'min', s: 's' }, ja: { d: '日', h: '時間', min: '分', s: '秒' } } as const

/** `1.2 s`, `3 min 20 s`, `2 d 4 h`: at most two units. */
export function duration(ms: number): string {
  const units = UNITS[language.value]
  if (ms < 1000) return `${number(Math.round(ms))} ms`
  if (ms < 60_000) return `${number(Math.round(ms / 100) / 10)} ${units.s}`
  const parts: [number, string][] = [
    [Math.floor(ms / 86_400_000), units.d], [Math.floor(ms / 3_600_000) % 24, units.h],
    [Math.floor(ms / 60_000) % 60, units.min], [Math.floor(ms / 1000) % 60, units.s],
  ]
  const first = parts.findIndex(([value]) => value > 0)
  return parts.slice(first, first + 2).filter(([value]) => value > 0).map(([value, unit]) => `${value} ${unit}`).join(' ')
}

export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  let rest = value
  let unit = 0
  while (rest >= 1024 && unit < units.length - 1) {
    rest /= 1024
    unit += 1
  }
  return `${number(Math.round(rest * 10) / 10)} ${units[unit]}`
}

/** A fraction of one: a rate of three in a minute is not 0. */
const small = (value: number): string => new Intl.NumberFormat(language.value, { maximumSignificantDigits: 2, maximumFractionDigits: 4 }).format(value)

export function quantity(value: number, unit: Unit): string {
  if (unit === 'milliseconds') return duration(value)
  const size = Math.abs(value)
  const shown = size >= 10_000 ? compact(value) : size > 0 && size < 1 ? small(value) : number(size >= 100 ? Math.round(value) : value)
  return unit === 'per_second' ? `${shown}/s` : shown
}
