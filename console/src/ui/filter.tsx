/** Fields of a filter above a list. */

import type { Option } from './field'

interface Common { label: string; value: string; onChange(value: string): void }

export function FilterField({ label, value, onChange, type = 'search' }: Common & { type?: 'search' | 'datetime-local' }) {
  return (
    <label class="filter">
      <span>{label}</span>
      <input class="input" type={type as 'search'} value={value} autocomplete="off" spellcheck={false} onInput={(event) => onChange(event.currentTarget.value)} />
    </label>
  )
}

/** The first choice is no filter. */
export function FilterSelect({ label, value, onChange, all, options }: Common & { all: string; options: readonly Option<string>[] }) {
  return (
    <label class="filter">
      <span>{label}</span>
      <select class="input" value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">{all}</option>
        {options.map((option) => <option key={option.value} value={option.value}>{option.label}</option>)}
      </select>
    </label>
  )
}
