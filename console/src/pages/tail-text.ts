/** One line about an event of the live tail, its tone and its time; a sentence about an omission. */

import { language, t, tValue } from '../i18n'
import { number, utc, zone } from '../app/format'
import type { Omission, TailEvent } from './tail'
import type { Tone } from '../ui/badge'

const text = (event: TailEvent, name: string): string | undefined => {
  const value = event[name]
  return typeof value === 'string' || typeof value === 'number' ? String(value) : undefined
}

const TONES: Partial<Record<TailEvent['event'], Tone>> = {
  acked: 'good', opened: 'good', written: 'info', kept: 'info', accepted: 'info', push_sent: 'info', connected: 'good',
  dropped: 'warn', expired: 'warn', push_skipped: 'warn', token_invalidated: 'bad', rejected: 'bad',
}

export function tone(event: TailEvent): Tone {
  if (event.event === 'push_answered') return event['result'] === 'pushed' ? 'good' : 'bad'
  return TONES[event.event] ?? 'muted'
}

const named = (device: string | undefined, user: string | undefined): string | undefined => user === undefined ? device : `${device ?? '–'} (${user})`

/** The first devices of an event, and how many others it has. */
function devices(event: TailEvent): string | undefined {
  const listed = event.devices ?? []
  const first = listed.slice(0, 3).map(({ id, user }) => named(id, user) ?? id)
  const others = (event.count ?? listed.length) - first.length
  if (first.length === 0) return others > 0 ? t('tail.devices', { count: others }) : undefined
  return others > 0 ? t('tail.others', { names: first.join(', '), count: others }) : first.join(', ')
}

function recipients(event: TailEvent): string | undefined {
  const names = event.users ?? event.devices?.map(({ id }) => id) ?? []
  const targets = event['targets']
  const others = (typeof targets === 'number' ? targets : names.length) - Math.min(names.length, 3)
  if (names.length === 0) return event.topic ?? (typeof targets === 'number' ? number(targets) : undefined)
  const first = names.slice(0, 3).join(', ')
  return others > 0 ? t('tail.others', { names: first, count: others }) : first
}

export function summary(event: TailEvent): string {
  const one = named(event.device, event.user)
  const value = (prefix: string, name: string): string | undefined => {
    const found = text(event, name)
    return found === undefined ? undefined : tValue(prefix, found)
  }
  const parts = ((): (string | undefined)[] => {
    switch (event.event) {
      case 'accepted': return [value('target', 'target'), recipients(event), value('when', 'when')]
      case 'routed': return [value('tail.to', 'to')]
      case 'dropped':
      case 'push_skipped': return [value('outcome', 'why'), devices(event)]
      case 'expired': return [value('tail.of', 'of'), devices(event)]
      case 'push_sent': return [value('service', 'service'), devices(event)]
      case 'push_answered':
      case 'token_invalidated': return [value('service', 'service'), value('outcome', 'result'), text(event, 'reason'), devices(event)]
      case 'registered': return [one, value('service', 'service')]
      case 'connected': return [one, text(event, 'protocol')]
      case 'closed': return [one, text(event, 'reason')]
      case 'rejected': return [value('tail.reason', 'reason'), one, text(event, 'protocol'), text(event, 'network')]
      case 'campaign': return [value('state', 'step')]
      case 'exposed': return [one, text(event, 'experiment'), text(event, 'variant')]
      default: return [devices(event)]
    }
  })()
  return parts.filter(Boolean).join(' · ')
}

/** What the list lacks, and why. */
export function omissionText({ kind, counts }: Omission): string {
  if (kind !== 'omitted') return tValue('tail.gap', kind)
  const kinds = Object.entries(counts).sort(([, a], [, b]) => b - a)
  const total = kinds.reduce((sum, [, count]) => sum + count, 0)
  return t('tail.omitted', { total, kinds: kinds.map(([name, count]) => `${tValue('event', name)} ${number(count)}`).join(', ') })
}

const clocks = new Map<string, Intl.DateTimeFormat>()

function timeOfDay(at: string, precise: boolean): string {
  const key = `${language.value} ${utc.value} ${precise}`
  let clock = clocks.get(key)
  if (!clock) {
    clock = new Intl.DateTimeFormat(language.value === 'ja' ? 'ja-JP' : 'en-GB', {
      hour: '2-digit', minute: '2-digit', second: '2-digit', ...(precise ? { fractionalSecondDigits: 3 as const } : {}), hourCycle: 'h23', timeZone: zone(),
    })
    clocks.set(key, clock)
  }
  return clock.format(Date.parse(at))
}

/** The time of day to the millisecond. */
export const time = (at: string): string => timeOfDay(at, true)
/** The time of day to the second. */
export const second = (at: string): string => timeOfDay(at, false)
