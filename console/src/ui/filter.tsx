/** A filter above a list: its form and its fields. */

import type { ComponentChildren } from 'preact'
import { useRef } from 'preact/hooks'

import { t } from '../i18n'
import { Button } from './button'
import type { Option } from './field'

interface FormProps {
  className?: string
  isFiltered: boolean
  onApply(): void
  onClear(): void
  children: ComponentChildren
  /** Below the buttons. */
  more?: ComponentChildren
}

export function FilterForm({ className, isFiltered, onApply, onClear, children, more }: FormProps) {
  const form = useRef<HTMLFormElement>(null)
  function clear(): void {
    onClear()
    // The button disappears.
    form.current?.querySelector<HTMLElement>('input, select')?.focus()
  }
  return (
    <form ref={form} class={`filters${className ? ` ${className}` : ''}`} onSubmit={(event) => { event.preventDefault(); onApply() }}>
      {children}
      <Button type="submit">{t('action.filter')}</Button>
      {isFiltered && <Button kind="quiet" onClick={clear}>{t('action.clearFilter')}</Button>}
      {more}
    </form>
  )
}

interface Common { label: string; value: string; onChange(value: string): void }

export function FilterField({ label, value, onChange, type = 'search', mono }: Common & { type?: 'search' | 'datetime-local'; mono?: boolean }) {
  return (
    <label class="filter">
      <span>{label}</span>
      <input class={`input${mono ? ' mono' : ''}`} type={type as 'search'} value={value} autocomplete="off" spellcheck={false} onInput={(event) => onChange(event.currentTarget.value)} />
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
