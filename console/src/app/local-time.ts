/** Between `<input type="datetime-local">` and RFC 3339, in the zone that the person chose. Unreadable values are no value. */

import { utc } from './format'

/** Addresses may have any text, and people may type any year; inputs show years of four digits. */
const isReadable = (at: Date): boolean => !Number.isNaN(at.getTime()) && at.getUTCFullYear() >= 1 && at.getUTCFullYear() <= 9999

export function fromInput(value: string): string | undefined {
  const at = new Date(utc.value ? `${value}Z` : value)
  return isReadable(at) ? at.toISOString() : undefined
}

export function toInput(moment: string | null | undefined): string {
  const at = new Date(moment ?? '')
  if (!isReadable(at)) return ''
  const shifted = utc.value ? at : new Date(at.getTime() - at.getTimezoneOffset() * 60_000)
  return shifted.toISOString().slice(0, 16)
}
