/** Texts of the bell. */

/** `{n}` is a number. */
export interface Texts {
  /** The name of the button and the title of the panel. */
  title: string
  unread: string
  /** Read out when notifications arrive. */
  announcement: string
  /** Read out before the title of an unread item. */
  isUnread: string
  markAllRead: string
  archive: string
  loading: string
  empty: string
  loadFailed: string
  changeFailed: string
  retry: string
  loadMore: string
  /** An item without a title. */
  untitled: string
}

export const en: Texts = {
  title: 'Notifications',
  unread: '{n} unread',
  announcement: 'Unread notifications: {n}',
  isUnread: 'Unread',
  markAllRead: 'Mark all as read',
  archive: 'Archive',
  loading: 'Loading…',
  empty: 'No notifications',
  loadFailed: 'The notifications could not be loaded.',
  changeFailed: 'The change could not be saved.',
  retry: 'Try again',
  loadMore: 'Show more',
  untitled: 'Notification',
}

export const ja: Texts = {
  title: '通知',
  unread: '未読{n}件',
  announcement: '未読の通知が{n}件あります',
  isUnread: '未読',
  markAllRead: 'すべて既読にする',
  archive: 'アーカイブ',
  loading: '読み込み中…',
  empty: '通知はありません',
  loadFailed: '通知を読み込めませんでした。',
  changeFailed: '変更を保存できませんでした。',
  retry: '再試行',
  loadMore: 'さらに表示',
  untitled: '通知',
}

const LANGUAGES: Record<string, Texts> = { en, ja }

/** The texts of a locale such as `ja-JP`; English if there are none. */
export const textsOf = (locale: string, own?: Partial<Texts>): Texts => ({ ...(LANGUAGES[locale.toLowerCase().split('-')[0]!] ?? en), ...own })

const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
]

/** "5 minutes ago"; a date after a week. */
export function ago(time: string, now: number, locale: string): string {
  const seconds = Math.max(0, (now - Date.parse(time)) / 1000)
  if (seconds >= 7 * 86_400) return new Intl.DateTimeFormat(locale, { dateStyle: 'medium' }).format(Date.parse(time))
  const [unit, size] = UNITS.find(([, size]) => seconds >= size) ?? ['second', Infinity]
  return new Intl.RelativeTimeFormat(locale, { numeric: 'auto' }).format(-Math.floor(seconds / size), unit)
}
