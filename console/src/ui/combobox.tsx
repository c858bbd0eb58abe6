/** A field with a list of results below it, operated with the arrow keys: the command palette. */

import { useEffect, useId, useState } from 'preact/hooks'

import { Icon, type IconName } from './icon'

export interface Choice { id: string; label: string; group: string; icon: IconName; hint?: string | undefined; run(): void }

interface Props {
  label: string
  placeholder: string
  value: string
  onInput(value: string): void
  choices: readonly Choice[]
  nothing: string
}

export function Combobox({ label, placeholder, value, onInput, choices, nothing }: Props) {
  const id = useId()
  const [marked, setMarked] = useState(0)
  const here = Math.min(marked, choices.length - 1)
  useEffect(() => setMarked(0), [value])
  useEffect(() => document.getElementById(`${id}-${here}`)?.scrollIntoView({ block: 'nearest' }), [here, id])

  function press(event: KeyboardEvent): void {
    if (event.isComposing || choices.length === 0) return
    if (event.key === 'ArrowDown') setMarked((here + 1) % choices.length)
    else if (event.key === 'ArrowUp') setMarked((here - 1 + choices.length) % choices.length)
    else if (event.key === 'Enter') choices[here]?.run()
    else return
    event.preventDefault()
  }

  let group = ''
  return (
    <div class="combobox">
      <div class="combobox-field">
        <Icon name="search" />
        <input
          role="combobox"
          aria-label={label}
          aria-expanded={choices.length > 0}
          aria-controls={`${id}-list`}
          aria-activedescendant={choices.length > 0 ? `${id}-${here}` : undefined}
          aria-autocomplete="list"
          autocomplete="off"
          spellcheck={false}
          data-autofocus
          placeholder={placeholder}
          value={value}
          onInput={(event) => onInput(event.currentTarget.value)}
          onKeyDown={press}
        />
      </div>
      <div class="combobox-list" role="listbox" id={`${id}-list`} aria-label={label}>
        {choices.map((choice, index) => {
          const heading = choice.group !== group ? (group = choice.group) : undefined
          return (
            <div key={choice.id} role="presentation">
              {heading && <div class="combobox-group" role="presentation">{heading}</div>}
              <div
                role="option"
                id={`${id}-${index}`}
                aria-selected={index === here}
                class="combobox-option"
                onPointerMove={() => setMarked(index)}
                onClick={() => choice.run()}
              >
                <Icon name={choice.icon} />
                <span>{choice.label}</span>
                {choice.hint && <kbd>{choice.hint}</kbd>}
              </div>
            </div>
          )
        })}
      </div>
      {choices.length === 0 && <p class="combobox-nothing" role="status">{nothing}</p>}
    </div>
  )
}
