/** Everything about one device. */

import { useState } from 'preact/hooks'

import { body, provider, type Schemas } from '../api/client'
import { perform, useAction } from '../app/action'
import { useLoad } from '../app/load'
import { amend, go, place } from '../app/router'
import { app, at, isFront, refusal, testRefusal } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge, State } from '../ui/badge'
import { Button } from '../ui/button'
import { Id } from '../ui/copy'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Select, TextField } from '../ui/field'
import { Head } from '../ui/head'
import { Skeleton } from '../ui/skeleton'
import { Tabs } from '../ui/tabs'
import { Day, When } from '../ui/when'
import { DeviceVariants } from './device-variants'
import { EndpointTable } from './endpoint-table'
import { LiveLink } from './live-link'
import { PreferencesPanel } from './preferences'
import { RecentNotifications } from './recent-notifications'
import { TestMessage } from './test-message'
import { TokenTable } from './token-table'
import { TopicList } from './topic-list'

const REFRESH_MS = 15_000

export default function Device() {
  const id = place.value.query.get('id') ?? ''
  const params = { params: { path: { device: id } } }
  const [testing, setTesting] = useState(false)
  const load = useLoad(`device ${app.value} ${id}`, () => body(provider.GET('/v1/devices/{device}', params)), REFRESH_MS)
  const device = load.data
  const reason = refusal('devices')

  async function revoke(): Promise<void> {
    if (!(await ask({ title: t('device.revoke'), text: t('device.revoke.text'), confirm: t('device.revoke') }))) return
    if (await perform(() => provider.POST('/v1/devices/{device}/revoke', params), t('device.revoked'))) load.reload()
  }
  async function remove(): Promise<void> {
    if (!(await ask({ title: t('device.delete'), text: t('device.delete.text'), confirm: t('action.delete'), typed: id }))) return
    if (await perform(() => provider.DELETE('/v1/devices/{device}', params), t('device.deleted'))) go(at('devices'))
  }

  if (!device) return <><Head kind={t('kind.device')} title={id} />{load.error ? <ErrorBox error={load.error} retry={load.reload} /> : <Skeleton rows={6} />}</>
  const tokens = { ...load, data: device.push_tokens.map((token) => ({ device: id, token })) }
  return (
    <>
      <Head kind={t('kind.device')} title={id} badge={<State value={device.presence} />}>
        <Button kind="primary" icon="send" reason={testRefusal()} onClick={() => setTesting(true)}>{t('test.action')}</Button>
        <LiveLink device={id} />
        <Button reason={reason} onClick={() => void revoke()}>{t('device.revoke')}</Button>
        <Button kind="danger" reason={reason} onClick={() => void remove()}>{t('action.delete')}</Button>
      </Head>
      <ErrorBox error={load.error} retry={load.reload} />
      <Facts facts={[
        [t('kind.device'), <Id value={device.device} />],
        [t('kind.user'), device.user !== null && <a href={at('user', { id: device.user })}>{device.user}</a>],
        [t('device.platform'), device.platform && tValue('platform', device.platform)],
        [t('device.version'), device.app_version],
        [t('device.locale'), device.locale],
        [t('device.timezone'), device.timezone],
        [t('column.created'), <When at={device.created_at} exact />],
        [t('device.lastSeen'), <Day day={device.last_seen} none={t('device.neverSeen')} />],
        device.push_suspect ? [t('device.push'), <><Badge tone="warn">{t('device.suspect')}</Badge> <code>{device.push_suspect.reason}</code> <When at={device.push_suspect.at} /></>] : undefined,
        Object.keys(device.tags).length > 0 && [t('device.tags'), <span class="chips">{Object.entries(device.tags).map(([name, value]) => <code key={name}>{name}={value}</code>)}</span>],
        device.endpoints ? [t('device.endpoints'), device.endpoints] : undefined,
      ]} />
      <Tabs
        label={t('device.tabs')}
        chosen={place.value.query.get('tab') ?? 'tokens'}
        onChoose={(tab) => amend({ tab })}
        tabs={[
          { id: 'tokens', label: t('tokens.title'), count: device.push_tokens.length, body: () => <TokenTable load={tokens} withDevice={false} deviceLink={(other) => at('device', { id: other })} /> },
          { id: 'notifications', label: t('notifications.recent'), body: () => <RecentNotifications device={id} /> },
          { id: 'topics', label: t('topics.subscriptions'), count: device.topics.length, body: () => <TopicList topics={device.topics.map((topic) => [topic, 0])} /> },
          { id: 'endpoints', label: t('endpoints.tab'), count: device.endpoints, body: () => <EndpointTable devices={[id]} withDevice={false} /> },
          { id: 'preferences', label: t('preferences.title'), body: () => <PreferencesPanel whose={{ device: id }} /> },
          ...(isFront() ? [] : [{ id: 'variants', label: t('page.experiments'), body: () => <DeviceVariants device={id} /> }]),
          { id: 'permission', label: t('permission.check'), body: () => <PermissionCheck device={id} /> },
        ]}
      />
      {testing && <TestMessage to={{ devices: [id] }} name={id} onClose={() => setTesting(false)} />}
    </>
  )
}

/** Whether this device may use a topic, and which rule decides. */
function PermissionCheck({ device }: { device: string }) {
  const [topic, setTopic] = useState('')
  const [action, setAction] = useState<'subscribe' | 'publish'>('subscribe')
  const [answer, setAnswer] = useState<Schemas['TopicPermission'] | undefined>(undefined)
  /** The answer is about what was asked, not about what stands there now. */
  const changed = <T,>(set: (value: T) => void) => (value: T): void => {
    setAnswer(undefined)
    set(value)
  }
  const check = useAction(async () => {
    const params = { path: { device, topic }, query: { action } }
    setAnswer(await body(provider.GET('/v1/devices/{device}/topics/{topic}/permission', { params })))
  })
  return (
    <form class="stack narrow" onSubmit={(event) => { event.preventDefault(); void check.run() }}>
      <TextField label={t('kind.topic')} value={topic} onChange={changed(setTopic)} required mono />
      <Select label={t('permission.action')} value={action} onChange={changed(setAction)} options={(['subscribe', 'publish'] as const).map((value) => ({ value, label: tValue('topic.action', value) }))} />
      <div class="row"><Button type="submit" busy={check.busy}>{t('permission.ask')}</Button></div>
      <ErrorBox error={check.error} />
      {answer && (
        <div role="status">
          <Facts facts={[
            [t('permission.decision'), <Badge tone={answer.decision === 'allowed' ? 'good' : answer.decision === 'denied' ? 'bad' : 'warn'}>{tValue('decision', answer.decision)}</Badge>],
            [t('permission.why'), <span lang="en">{answer.detail}</span>],
            answer.rule ? [t('permission.rule'), <><span>{answer.rule.number}. </span><code>{answer.rule.topic}</code> → {tValue('allow', answer.rule.allow)}</>] : undefined,
          ]} />
        </div>
      )}
    </form>
  )
}
