/** The devices of the app. */

import { useState } from 'preact/hooks'

import { amend, place } from '../app/router'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Empty } from '../ui/empty'
import { Head } from '../ui/head'
import { DeviceTable, useDevices } from './device-table'

export default function Devices() {
  const user = place.value.query.get('user') ?? ''
  const [typed, setTyped] = useState(user)
  const load = useDevices(user)
  return (
    <>
      <Head title={t('page.devices')} text={t('devices.lead')} />
      <form class="filters" onSubmit={(event) => { event.preventDefault(); amend({ user: typed.trim() }) }}>
        <label class="filter">
          <span>{t('devices.ofUser')}</span>
          <input class="input" type="search" value={typed} autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        <Button type="submit">{t('action.filter')}</Button>
        {user && <Button kind="quiet" onClick={() => { setTyped(''); amend({ user: undefined }) }}>{t('action.clearFilter')}</Button>}
      </form>
      <DeviceTable
        load={load}
        empty={user
          ? <Empty icon="device" title={t('devices.noneOfUser', { user })} text={t('devices.noneOfUser.text')} />
          : <Empty icon="device" title={t('devices.empty')} text={t('devices.empty.text')}><CodeBlock label={t('devices.command')} value="noroshi devices register --device phone-1 --user u1" /></Empty>}
      />
    </>
  )
}
