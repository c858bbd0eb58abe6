/** A button that opens a list of actions, after the ARIA menu pattern. */

import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef, useState } from 'preact/hooks'

import { Icon } from './icon'

export interface Item { label: string; href?: string; danger?: boolean; checked?: boolean; reason?: string | undefined; onChoose?(): void }

interface Props { label: string; button?: ComponentChildren; className?: string; items: readonly (Item | 'line')[] }

export function Menu({ label, button, className, items }: Props) {
  const [open, setOpen] = useState(false)
  const id = useId()
  const box = useRef<HTMLDivElement>(null)
  const entries = (): HTMLElement[] => [...(box.current?.querySelectorAll<HTMLElement>('[role^=menuitem]') ?? [])]

  useEffect(() => {
    if (!open) return undefined
    entries()[0]?.focus()
    const outside = (event: Event): void => {
      if (!box.current?.contains(event.target as globalThis.Node)) setOpen(false)
    }
    document.addEventListener('pointerdown', outside)
    document.addEventListener('focusin', outside)
    return () => {
      document.removeEventListener('pointerdown', outside)
      document.removeEventListener('focusin', outside)
    }
  }, [open])

  function close(): void {
    setOpen(false)
    box.current?.querySelector('button')?.focus()
  }

  function press(event: KeyboardEvent): void {
    if (!open) return
    const all = entries()
    const here = all.indexOf(document.activeElement as HTMLElement)
    const to = { ArrowDown: (here + 1) % all.length, ArrowUp: (here - 1 + all.length) % all.length, Home: 0, End: all.length - 1 }[event.key]
    if (event.key === 'Escape') close()
    else if (event.key === 'Tab') return setOpen(false)
    else if (to !== undefined) all[to]?.focus()
    else return
    event.preventDefault()
  }

  return (
    <div class={`menu ${className ?? ''}`} ref={box} onKeyDown={press}>
      <button
        type="button"
        class={button ? 'menu-button' : 'copy'}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        aria-label={button ? undefined : label}
        onClick={() => setOpen(!open)}
      >
        {button ? <><span class="hidden">{label} </span>{button}</> : <Icon name="more" />}
      </button>
      {open && (
        <div class="menu-list" role="menu" id={id} aria-label={label}>
          {items.map((item, index) => item === 'line' ? <hr key={index} role="separator" /> : <Entry key={item.label} item={item} done={close} />)}
        </div>
      )}
    </div>
  )
}

function Entry({ item, done }: { item: Item; done(): void }) {
  const shared = {
    role: item.checked === undefined ? 'menuitem' as const : 'menuitemradio' as const,
    'aria-checked': item.checked,
    tabIndex: -1,
    class: `menu-item${item.danger ? ' danger' : ''}`,
  }
  const content = (
    <>
      <span class="menu-mark">{item.checked && <Icon name="check" />}</span>
      <span>{item.label}{item.reason && <small>{item.reason}</small>}</span>
    </>
  )
  if (item.href !== undefined) return <a {...shared} href={item.href} onClick={done}>{content}</a>
  return (
    <button
      {...shared}
      type="button"
      aria-disabled={item.reason ? true : undefined}
      onClick={() => {
        if (item.reason) return
        done()
        item.onChoose?.()
      }}
    >
      {content}
    </button>
  )
}
