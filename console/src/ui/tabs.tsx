/** Tabs after the ARIA pattern: arrow keys move, only the chosen tab is in the tab order. */

import type { ComponentChildren } from 'preact'
import { useId, useRef } from 'preact/hooks'

import { number } from '../app/format'

export interface Tab { id: string; label: string; count?: number | undefined; body(): ComponentChildren }

interface Props { label: string; tabs: readonly Tab[]; chosen: string; onChoose(id: string): void }

export function Tabs({ label, tabs, chosen, onChoose }: Props) {
  const base = useId()
  const list = useRef<HTMLDivElement>(null)
  const open = tabs.find(({ id }) => id === chosen) ?? tabs[0]
  if (!open) return null

  function move(event: KeyboardEvent): void {
    const here = tabs.findIndex(({ id }) => id === open?.id)
    const to = {
      ArrowRight: (here + 1) % tabs.length,
      ArrowLeft: (here - 1 + tabs.length) % tabs.length,
      Home: 0,
      End: tabs.length - 1,
    }[event.key]
    const target = to === undefined ? undefined : tabs[to]
    if (!target || to === undefined) return
    event.preventDefault()
    onChoose(target.id)
    list.current?.querySelectorAll('button')[to]?.focus()
  }

  return (
    <div class="tabs">
      <div role="tablist" aria-label={label} ref={list} onKeyDown={move}>
        {tabs.map((tab) => (
          <button
            key={tab.id}
            type="button"
            role="tab"
            id={`${base}-${tab.id}`}
            aria-selected={tab.id === open.id}
            aria-controls={`${base}-panel`}
            tabIndex={tab.id === open.id ? 0 : -1}
            onClick={() => onChoose(tab.id)}
          >
            {tab.label}
            {tab.count !== undefined && <span class="count">{number(tab.count)}</span>}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${base}-panel`} aria-labelledby={`${base}-${open.id}`} tabIndex={0} key={open.id}>
        {open.body()}
      </div>
    </div>
  )
}
