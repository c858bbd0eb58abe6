/** What the bell does, for every view: open and close, the keyboard, the focus, announcements. */

import type { Item, Noroshi } from '@noroshi/client'
import { Observable } from './observable.js'
import { INITIAL, InboxStore, type InboxOptions, type InboxSnapshot } from './store.js'

export interface BellSnapshot {
  readonly isOpen: boolean
  readonly inbox: InboxSnapshot
  /** The item that Tab reaches, and its control: 0 opens it, 1 archives it. */
  readonly active: string | undefined
  readonly column: number
  /** Unread notifications to be read out. */
  readonly announced: number | undefined
}

/** Calls `preventDefault` of the event to open the item in another way than its link. */
export type SelectListener = (item: Item, event: { preventDefault(): void; readonly defaultPrevented: boolean }) => void

const PAGE_ROWS = 5
/** Pixels between the panel and the edge of the window. */
const EDGE = 8

/** The address that an item opens. Others, such as `javascript:` and an app's own scheme, are no links in a page. */
export const linkOf = ({ notification }: Item): string | undefined =>
  typeof notification?.url === 'string' && /^https?:\/\//i.test(notification.url) ? notification.url : undefined

export const CLOSED: BellSnapshot = { isOpen: false, inbox: INITIAL, active: undefined, column: 0, announced: undefined }

export class Bell extends Observable<BellSnapshot> {
  onSelect: SelectListener | undefined
  readonly inbox: InboxStore
  readonly #client: Noroshi<any>
  readonly #category: string | undefined
  #off: (() => void) | undefined
  #hide: (() => void) | undefined
  #root: HTMLElement | null = null
  #focus: 'button' | 'active' | 'panel' | undefined
  #isOpen = false
  #active: string | undefined
  #column = 0
  #announced: number | undefined

  constructor(client: Noroshi<any>, options: InboxOptions = {}) {
    super(CLOSED)
    this.#client = client
    this.#category = options.category
    this.inbox = new InboxStore(client, options)
  }

  /** @internal */
  protected override observed(): void {
    this.#off = this.inbox.subscribe(() => this.#inboxChanged())
    this.#publish()
  }

  /** @internal */
  protected override unobserved(): void {
    this.#off?.()
  }

  /** The view's outer element, or null when it is removed. */
  attach = (root: HTMLElement | null): void => {
    this.#root?.ownerDocument.removeEventListener('pointerdown', this.#pressed)
    this.#root = root
    root?.ownerDocument.addEventListener('pointerdown', this.#pressed)
    if (!root) this.close(false)
  }

  /** The view shows the snapshot: moves the focus where it belongs. */
  rendered = (): void => {
    const root = this.#root
    const focus = this.#focus
    if (!root || !focus) return
    this.#focus = undefined
    const { active } = this.getSnapshot()
    if (focus === 'active' && active !== undefined) this.#control(active, this.#column)?.focus()
    else root.querySelector<HTMLElement>(focus === 'button' ? '[aria-haspopup]' : '[role=dialog]')?.focus({ preventScroll: true })
    this.#place()
  }

  toggle = (): void => (this.#isOpen ? this.close() : this.open())

  open = (): void => {
    if (this.#isOpen) return
    this.#isOpen = true
    this.#active = undefined
    this.#column = 0
    this.#announced = undefined
    this.#focus = 'active'
    this.#hide = this.inbox.show()
    this.#publish()
  }

  /** Returns the focus to the button unless it is elsewhere already. */
  close = (returnFocus = true): void => {
    if (!this.#isOpen) return
    this.#isOpen = false
    this.#focus = returnFocus ? 'button' : undefined
    this.#hide?.()
    this.#hide = undefined
    this.#publish()
  }

  select = (item: Item, event: Parameters<SelectListener>[1]): void => {
    this.#active = item.id
    this.#column = 0
    if (item.state === 'unread') void this.inbox.markRead(item.id)
    this.#client.opened(item.id)
    this.onSelect?.(item, event)
    if (linkOf(item) !== undefined || event.defaultPrevented) this.close()
    else this.#publish()
  }

  archive = (item: Item): void => {
    const { items } = this.getSnapshot().inbox
    const index = items.indexOf(item)
    const next = items[index + 1] ?? items[index - 1]
    // Its control had the focus.
    this.#active = next?.id
    this.#focus = next ? 'active' : 'panel'
    void this.inbox.archive(item.id)
    this.#publish()
  }

  markAllRead = (): void => {
    const newest = this.getSnapshot().inbox.items[0]
    if (newest && this.getSnapshot().inbox.unread) void this.inbox.markRead({ upTo: newest.id, ...(this.#category && { category: this.#category }) })
  }

  /** `keydown` of the outer element. */
  pressed = (event: Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'preventDefault' | 'stopPropagation'> & { readonly target: EventTarget }): void => {
    if (!this.#isOpen) return
    const { key, ctrlKey } = event
    const target = event.target as HTMLElement
    const handled = () => {
      event.preventDefault()
      event.stopPropagation()
    }
    if (key === 'Escape') {
      handled()
      return this.close()
    }
    const { items } = this.getSnapshot().inbox
    const row = target.closest('[role=row]')
    if (!row) {
      // From the panel's other controls into the list.
      if (key === 'ArrowDown' && items.length && target.closest('[role=dialog]') && !target.closest('[data-more]')) {
        handled()
        this.#move(0, 0)
      }
      return
    }
    const index = items.findIndex(({ id }) => id === (row as HTMLElement).dataset['id'])
    const column = Number(target.closest<HTMLElement>('[role=gridcell]')?.dataset['column'] ?? 0)
    const isRtl = getComputedStyle(row).direction === 'rtl'
    const last = items.length - 1
    const to: Record<string, [number, number]> = {
      ArrowDown: [index + 1, column],
      ArrowUp: [index - 1, column],
      [isRtl ? 'ArrowLeft' : 'ArrowRight']: [index, 1],
      [isRtl ? 'ArrowRight' : 'ArrowLeft']: [index, 0],
      Home: [ctrlKey ? 0 : index, 0],
      End: [ctrlKey ? last : index, 1],
      PageDown: [index + PAGE_ROWS, column],
      PageUp: [index - PAGE_ROWS, column],
    }
    if (to[key]) {
      handled()
      this.#move(...to[key])
    }
  }

  /** `focusout` of the outer element: the focus has left the panel. */
  blurred = (event: { readonly relatedTarget: EventTarget | null }): void => {
    const to = event.relatedTarget as Node | null
    if (to && !this.#root?.contains(to)) this.close(false)
  }

  #pressed = (event: Event): void => {
    if (this.#isOpen && this.#root && !event.composedPath().includes(this.#root)) this.close(false)
  }

  #control(id: string, column: number): HTMLElement | null | undefined {
    const rows = [...(this.#root?.querySelectorAll<HTMLElement>('[role=row]') ?? [])]
    return rows.find((row) => row.dataset['id'] === id)?.querySelector<HTMLElement>(`[data-column="${column}"] > *`)
  }

  #move(index: number, column: number): void {
    const { items } = this.getSnapshot().inbox
    const item = items[Math.min(Math.max(index, 0), items.length - 1)]
    if (!item) return
    this.#active = item.id
    this.#column = column
    this.#publish()
    this.#control(item.id, column)?.focus()
  }

  /** Keeps the panel within the window. */
  #place(): void {
    const panel = this.#root?.querySelector<HTMLElement>('[role=dialog]')
    if (!this.#isOpen || !panel) return
    panel.style.setProperty('--_shift', '0px')
    const { left, right } = panel.getBoundingClientRect()
    const width = panel.ownerDocument.documentElement.clientWidth
    const shift = left < EDGE ? EDGE - left : right > width - EDGE ? Math.max(width - EDGE - right, EDGE - left) : 0
    panel.style.setProperty('--_shift', `${Math.round(shift)}px`)
  }

  #inboxChanged(): void {
    const before = this.getSnapshot().inbox.unread
    const inbox = this.inbox.getSnapshot()
    if (inbox.unread !== before) this.#announced = before !== undefined && inbox.unread! > before ? inbox.unread : undefined
    // The first items arrived while the focus waits on the panel.
    if (this.#isOpen && this.#active === undefined && !this.getSnapshot().inbox.items.length && inbox.items.length) {
      const root = this.#root?.getRootNode() as Document | ShadowRoot | undefined
      if (root?.activeElement?.getAttribute('role') === 'dialog') this.#focus = 'active'
    }
    this.#publish()
  }

  #publish(): void {
    const inbox = this.inbox.getSnapshot()
    const active = inbox.items.some(({ id }) => id === this.#active) ? this.#active : inbox.items[0]?.id
    // The view moves the focus after it has rendered.
    this.publish({ isOpen: this.#isOpen, inbox, active, column: this.#column, announced: this.#announced }, !!this.#focus)
  }
}
