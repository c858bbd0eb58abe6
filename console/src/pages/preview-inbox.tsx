/** The bell of `@noroshi/inbox`, open, with one unread item: what people see who use the library. Inert. */

import { h } from 'preact'

import '@noroshi/inbox/style.css'
import { type Bell, CLOSED } from '@noroshi/inbox/bell'
import { view } from '@noroshi/inbox/view'

import { language, t } from '../i18n'

interface Props { title: string; text: string; url?: string | undefined }

export function InboxPreview({ title, text, url }: Props) {
  const now = new Date().toISOString()
  const item = {
    id: 'preview', state: 'unread' as const, created_at: now, changed_at: now, expires_at: now,
    notification: { title: title || t('preview.noTitle'), ...(text ? { body: text } : {}), ...(url ? { url } : {}) },
  }
  const snapshot = { ...CLOSED, isOpen: true, inbox: { ...CLOSED.inbox, status: 'ready' as const, items: [item], unread: 1 } }
  // No event reaches the handlers.
  const bell = {} as Bell
  return (
    <figure class="preview inbox">
      <figcaption>{t('preview.inbox')}</figcaption>
      <div inert>{view(h, bell, snapshot, { locale: language.value }, { id: 'preview-' })}</div>
      {url && <p class="preview-link">{url}</p>}
    </figure>
  )
}
