/** A filter in the address: the values that apply, and those that a person types until they submit them. */

import { useEffect, useState } from 'preact/hooks'

import { amend, place } from '../app/router'

export type FilterValues<Name extends string> = Partial<Record<Name, string>>

export interface Filters<Name extends string> {
  /** As in the address, without empty ones. */
  applied: FilterValues<Name>
  isFiltered: boolean
  typed: FilterValues<Name>
  /** For the field of a value. */
  field(name: Name): { value: string; onChange(value: string): void }
  apply(values: FilterValues<Name>): void
}

export function useFilters<Name extends string>(names: readonly Name[]): Filters<Name> {
  const applied = Object.fromEntries(names.map((name) => [name, place.value.query.get(name) ?? '']).filter(([, value]) => value !== '')) as FilterValues<Name>
  const [typed, setTyped] = useState<FilterValues<Name>>(applied)
  // A link may change the address while the page stays.
  useEffect(() => setTyped(applied), [JSON.stringify(applied)])
  return {
    applied,
    isFiltered: Object.keys(applied).length > 0,
    typed,
    field: (name) => ({ value: typed[name] ?? '', onChange: (value) => setTyped((before) => ({ ...before, [name]: value })) }),
    apply: (values) => {
      setTyped(values)
      amend(Object.fromEntries(names.map((name) => [name, values[name]?.trim() || undefined])))
    },
  }
}
