/** Between `<input type="datetime-local">` and RFC 3339, in the zone that the person chose. */

import { utc } from './format'

export function fromInput(value: string): string | undefined {
  if (!value) return undefined
  return new Date(utc.value ? `${value}Z` : value).toISOString()
}

export function toInput(moment: string | null | undefined): string {
  if (!moment) return ''
  const at = new Date(moment)
  const shifted = utc.value ? at : new Date(at.getTime() - at.getTimezoneOffset() * 60_000)
  return shifted.toISOString().slice(0, 16)
}
