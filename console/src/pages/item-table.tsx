/** The notification centre of a user. */

import { useState } from 'preact/hooks'

import { body, provider, type Schemas } from '../api/client'
import { perform } from '../app/action'
import { pageAfter, useLoad, usePages } from '../app/load'
import { app, at, refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { State } from '../ui/badge'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { Segmented } from '../ui/segmented'
import { Table } from '../ui/table'
import { When } from '../ui/when'

type Item = Schemas['Item']
const FILTERS = ['all', 'unread', 'read', 'archived'] as const

export function ItemTable({ user }: { user: string }) {
  const [filter, setFilter] = useState<(typeof FILTERS)[number]>('all')
  const counts = useLoad(`counts ${app.value} ${user}`, () => body(provider.GET('/v1/users/{user}/items/counts', { params: { path: { user } } })))
  const load = usePages(`items ${app.value} ${user} ${filter}`, async (after) => {
    const query = { ...pageAfter(after), ...(filter === 'all' ? {} : { state: filter }) }
    const answer = await body(provider.GET('/v1/users/{user}/items', { params: { path: { user }, query } }))
    return { rows: answer.items, next: answer.next }
  })

  async function clear(): Promise<void> {
    if (!(await ask({ title: t('items.clear'), text: t('items.clear.text', { user }), confirm: t('items.clear') }))) return
    if (await perform(() => provider.DELETE('/v1/users/{user}/items', { params: { path: { user } } }), t('items.cleared'))) {
      load.reload()
      counts.reload()
    }
  }

  return (
    <>
      <div class="bar">
        <Segmented label={t('column.state')} value={filter} onChange={setFilter} options={FILTERS.map((value) => ({ value, label: value === 'all' ? t('filter.all') : tValue('state', value) }))} />
        {counts.data && <span class="soft">{t('items.unread', { count: counts.data.unread })}</span>}
        <Button kind="danger" small reason={refusal('devices')} onClick={() => void clear()}>{t('items.clear')}</Button>
      </div>
      <Table<Item>
        caption={t('items.title')}
        load={load}
        rowKey={({ id }) => id}
        empty={<Empty icon="bell" title={t('items.empty')} text={t('items.empty.text')} />}
        columns={[
          { title: t('items.item'), cell: (item) => <><a href={at('notification', { id: item.id })}>{item.notification?.title ?? item.id}</a>{item.notification?.body && <small class="below">{item.notification.body}</small>}</> },
          { title: t('column.state'), cell: (item) => <State value={item.state} /> },
          { title: t('items.category'), wide: true, cell: (item) => item.category ?? <span class="none">–</span> },
          { title: t('column.created'), cell: (item) => <When at={item.created_at} /> },
          { title: t('column.expires'), wide: true, cell: (item) => <When at={item.expires_at} /> },
        ]}
      />
    </>
  )
}
