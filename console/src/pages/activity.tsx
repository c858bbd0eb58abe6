/** A Live Activity: its state, its progress, and one device of it. */

import { useState } from 'preact/hooks'

import { body, provider, type Schemas } from '../api/client'
import { perform, useAction } from '../app/action'
import { number } from '../app/format'
import { useLoad } from '../app/load'
import { place } from '../app/router'
import { app, refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge, Outcome, outcomeTone, State } from '../ui/badge'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { TextArea } from '../ui/field'
import { Head, Section } from '../ui/head'
import { Bars, Progress } from '../ui/progress'
import { Skeleton } from '../ui/skeleton'
import { When } from '../ui/when'
import { DeviceChoice } from './device-choice'
import { parseObject } from './json'

type Activity = Schemas['Activity']

const REFRESH_MS = 5000

export default function ActivityPage() {
  const id = place.value.query.get('id') ?? ''
  const path = { params: { path: { id } } }
  const [updating, setUpdating] = useState(false)
  const load = useLoad(`activity ${app.value} ${id}`, () => body(provider.GET('/v1/activities/{id}', path)), REFRESH_MS)
  const activity = load.data
  const reason = refusal('publish')

  async function end(): Promise<void> {
    if (!(await ask({ title: t('activity.end'), text: t('activity.end.text'), confirm: t('activity.end') }))) return
    if (await perform(() => provider.DELETE('/v1/activities/{id}', { ...path, body: {} }), t('activity.ended'))) load.reload()
  }

  if (!activity) return <><Head kind={t('kind.activity')} title={id} />{load.error ? <ErrorBox error={load.error} retry={load.reload} /> : <Skeleton rows={6} />}</>
  return (
    <>
      <Head kind={t('kind.activity')} title={id} badge={<State value={activity.state} of="state.activity" />}>
        {activity.state === 'active' && <Button kind="primary" reason={reason} onClick={() => setUpdating(true)}>{t('activity.update')}</Button>}
        {activity.state === 'active' && <Button kind="danger" reason={reason} onClick={() => void end()}>{t('activity.end')}</Button>}
      </Head>
      <ErrorBox error={load.error} retry={load.reload} />
      {activity.progress && (
        <div class="panel"><Progress label={t('activity.progress', { version: activity.version })} done={activity.progress.current} total={activity.progress.current + activity.progress.waiting} /></div>
      )}
      <div class="split">
        <View activity={activity} />
        <div>
          <CodeBlock label={t('activity.state')} value={activity.content_state} />
          {activity.progress && activity.progress.reasons.length > 0 && (
            <Bars label={t('campaign.reasons')} bars={activity.progress.reasons.map(({ outcome, reason: why, count }) => ({ label: [tValue('outcome', outcome), why].filter(Boolean).join(' · '), value: count, tone: outcomeTone(outcome) }))} />
          )}
        </div>
      </div>
      <DeviceOf id={id} />
      {updating && <Update activity={activity} onClose={() => { setUpdating(false); load.reload() }} />}
    </>
  )
}

function View({ activity }: { activity: Activity }) {
  return (
    <Facts facts={[
      [t('activities.type'), <code>{activity.attributes_type}</code>],
      [t('activities.version'), number(activity.version)],
      [t('page.devices'), number(activity.devices)],
      [t('activities.join'), tValue('join', activity.join)],
      [t('notification.when'), tValue('when', activity.when)],
      [t('activity.highLeft'), number(activity.high_priority_left)],
      [t('column.created'), <When at={activity.created_at} exact />],
      [t('activities.updated'), <When at={activity.updated_at} exact />],
      [t('column.expires'), <When at={activity.expires_at} exact />],
      activity.ended_at !== null && [t('activity.endedAt'), <When at={activity.ended_at} exact />],
      activity.stale_date !== null && [t('activity.stale'), <When at={activity.stale_date} exact />],
    ]} />
  )
}

function Update({ activity, onClose }: { activity: Activity; onClose(): void }) {
  const [text, setText] = useState(JSON.stringify(activity.content_state ?? {}, null, 2))
  const update = useAction(async () => {
    const state = parseObject(text)
    await provider.PATCH('/v1/activities/{id}', { params: { path: { id: activity.id } }, body: { content_state: state as Record<string, never> } })
  })
  return (
    <FormDialog title={t('activity.update')} submit={t('activity.update')} busy={update.busy} error={update.error} onClose={onClose} onSubmit={() => void update.run().then((done) => done && onClose())}>
      <TextArea label={t('activity.state')} hint={t('field.json')} value={text} onChange={setText} rows={10} mono required />
    </FormDialog>
  )
}

function DeviceOf({ id }: { id: string }) {
  const device = place.value.query.get('device') ?? ''
  return (
    <Section title={t('story.title')}>
      <DeviceChoice />
      {device ? <Trace key={device} id={id} device={device} /> : <Empty icon="device" title={t('story.empty')} text={t('activity.device.text')} />}
    </Section>
  )
}

function Trace({ id, device }: { id: string; device: string }) {
  const load = useLoad(`trace ${app.value} ${id} ${device}`, () => body(provider.GET('/v1/activities/{id}/devices/{device}', { params: { path: { id, device } } })), REFRESH_MS)
  const trace = load.data
  if (!trace) return load.error ? <ErrorBox error={load.error} retry={load.reload} /> : <Skeleton />
  return (
    <>
      <p class="lines story-summary" lang="en">{trace.summary}</p>
      <Facts facts={[
        [t('column.state'), <Badge tone="info">{tValue('activity.device', trace.state)}</Badge>],
        [t('activities.version'), `${number(trace.version)} / ${number(trace.current_version)}`],
        trace.outcome ? [t('activity.outcome'), <><Outcome value={trace.outcome} /> {trace.reason && <code>{trace.reason}</code>}</>] : undefined,
        [t('activity.sentAt'), trace.sent_at && <When at={trace.sent_at} exact />],
        trace.due_at !== null && [t('activity.dueAt'), <When at={trace.due_at} exact />],
      ]} />
    </>
  )
}
