/** The bell as a component. */

import type { Item } from '@noroshi/client'
import { createElement, useEffect, useId, useMemo, useRef, useSyncExternalStore, type ReactNode } from 'react'

import { Bell, CLOSED, type SelectListener } from '../../inbox/src/bell.js'
import style from '../../inbox/src/style.css?raw'
import { view, type ViewOptions } from '../../inbox/src/view.js'
import { useNoroshi } from './provider.js'

export interface InboxBellProps extends ViewOptions {
  /** Only items of this category; the number of unread items stays that of all. */
  category?: string | undefined
  /** Items of a page. Default 20. */
  limit?: number | undefined
  /** An item was opened. Call `preventDefault` of the event to open it in another way than its link. */
  onSelect?: SelectListener | undefined
  /** Shows an item; default: its title, body and time. It is inside of a link or a button. */
  renderItem?: ((item: Item) => ReactNode) | undefined
  className?: string | undefined
  /** For a Content-Security-Policy that does not allow inline styles. */
  nonce?: string | undefined
}

/** A button with the number of unread items, which opens the user's notification centre. */
export function InboxBell({ category, limit, onSelect, renderItem, className, nonce, ...options }: InboxBellProps): ReactNode {
  const client = useNoroshi()
  const id = useId()
  const bell = useMemo(() => new Bell(client, { category, limit }), [client, category, limit])
  const snapshot = useSyncExternalStore(bell.subscribe, bell.getSnapshot, () => CLOSED)
  const latest = useRef(onSelect)
  useEffect(() => {
    latest.current = onSelect
    bell.onSelect = (item, event) => latest.current?.(item, event)
  })
  useEffect(bell.rendered)
  // As a text, React would escape it on a server. Browsers hide the nonce.
  const sheet = createElement('style', { nonce, dangerouslySetInnerHTML: { __html: style }, suppressHydrationWarning: true })
  return view<ReactNode>(createElement, bell, snapshot, options, { id, content: renderItem, style: sheet, root: { ref: bell.attach }, className })
}
