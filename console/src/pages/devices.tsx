/** The devices of the app. */

import { t, tValue } from '../i18n'
import { CodeBlock } from '../ui/code'
import { Empty } from '../ui/empty'
import { FilterField, FilterForm, FilterSelect } from '../ui/filter'
import { Head } from '../ui/head'
import { SEEN } from './day-seen'
import { DEVICE_FILTERS, type DeviceFilters, DeviceTable, useDevices } from './device-table'
import { useFilters } from './filters'

const PLATFORMS = ['ios', 'android', 'web', 'console', 'other'] as const
const TOKENS = ['any', 'usable', 'suspended', 'none'] as const
const SERVICES = ['apns', 'fcm', 'webpush', 'hms', 'wns', 'webhook'] as const

export default function Devices() {
  const { applied, isFiltered, typed, field, apply } = useFilters(DEVICE_FILTERS)
  const load = useDevices(applied)
  return (
    <>
      <Head title={t('page.devices')} text={t('devices.lead')} />
      <FilterForm
        isFiltered={isFiltered}
        // A device without a token has none of any service.
        onApply={() => apply(typed.token === 'none' ? { ...typed, service: '' } : typed)}
        onClear={() => apply({})}
      >
        <FilterField label={t('devices.ofUser')} {...field('user')} />
        <FilterSelect label={t('device.platform')} {...field('platform')} all={t('filter.all')} options={PLATFORMS.map((value) => ({ value, label: tValue('platform', value) }))} />
        <FilterSelect label={t('devices.token')} {...field('token')} all={t('filter.all')} options={TOKENS.map((value) => ({ value, label: tValue('devices.token', value) }))} />
        <FilterSelect label={t('devices.service')} {...field('service')} all={t('filter.all')} options={SERVICES.map((value) => ({ value, label: tValue('service', value) }))} />
        <FilterSelect label={t('device.lastSeen')} {...field('seen')} all={t('filter.all')} options={SEEN.map((value) => ({ value, label: tValue('devices.seen', value) }))} />
      </FilterForm>
      <DeviceTable load={load} empty={nothing(applied)} />
    </>
  )
}

function nothing(filters: DeviceFilters) {
  const names = Object.keys(filters)
  if (names.length === 0) return <Empty icon="device" title={t('devices.empty')} text={t('devices.empty.text')}><CodeBlock label={t('devices.command')} value="noroshi devices register --device phone-1 --user u1" /></Empty>
  if (names.length === 1 && filters.user) return <Empty icon="device" title={t('devices.noneOfUser', { user: filters.user })} text={t('devices.noneOfUser.text')} />
  return <Empty icon="device" title={t('devices.none')} text={t(filters.seen ? 'devices.none.seen' : 'devices.none.text')} />
}
