/** One choice of a few, side by side: the time span of charts, a filter. */

import { useId } from 'preact/hooks'

interface Props<T extends string> {
  label: string
  value: T
  options: readonly { value: T; label: string }[]
  onChange(value: NoInfer<T>): void
}

export function Segmented<T extends string>({ label, value, options, onChange }: Props<T>) {
  const name = useId()
  return (
    <div class="segmented" role="radiogroup" aria-label={label}>
      {options.map((option) => (
        <label key={option.value} class={option.value === value ? 'chosen' : ''}>
          <input type="radio" name={name} checked={option.value === value} onChange={() => onChange(option.value)} />
          {option.label}
        </label>
      ))}
    </div>
  )
}
