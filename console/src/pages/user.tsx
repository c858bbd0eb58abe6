/** Everything about one user. */

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'

import { body, provider, type Schemas } from '../api/client'
import { perform } from '../app/action'
import { useLoad } from '../app/load'
import { amend, place } from '../app/router'
import { app, at, refusal, testRefusal } from '../app/session'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { State } from '../ui/badge'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Head } from '../ui/head'
import { Skeleton } from '../ui/skeleton'
import { Tabs } from '../ui/tabs'
import { DeviceTable, useDevices } from './device-table'
import { EndpointTable } from './endpoint-table'
import { ItemTable } from './item-table'
import { LiveLink } from './live-link'
import { PreferencesPanel } from './preferences'
import { RecentNotifications } from './recent-notifications'
import { TestMessage } from './test-message'
import { TokenTable } from './token-table'
import { TopicList } from './topic-list'

type Device = Schemas['Device']

const PRESENCE_MS = 10_000

export default function User() {
  const user = place.value.query.get('id') ?? ''
  const [testing, setTesting] = useState(false)
  const devices = useDevices({ user })
  const presence = useLoad(`presence ${app.value} ${user}`, async () => (await body(provider.POST('/v1/presence', { body: { users: [user] } }))).users[user], PRESENCE_MS)
  const reason = refusal('devices')

  async function revoke(): Promise<void> {
    if (!(await ask({ title: t('user.revoke'), text: t('user.revoke.text', { user }), confirm: t('user.revoke') }))) return
    if (await perform(() => provider.POST('/v1/users/{user}/revoke', { params: { path: { user } } }), t('user.revoked'))) devices.reload()
  }

  const isPart = devices.next !== undefined || devices.previous !== undefined
  /** The tabs about devices show those of the present page of devices. */
  const ofDevices = (show: (devices: Device[]) => ComponentChildren) => {
    if (!devices.data) return devices.error ? <ErrorBox error={devices.error} retry={devices.reload} /> : <Skeleton rows={4} />
    return <>{isPart && <p class="soft">{t('user.part', { page: devices.number })}</p>}{show(devices.data)}</>
  }
  const tokens = { ...devices, data: devices.data?.flatMap(({ device, push_tokens }) => push_tokens.map((token) => ({ device, token }))) }
  const topics = new Map<string, number>()
  for (const device of devices.data ?? []) for (const topic of device.topics) topics.set(topic, (topics.get(topic) ?? 0) + 1)

  return (
    <>
      <Head kind={t('kind.user')} title={user} badge={presence.data && <State value={presence.data.presence} />}>
        <Button kind="primary" icon="send" reason={testRefusal()} onClick={() => setTesting(true)}>{t('test.action')}</Button>
        <LiveLink user={user} />
        <Button kind="danger" reason={reason} onClick={() => void revoke()}>{t('user.revoke')}</Button>
      </Head>
      <Tabs
        label={t('user.tabs')}
        chosen={place.value.query.get('tab') ?? 'devices'}
        onChoose={(tab) => amend({ tab })}
        tabs={[
          { id: 'devices', label: t('page.devices'), count: isPart ? undefined : devices.data?.length, body: () => <DeviceTable load={devices} withUser={false} empty={<Empty icon="device" title={t('devices.noneOfUser', { user })} text={t('devices.noneOfUser.text')} />} /> },
          { id: 'notifications', label: t('notifications.recent'), body: () => <RecentNotifications user={user} /> },
          { id: 'items', label: t('items.title'), body: () => <ItemTable user={user} /> },
          { id: 'tokens', label: t('tokens.title'), count: isPart ? undefined : tokens.data?.length, body: () => ofDevices(() => <TokenTable load={tokens} withDevice deviceLink={(device) => at('device', { id: device })} />) },
          { id: 'topics', label: t('topics.subscriptions'), count: isPart ? undefined : devices.data && topics.size, body: () => ofDevices(() => <TopicList topics={[...topics].sort(([a], [b]) => a.localeCompare(b))} />) },
          { id: 'endpoints', label: t('endpoints.tab'), body: () => ofDevices((shown) => <EndpointTable devices={shown.map(({ device }) => device)} withDevice />) },
          { id: 'preferences', label: t('preferences.title'), body: () => <PreferencesPanel whose={{ user }} /> },
        ]}
      />
      {testing && <TestMessage to={{ users: [user] }} name={user} onClose={() => setTesting(false)} />}
    </>
  )
}
