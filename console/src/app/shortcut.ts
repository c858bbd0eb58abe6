/** Keys: `/` search, Ctrl/Cmd+K commands, `?` help, `g` and a letter for pages. Ignored while a field has the focus. */

import { go } from './router'
import { PAGES } from './routes'
import { at } from './session'

export interface Commands { search(): void; palette(): void; help(): void }

const GO_WITHIN_MS = 1500

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement &&
  (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))

/** Handles a key; true if it meant something. `state.g` remembers a `g` that was pressed before. */
export function handleKey(
  event: Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'metaKey' | 'altKey' | 'timeStamp'>,
  state: { g: number },
  commands: Commands & { open(page: string): void },
): boolean {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
    commands.palette()
    return true
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return false
  const afterG = event.timeStamp - state.g < GO_WITHIN_MS
  state.g = -Infinity
  if (afterG) {
    const page = PAGES.find(({ key }) => key === event.key)
    if (page) commands.open(page.name)
    return page !== undefined
  }
  if (event.key === 'g') state.g = event.timeStamp
  else if (event.key === '/') commands.search()
  else if (event.key === '?') commands.help()
  else return false
  return true
}

export function listen(commands: Commands): () => void {
  const state = { g: -Infinity }
  const open = (page: string): void => go(at(page))
  const press = (event: KeyboardEvent): void => {
    const modal = document.querySelector('dialog[open]') !== null
    const command = event.ctrlKey || event.metaKey
    if (event.defaultPrevented || (!command && (modal || isTyping(event.target)))) return
    if (handleKey(event, state, { ...commands, open })) event.preventDefault()
  }
  document.addEventListener('keydown', press)
  return () => document.removeEventListener('keydown', press)
}
