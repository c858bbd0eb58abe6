/** A page of notifications: all of the app, or those that a filter selects. */

import type { ComponentChildren } from 'preact'

import { body, provider, type Schemas } from '../api/client'
import { number } from '../app/format'
import { PAGE_ROWS, type Pages, usePages } from '../app/load'
import { fromInput } from '../app/local-time'
import { seek } from '../app/seek'
import { app, at } from '../app/session'
import { t, tValue } from '../i18n'
import { Outcome, State } from '../ui/badge'
import { Table } from '../ui/table'
import { When } from '../ui/when'

type Listed = Schemas['ListedNotification']

export const NOTIFICATION_FILTERS = ['user', 'device', 'topic', 'campaign', 'category', 'target', 'urgency', 'since', 'until'] as const
/** As in the address: times are those of an input. */
export type NotificationFilters = Partial<Record<(typeof NOTIFICATION_FILTERS)[number], string>>

export function useNotifications(filters: NotificationFilters): Pages<Listed> {
  const times = Object.fromEntries((['since', 'until'] as const).flatMap((name) => {
    const moment = fromInput(filters[name] ?? '')
    return moment ? [[name, moment]] : []
  }))
  const asked = { ...filters, since: undefined, until: undefined, ...times } as Record<string, string | undefined>
  const query = Object.fromEntries(Object.entries(asked).filter(([, value]) => value))
  return usePages<Listed>(`notifications ${app.value} ${JSON.stringify(query)}`, async (after) => {
    const read = async (from: string | undefined, limit: number) => {
      const params = { query: { ...query, limit, ...(from ? { after: from } : {}) } }
      const answer = await body(provider.GET('/v1/notifications', { params }))
      return { rows: answer.notifications, next: answer.next, to: answer.searched_to }
    }
    const { rows, next, last } = await seek(read, after, PAGE_ROWS)
    return { rows, next, searchedTo: next !== null && rows.length < PAGE_ROWS ? last.to : undefined }
  })
}

interface Props { load: Pages<Listed>; empty: ComponentChildren; withRecipients?: boolean }

export function NotificationTable({ load, empty, withRecipients = false }: Props) {
  return (
    <>
      {load.searchedTo && <p class="soft" role="status">{t('notifications.searched')} <When at={load.searchedTo} exact /> {t('notifications.searched.more')}</p>}
      <Table<Listed>
        caption={t('page.notifications')}
        load={load}
        rowKey={({ id }) => id}
        empty={empty}
        columns={[
          { title: t('notification.sent'), cell: ({ sent_at }) => <When at={sent_at} exact /> },
          { title: t('kind.notification'), cell: (listed) => <Content listed={listed} /> },
          { title: t('notification.target'), cell: (listed) => <Target listed={listed} /> },
          ...(withRecipients ? [{ title: t('notifications.onDevices'), cell: (listed: Listed) => <Recipients listed={listed} /> }] : []),
          { title: t('column.state'), cell: ({ state }) => state === null ? <span class="none">–</span> : <State value={state} /> },
          ...(withRecipients ? [] : [{ title: t('notification.outcomes'), wide: true, cell: (listed: Listed) => <Counts counts={listed.counts} /> }]),
          { title: t('items.category'), wide: true, cell: ({ category }) => category === null ? <span class="none">–</span> : <code>{category}</code> },
        ]}
      />
    </>
  )
}

function Content({ listed: { id, title, text, recipients } }: { listed: Listed }) {
  // In the list of a user or a device, the link opens the story there.
  const device = recipients?.[0]?.device
  return (
    <>
      <a href={at('notification', device === undefined ? { id } : { id, device })}>{title || text || t('notifications.onlyData')}</a>
      {title && text && <small class="below">{text}</small>}
    </>
  )
}

function Target({ listed: { target, targets, campaign } }: { listed: Listed }) {
  const what = tValue('target', target.kind)
  if (target.topic !== undefined) return <>{what}<span class="below"><a href={at('topic', { id: target.topic })}>{target.topic}</a></span></>
  if (target.condition !== undefined) return <>{what}<span class="below"><code>{target.condition}</code></span></>
  if (target.kind === 'campaign' && campaign !== null) return <a href={at('campaign', { id: campaign })}>{what}</a>
  return (
    <>
      {targets === null ? what : `${what}: ${number(targets)}`}
      {campaign !== null && <small class="below"><a href={at('campaign', { id: campaign })}>{t('notifications.ofCampaign')}</a></small>}
    </>
  )
}

function Recipients({ listed: { id, recipients } }: { listed: Listed }) {
  if (!recipients?.length) return <span class="none">{t('notifications.noStep')}</span>
  return (
    <ul class="bare-list">
      {recipients.map(({ device, outcome, at: when, reason, in_inbox: waits }) => (
        <li key={device}>
          <a class="mono" href={at('notification', { id, device })}>{device}</a>{' '}
          {outcome === null ? !waits && <span class="none">{t('notifications.noStep')}</span> : <Outcome value={outcome} />}{' '}
          {waits && outcome !== 'kept' && <span class="soft">{t('story.inInbox')}</span>}{' '}
          {reason && <code>{reason}</code>} {when && <When at={when} />}
        </li>
      ))}
    </ul>
  )
}

const SHOWN = 3

function Counts({ counts }: { counts: Listed['counts'] }) {
  if (counts === null) return <span class="soft">{t('notifications.tooMany')}</span>
  const parts = Object.entries(counts).sort(([, a], [, b]) => b - a)
  if (parts.length === 0) return <span class="none">–</span>
  return <>{parts.slice(0, SHOWN).map(([outcome, count]) => `${tValue('outcome', outcome)} ${number(count)}`).join(' · ')}{parts.length > SHOWN && ' …'}</>
}
