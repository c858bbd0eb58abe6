/** The bell's elements, written once for React and for the custom element: `h` is `createElement` of either. */

import type { Item } from '@noroshi/client'
import { linkOf, type Bell, type BellSnapshot } from './bell.js'
import { ago, textsOf, type Texts } from './texts.js'

export interface ViewOptions {
  /** Default: `auto`, which follows the browser. */
  theme?: 'light' | 'dark' | 'auto' | undefined
  /** Language of texts and times, such as `ja`. Default `en`. */
  locale?: string | undefined
  /** Replace texts of the locale. */
  texts?: Partial<Texts> | undefined
  /** The side of the button at which the panel begins. Default `end`. */
  align?: 'start' | 'end' | undefined
}

type H<Node> = (type: any, props: any, ...children: any[]) => Node

const BELL = 'M12 3a6 6 0 0 0-6 6c0 5-2 6.5-2 7.5h16c0-1-2-2.5-2-7.5a6 6 0 0 0-6-6ZM9.5 19.5a2.6 2.6 0 0 0 5 0'
const ARCHIVE = 'M4 5h16v4H4zM5.5 9v10h13V9M10 13h4'

const fill = (text: string, n: number) => text.replace('{n}', String(n))

/** `id` is unique in its document; `content` shows an item instead of its title, body and time; `style` comes first. */
export function view<Node>(
  h: H<Node>,
  bell: Bell,
  { isOpen, inbox, active, column, announced }: BellSnapshot,
  { theme = 'auto', locale = 'en', texts, align = 'end' }: ViewOptions,
  { id, content, style, root, className = '' }: { id: string; content?: ((item: Item) => Node) | undefined; style?: Node; root?: object; className?: string | undefined },
): Node {
  const t = textsOf(locale, texts)
  const { items, unread = 0, status } = inbox
  const now = Date.now()
  const icon = (d: string) => h('svg', { viewBox: '0 0 24 24', 'aria-hidden': 'true' }, h('path', { d }))
  const isLoading = status === 'idle' || status === 'loading'

  const body = (item: Item) => [
    h('span', { key: 't', className: 'title' }, item.notification?.title || t.untitled),
    item.notification?.body ? h('span', { key: 'b', className: 'text' }, item.notification.body) : null,
    h('time', { key: 'w', dateTime: item.created_at }, ago(item.created_at, now, locale)),
  ]
  const row = (item: Item) => {
    const url = linkOf(item)
    const isUnread = item.state === 'unread'
    const tab = (of: number) => (item.id === active && of === column ? 0 : -1)
    return h(
      'div',
      { key: item.id, role: 'row', className: isUnread ? 'row unread' : 'row', part: isUnread ? 'item item-unread' : 'item', 'data-id': item.id },
      h(
        'div',
        { role: 'gridcell', 'data-column': 0 },
        h(
          url ? 'a' : 'button',
          { ...(url ? { href: url } : { type: 'button' }), className: 'item', tabIndex: tab(0), onClick: (event: any) => bell.select(item, event) },
          isUnread ? h('span', { className: 'sr' }, `${t.isUnread}. `) : null,
          content ? content(item) : body(item),
        ),
      ),
      h(
        'div',
        { role: 'gridcell', 'data-column': 1 },
        h(
          'button',
          {
            type: 'button',
            className: 'icon',
            tabIndex: tab(1),
            title: t.archive,
            'aria-label': `${t.archive}: ${item.notification?.title || t.untitled}`,
            onClick: () => bell.archive(item),
          },
          icon(ARCHIVE),
        ),
      ),
    )
  }

  return h(
    'div',
    {
      ...root,
      className: `noroshi-inbox ${className}`.trim(),
      'data-theme': theme,
      'data-align': align,
      lang: locale,
      onKeyDown: bell.pressed,
      onBlur: bell.blurred,
    },
    style,
    h(
      'button',
      {
        type: 'button',
        className: 'bell',
        part: 'button',
        'aria-haspopup': 'dialog',
        'aria-expanded': String(isOpen),
        'aria-controls': isOpen ? `${id}panel` : undefined,
        'aria-label': unread ? `${t.title}, ${fill(t.unread, unread)}` : t.title,
        onClick: bell.toggle,
      },
      icon(BELL),
      unread ? h('span', { className: 'badge', part: 'badge', 'aria-hidden': 'true' }, unread > 99 ? '99+' : String(unread)) : null,
    ),
    h('span', { className: 'sr', role: 'status', 'aria-live': 'polite' }, announced ? fill(t.announcement, announced) : ''),
    isOpen
      ? h(
          'div',
          { className: 'panel', part: 'panel', role: 'dialog', id: `${id}panel`, tabIndex: -1, 'aria-labelledby': `${id}title`, 'aria-busy': String(isLoading) },
          h(
            'div',
            { className: 'head', part: 'header' },
            h('h2', { id: `${id}title` }, t.title),
            h('button', { type: 'button', className: 'link', 'aria-disabled': String(!unread), onClick: bell.markAllRead }, t.markAllRead),
          ),
          inbox.error
            ? h(
                'div',
                { className: 'note error', role: 'alert' },
                status === 'error' ? t.loadFailed : t.changeFailed,
                ' ',
                h('button', { type: 'button', className: 'link', onClick: () => bell.inbox.refresh() }, t.retry),
              )
            : null,
          items.length
            ? h('div', { className: 'list', role: 'grid', 'aria-labelledby': `${id}title` }, items.map(row))
            : h('p', { className: 'note', role: 'status', hidden: status === 'error' }, isLoading ? t.loading : t.empty),
          inbox.hasMore
            ? h(
                'button',
                { type: 'button', className: 'link more', 'data-more': '', 'aria-disabled': String(inbox.isLoadingMore), onClick: () => bell.inbox.loadMore() },
                inbox.isLoadingMore ? t.loading : t.loadMore,
              )
            : null,
        )
      : null,
  )
}
