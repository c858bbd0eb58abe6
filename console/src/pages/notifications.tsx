/** The notifications of the app, newest first. */

import { t, tValue } from '../i18n'
import { CodeBlock } from '../ui/code'
import { Empty } from '../ui/empty'
import { FilterField, FilterForm, FilterSelect } from '../ui/filter'
import { Head } from '../ui/head'
import { useFilters } from './filters'
import { NOTIFICATION_FILTERS, NotificationTable, useNotifications } from './notification-table'

const TARGETS = ['users', 'devices', 'topic', 'condition', 'everyone', 'campaign'] as const
const URGENCIES = ['very-low', 'low', 'normal', 'high'] as const

export default function Notifications() {
  const { applied, isFiltered, typed, field, apply } = useFilters(NOTIFICATION_FILTERS)
  const load = useNotifications(applied)
  return (
    <>
      <Head title={t('page.notifications')} text={t('notifications.lead')} />
      <FilterForm isFiltered={isFiltered} onApply={() => apply(typed)} onClear={() => apply({})}>
        <FilterField label={t('kind.user')} {...field('user')} />
        <FilterField label={t('kind.device')} {...field('device')} />
        <FilterField label={t('kind.topic')} {...field('topic')} />
        <FilterField label={t('items.category')} {...field('category')} />
        <FilterField label={t('notifications.campaign')} {...field('campaign')} />
        <FilterSelect label={t('notification.target')} {...field('target')} all={t('filter.all')} options={TARGETS.map((value) => ({ value, label: tValue('target', value) }))} />
        <FilterSelect label={t('notification.urgency')} {...field('urgency')} all={t('filter.all')} options={URGENCIES.map((value) => ({ value, label: tValue('urgency', value) }))} />
        <FilterField label={t('audit.since')} type="datetime-local" {...field('since')} />
        <FilterField label={t('audit.until')} type="datetime-local" {...field('until')} />
      </FilterForm>
      <NotificationTable
        load={load}
        withRecipients={applied.user !== undefined || applied.device !== undefined}
        empty={isFiltered
          ? <Empty icon="bell" title={t('notifications.none')} text={t('notifications.none.text')} />
          : <Empty icon="bell" title={t('notifications.empty')} text={t('notifications.empty.text')}><CodeBlock label={t('devices.command')} value={'noroshi send --user u1 --title "Hello"'} /></Empty>}
      />
    </>
  )
}
