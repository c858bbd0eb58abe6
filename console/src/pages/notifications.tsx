/** The notifications of the app, newest first. */

import { useState } from 'preact/hooks'

import { amend, place } from '../app/router'
import { t, tValue } from '../i18n'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Empty } from '../ui/empty'
import { FilterField, FilterSelect } from '../ui/filter'
import { Head } from '../ui/head'
import { NOTIFICATION_FILTERS, type NotificationFilters, NotificationTable, useNotifications } from './notification-table'

const TARGETS = ['users', 'devices', 'topic', 'condition', 'everyone', 'campaign'] as const
const URGENCIES = ['very-low', 'low', 'normal', 'high'] as const

const asked = (): NotificationFilters =>
  Object.fromEntries(NOTIFICATION_FILTERS.map((name) => [name, place.value.query.get(name) ?? '']).filter(([, value]) => value !== ''))

export default function Notifications() {
  const filters = asked()
  const [typed, setTyped] = useState<NotificationFilters>(filters)
  const load = useNotifications(filters)
  const isFiltered = Object.keys(filters).length > 0
  function filter(chosen: NotificationFilters): void {
    setTyped(chosen)
    amend(Object.fromEntries(NOTIFICATION_FILTERS.map((name) => [name, chosen[name]?.trim() || undefined])))
  }
  const bound = (name: keyof NotificationFilters) => ({ value: typed[name] ?? '', onChange: (value: string) => setTyped({ ...typed, [name]: value }) })
  return (
    <>
      <Head title={t('page.notifications')} text={t('notifications.lead')} />
      <form class="filters" onSubmit={(event) => { event.preventDefault(); filter(typed) }}>
        <FilterField label={t('kind.user')} {...bound('user')} />
        <FilterField label={t('kind.device')} {...bound('device')} />
        <FilterField label={t('kind.topic')} {...bound('topic')} />
        <FilterField label={t('items.category')} {...bound('category')} />
        <FilterField label={t('notifications.campaign')} {...bound('campaign')} />
        <FilterSelect label={t('notification.target')} {...bound('target')} all={t('filter.all')} options={TARGETS.map((value) => ({ value, label: tValue('target', value) }))} />
        <FilterSelect label={t('notification.urgency')} {...bound('urgency')} all={t('filter.all')} options={URGENCIES.map((value) => ({ value, label: tValue('urgency', value) }))} />
        <FilterField label={t('audit.since')} type="datetime-local" {...bound('since')} />
        <FilterField label={t('audit.until')} type="datetime-local" {...bound('until')} />
        <Button type="submit">{t('action.filter')}</Button>
        {isFiltered && <Button kind="quiet" onClick={() => filter({})}>{t('action.clearFilter')}</Button>}
      </form>
      <NotificationTable
        load={load}
        withRecipients={filters.user !== undefined || filters.device !== undefined}
        empty={isFiltered
          ? <Empty icon="bell" title={t('notifications.none')} text={t('notifications.none.text')} />
          : <Empty icon="bell" title={t('notifications.empty')} text={t('notifications.empty.text')}><CodeBlock label={t('devices.command')} value={'noroshi publish --user u1 --title "Hello"'} /></Empty>}
      />
    </>
  )
}
