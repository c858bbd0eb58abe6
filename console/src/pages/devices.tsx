/** The devices of the app. */

import { useState } from 'preact/hooks'

import { amend, place } from '../app/router'
import { t, tValue } from '../i18n'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Empty } from '../ui/empty'
import { FilterField, FilterSelect } from '../ui/filter'
import { Head } from '../ui/head'
import { SEEN } from './day-seen'
import { DEVICE_FILTERS, type DeviceFilters, DeviceTable, useDevices } from './device-table'

const PLATFORMS = ['ios', 'android', 'web', 'console', 'other'] as const
const TOKENS = ['any', 'usable', 'suspended', 'none'] as const
const SERVICES = ['apns', 'fcm', 'webpush', 'hms', 'wns', 'webhook'] as const

const asked = (): DeviceFilters =>
  Object.fromEntries(DEVICE_FILTERS.map((name) => [name, place.value.query.get(name) ?? '']).filter(([, value]) => value !== ''))

export default function Devices() {
  const filters = asked()
  const [typed, setTyped] = useState<DeviceFilters>(filters)
  const load = useDevices(filters)
  const names = Object.keys(filters)
  function filter(chosen: DeviceFilters): void {
    // A device without a token has none of any service.
    const wanted = chosen.token === 'none' ? { ...chosen, service: '' } : chosen
    setTyped(wanted)
    amend(Object.fromEntries(DEVICE_FILTERS.map((name) => [name, wanted[name]?.trim() || undefined])))
  }
  const bound = (name: keyof DeviceFilters) => ({ value: typed[name] ?? '', onChange: (value: string) => setTyped({ ...typed, [name]: value }) })
  return (
    <>
      <Head title={t('page.devices')} text={t('devices.lead')} />
      <form class="filters" onSubmit={(event) => { event.preventDefault(); filter(typed) }}>
        <FilterField label={t('devices.ofUser')} {...bound('user')} />
        <FilterSelect label={t('device.platform')} {...bound('platform')} all={t('filter.all')} options={PLATFORMS.map((value) => ({ value, label: tValue('platform', value) }))} />
        <FilterSelect label={t('devices.token')} {...bound('token')} all={t('filter.all')} options={TOKENS.map((value) => ({ value, label: tValue('devices.token', value) }))} />
        <FilterSelect label={t('devices.service')} {...bound('service')} all={t('filter.all')} options={SERVICES.map((value) => ({ value, label: tValue('service', value) }))} />
        <FilterSelect label={t('device.lastSeen')} {...bound('seen')} all={t('filter.all')} options={SEEN.map((value) => ({ value, label: tValue('devices.seen', value) }))} />
        <Button type="submit">{t('action.filter')}</Button>
        {names.length > 0 && <Button kind="quiet" onClick={() => filter({})}>{t('action.clearFilter')}</Button>}
      </form>
      <DeviceTable load={load} empty={nothing(filters, names)} />
    </>
  )
}

function nothing(filters: DeviceFilters, names: readonly string[]) {
  if (names.length === 0) return <Empty icon="device" title={t('devices.empty')} text={t('devices.empty.text')}><CodeBlock label={t('devices.command')} value="noroshi devices register --device phone-1 --user u1" /></Empty>
  if (names.length === 1 && filters.user) return <Empty icon="device" title={t('devices.noneOfUser', { user: filters.user })} text={t('devices.noneOfUser.text')} />
  return <Empty icon="device" title={t('devices.none')} text={t(filters.seen ? 'devices.none.seen' : 'devices.none.text')} />
}
