/** Form fields. Each has a visible label; hint and error are tied to the control. */

import type { JSX } from 'preact'
import { useEffect, useId, useRef } from 'preact/hooks'

interface Common<T> {
  label: string
  value: T
  onChange(value: NoInfer<T>): void
  hint?: string | undefined
  error?: string | undefined
  required?: boolean
}

interface BoxProps {
  id: string
  label: string
  hint?: string | undefined
  error?: string | undefined
  children: JSX.Element
}

function Box({ id, label, hint, error, children }: BoxProps) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children}
      {hint && <p class="hint" id={`${id}-hint`}>{hint}</p>}
      {error && <p class="field-error" id={`${id}-error`}>{error}</p>}
    </div>
  )
}

const described = (id: string, { hint, error }: { hint?: string | undefined; error?: string | undefined }) => ({
  'aria-describedby': [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(' ') || undefined,
  'aria-invalid': error ? true : undefined,
})

interface TextProps extends Common<string> {
  type?: 'text' | 'password' | 'email' | 'number' | 'datetime-local' | 'url' | 'time'
  autocomplete?: string
  inputmode?: 'numeric' | 'text'
  pattern?: string
  minlength?: number
  maxlength?: number
  placeholder?: string
  autofocus?: boolean
  readOnly?: boolean
  mono?: boolean
}

export function TextField({ label, value, onChange, hint, error, mono, autofocus, type = 'text', ...input }: TextProps) {
  const id = useId()
  const box = useRef<HTMLInputElement>(null)
  useEffect(() => {
    if (autofocus) box.current?.focus()
  }, [])
  return (
    <Box id={id} label={label} hint={hint} error={error}>
      <input
        {...input}
        ref={box}
        // Preact types every kind of input on its own.
        type={type as 'text'}
        {...described(id, { hint, error })}
        id={id}
        class={`input${mono ? ' mono' : ''}`}
        value={value}
        data-autofocus={autofocus || undefined}
        spellcheck={false}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    </Box>
  )
}

export function TextArea({ label, value, onChange, hint, error, required, rows = 5, mono }: Common<string> & { rows?: number; mono?: boolean }) {
  const id = useId()
  return (
    <Box id={id} label={label} hint={hint} error={error}>
      <textarea
        {...described(id, { hint, error })}
        id={id}
        class={`input${mono ? ' mono' : ''}`}
        rows={rows}
        required={required}
        spellcheck={false}
        value={value}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    </Box>
  )
}

export interface Option<T extends string> { value: T; label: string }

export function Select<T extends string>({ label, value, onChange, hint, error, options }: Common<T> & { options: readonly Option<T>[] }) {
  const id = useId()
  return (
    <Box id={id} label={label} hint={hint} error={error}>
      <select
        {...described(id, { hint, error })}
        id={id}
        class="input"
        value={value}
        onChange={(event) => onChange(event.currentTarget.value as T)}
      >
        {options.map((option) => <option key={option.value} value={option.value}>{option.label}</option>)}
      </select>
    </Box>
  )
}

export function Switch({ label, value, onChange, hint }: Common<boolean>) {
  const id = useId()
  return (
    <div class="switch-row">
      <input
        type="checkbox"
        role="switch"
        class="switch"
        id={id}
        checked={value}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      <div>
        <label for={id}>{label}</label>
        {hint && <p class="hint" id={`${id}-hint`}>{hint}</p>}
      </div>
    </div>
  )
}

/** Several choices out of a few. */
export function Checks<T extends string>({ label, value, onChange, options }: Common<readonly T[]> & { options: readonly Option<T>[] }) {
  return (
    <fieldset class="checks">
      <legend>{label}</legend>
      {options.map((option) => (
        <label key={option.value} class="check">
          <input
            type="checkbox"
            checked={value.includes(option.value)}
            onChange={(event) => onChange(event.currentTarget.checked
              ? [...value, option.value]
              : value.filter((other) => other !== option.value))}
          />
          {option.label}
        </label>
      ))}
    </fieldset>
  )
}
