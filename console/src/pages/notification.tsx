/** A notification: its state and counts, and its story on one device. */

import { body, provider, type Schemas } from '../api/client'
import { perform } from '../app/action'
import { duration, millis, number } from '../app/format'
import { useLoad } from '../app/load'
import { place } from '../app/router'
import { app, at, refusal } from '../app/session'
import { language, t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge, outcomeTone, State } from '../ui/badge'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Id } from '../ui/copy'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Head, Section } from '../ui/head'
import { Bars } from '../ui/progress'
import { Skeleton } from '../ui/skeleton'
import { type Step, Timeline } from '../ui/timeline'
import { When } from '../ui/when'
import { DeviceChoice } from './device-choice'
import { LiveLink } from './live-link'

const REFRESH_MS = 5000

export default function Notification() {
  const id = place.value.query.get('id') ?? ''
  const device = place.value.query.get('device') ?? ''
  const path = { params: { path: { id } } }
  const load = useLoad(`notification ${app.value} ${id}`, () => body(provider.GET('/v1/notifications/{id}', path)), REFRESH_MS)
  const state = load.data

  async function cancel(): Promise<void> {
    if (!(await ask({ title: t('notification.cancel'), text: t('notification.cancel.text'), confirm: t('notification.cancel') }))) return
    if (await perform(() => provider.DELETE('/v1/notifications/{id}', path), t('notification.cancelled'))) load.reload()
  }

  return (
    <>
      <Head kind={t('kind.notification')} title={id} badge={state && <State value={state.state} />}>
        <LiveLink notification={id} />
        {state?.state === 'pending' && <Button kind="danger" reason={refusal('publish')} onClick={() => void cancel()}>{t('notification.cancel')}</Button>}
      </Head>
      <ErrorBox error={load.error} retry={load.reload} />
      {!state && !load.error && <Skeleton rows={5} />}
      {state && <Summary state={state} />}
      {state && <Story id={id} device={device} />}
    </>
  )
}

function targetText({ kind, topic, condition }: Schemas['NotificationState']['target']): string {
  return [tValue('target', kind), topic ?? condition].filter(Boolean).join(': ')
}

function Summary({ state }: { state: Schemas['NotificationState'] }) {
  const counts = Object.entries(state.counts).sort(([, a], [, b]) => b - a)
  return (
    <div class="split">
      <Facts facts={[
        [t('notification.id'), <Id value={state.id} />],
        [t('notification.target'), targetText(state.target)],
        [t('notification.targets'), state.targets === null ? t('notification.unknown') : number(state.targets)],
        [t('notification.when'), tValue('when', state.when)],
        [t('notification.urgency'), tValue('urgency', state.urgency)],
        state.category !== null && [t('items.category'), <code>{state.category}</code>],
        state.collapse_key !== null && [t('notification.collapse'), <code>{state.collapse_key}</code>],
        [t('notification.sent'), <When at={state.sent_at} exact />],
        [t('column.expires'), <When at={state.expires_at} exact />],
        state.trace ? [t('notification.trace'), <Id value={state.trace} />] : undefined,
      ]} />
      <div>
        <h2 class="small-head">{t('notification.outcomes')}</h2>
        {counts.length === 0
          ? <p class="soft">{t('notification.noOutcome')}</p>
          : <Bars label={t('notification.outcomes')} whole={state.targets ?? undefined} bars={counts.map(([outcome, value]) => ({ label: tValue('outcome', outcome), value, tone: outcomeTone(outcome) }))} />}
      </div>
    </div>
  )
}

function Story({ id, device }: { id: string; device: string }) {
  return (
    <Section title={t('story.title')}>
      <DeviceChoice />
      {device ? <Trace key={device} id={id} device={device} /> : <Empty icon="device" title={t('story.empty')} text={t('story.empty.text')} />}
    </Section>
  )
}

type Trace = Schemas['Trace']

function Trace({ id, device }: { id: string; device: string }) {
  const load = useLoad(`trace ${app.value} ${id} ${device}`, () => body(provider.GET('/v1/notifications/{id}/devices/{device}', { params: { path: { id, device } } })), REFRESH_MS)
  const trace = load.data
  const last = trace?.steps.at(-1)
  if (!trace) return load.error ? <ErrorBox error={load.error} retry={load.reload} /> : <Skeleton />
  return (
    <>
      <div class="story-summary">
        {/* The server's sentences are in English. */}
        {language.value !== 'en' && last && <p><strong>{tValue('outcome', last.outcome)}</strong></p>}
        <p class="lines" lang="en">{trace.summary}</p>
        <p class="chips">
          <a href={at('device', { id: device })}>{t('story.device')}</a>
          <Badge tone={trace.connected ? 'good' : 'muted'}>{trace.connected ? t('story.connected') : t('story.notConnected')}</Badge>
          {trace.in_inbox && <Badge tone="info">{t('story.inInbox')}</Badge>}
          {trace.subscribed && <Badge tone="info">{t('story.subscribed')}</Badge>}
          {trace.reason && <Badge tone="warn">{tValue('reason', trace.reason)}</Badge>}
        </p>
      </div>
      {trace.steps.length === 0 && !trace.attempts?.length
        ? <p class="soft">{t('story.noStep')}</p>
        : <Timeline steps={[...trace.steps.map(outcomeStep), ...(trace.attempts ?? []).map(attemptStep)].sort((a, b) => millis(a.at) - millis(b.at))} />}
    </>
  )
}

const outcomeStep = (step: Trace['steps'][number]): Step => ({
  at: step.at,
  tone: outcomeTone(step.outcome),
  title: tValue('outcome', step.outcome),
  lang: 'en',
  text: step.reason ? `${step.explain} (${step.reason})` : step.explain,
})

function attemptStep(attempt: NonNullable<Trace['attempts']>[number]): Step {
  const { response } = attempt
  const good = response !== undefined && response.status < 300
  return {
    at: attempt.sent_at,
    tone: good ? 'good' : 'bad',
    title: response ? t('attempt.answered', { status: String(response.status) }) : t('attempt.unanswered'),
    text: [attempt.reason, t('attempt.took', { time: duration(attempt.took_ms) })].filter(Boolean).join(' · '),
    body: (
      <details class="attempt">
        <summary>{t('attempt.record')}</summary>
        <CodeBlock label={t('attempt.url')} value={`POST ${attempt.url}\n${Object.entries(attempt.headers).map(([name, value]) => `${name}: ${value}`).join('\n')}`} />
        <CodeBlock label={t('attempt.payload')} value={attempt.body ?? null} />
        {response?.body !== undefined && <CodeBlock label={t('attempt.response')} value={response.body} />}
      </details>
    ),
  }
}
