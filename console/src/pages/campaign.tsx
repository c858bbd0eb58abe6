/** A campaign: progress with rate, funnel, errors and suppressed messages by reason, variants; pause, resume, abort, discard. */

import { useEffect, useMemo, useState } from 'preact/hooks'

import { body, provider, type Schemas } from '../api/client'
import { perform } from '../app/action'
import { duration, number } from '../app/format'
import { useLoad } from '../app/load'
import { go, place } from '../app/router'
import { app, at, refusal } from '../app/session'
import { language, t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { outcomeTone, State } from '../ui/badge'
import { Button } from '../ui/button'
import { Chart } from '../ui/chart'
import { CodeBlock } from '../ui/code'
import { Id } from '../ui/copy'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Head, Section } from '../ui/head'
import { type Bar, Bars, Progress } from '../ui/progress'
import { Skeleton } from '../ui/skeleton'
import { When } from '../ui/when'
import { audienceText, messageTitle } from './campaign-text'
import { Variants } from './campaign-variants'
import { Review } from './compose-review'
import { LiveLink } from './live-link'
import { type Samples, sampled } from './rate-samples'

type Campaign = Schemas['Campaign']

const REFRESH_MS = 2000

export default function CampaignPage() {
  const id = place.value.query.get('id') ?? ''
  const load = useLoad(`campaign ${app.value} ${id}`, () => body(provider.GET('/v1/campaigns/{id}', { params: { path: { id } } })), REFRESH_MS)
  const campaign = load.data
  if (!campaign) return <><Head kind={t('kind.campaign')} title={id} />{load.error ? <ErrorBox error={load.error} retry={load.reload} /> : <Skeleton rows={8} />}</>
  return (
    <>
      <Head kind={t('kind.campaign')} title={campaign.name ?? messageTitle(campaign) ?? id} badge={<State value={campaign.state} />}>
        {campaign.state !== 'draft' && <LiveLink campaign={id} />}
        <Actions campaign={campaign} reload={load.reload} />
      </Head>
      <ErrorBox error={load.error} retry={load.reload} />
      {campaign.state === 'draft' && <Review campaign={campaign} reload={load.reload} />}
      {campaign.state !== 'draft' && <ProgressView campaign={campaign} />}
      {campaign.state === 'running' && <RateChart key={id} campaign={campaign} />}
      {campaign.state !== 'draft' && <div class="split">
        <Section title={t('campaign.funnel')}>
          <Bars label={t('campaign.funnel')} bars={funnel(campaign)} whole={campaign.total ?? campaign.recipients} />
        </Section>
        <Section title={t('campaign.reasons')}>
          <Reasons label={t('campaign.reasons')} rows={campaign.reasons.filter(({ outcome }) => ERRORS.has(outcome))} none={t('campaign.noError')} />
        </Section>
      </div>}
      {campaign.state !== 'draft' && <div class="split">
        <Section title={t('campaign.suppressed')}>
          <Reasons label={t('campaign.suppressed')} rows={campaign.reasons.filter(({ outcome }) => SUPPRESSED.has(outcome))} none={t('campaign.noSuppressed')} />
        </Section>
        <Section title={t('campaign.outcomes')}>
          <Reasons label={t('campaign.outcomes')} rows={campaign.reasons} none={t('campaign.noReason')} />
        </Section>
      </div>}
      {campaign.experiment && <Variants experiment={campaign.experiment} />}
      <div class="split">
        <Section title={t('campaign.plan')}><Plan campaign={campaign} /></Section>
        <Section title={t('campaign.message')}><CodeBlock label={t('campaign.message')} value={campaign.definition?.['message'] ?? campaign.message} /></Section>
      </div>
    </>
  )
}

/** Outcomes of devices that no push service accepted. */
const ERRORS = new Set<string>(['push_refused', 'push_token_gone', 'push_token_suspect', 'push_not_configured', 'push_expired', 'evicted', 'slow'])
/** Devices that were left out on purpose, or have nothing to receive it with. */
const SUPPRESSED = new Set<string>(['no_push_token', 'push_not_needed', 'muted', 'channel_off', 'quiet', 'capped', 'push_muted', 'push_channel_off', 'push_capped', 'held_out', 'cancelled', 'unknown'])

function Reasons({ label, rows, none }: { label: string; rows: Campaign['reasons']; none: string }) {
  if (rows.length === 0) return <p class="soft">{none}</p>
  const bars = rows.map(({ outcome, reason, count }) => ({ label: [tValue('outcome', outcome), reason].filter(Boolean).join(' · '), value: count, tone: outcomeTone(outcome) }))
  return <Bars label={label} bars={bars} whole={rows.reduce((sum, { count }) => sum + count, 0)} />
}

/** The rate since the page was opened: one value for each answer. */
function RateChart({ campaign }: { campaign: Campaign }) {
  const [samples, setSamples] = useState<Samples>({ from: 0, points: [] })
  useEffect(() => setSamples((before) => sampled(before, campaign.rate_per_second, Date.now(), REFRESH_MS)), [campaign])
  // The same array while nothing changes, or the chart would be drawn again.
  const lines = useMemo(() => [{ label: t('campaign.rate'), points: [...samples.points] }], [samples, language.value])
  // Two values make a line.
  if (samples.points.length < 2) return null
  return <Chart title={t('campaign.rateChart')} unit="per_second" from={samples.from} stepMs={REFRESH_MS} lines={lines} area />
}

function Actions({ campaign: { id, state }, reload }: { campaign: Campaign; reload(): void }) {
  const path = { params: { path: { id } } }
  const reason = refusal('publish')
  const change = async (work: () => Promise<unknown>, done: string): Promise<void> => {
    if (await perform(work, done)) reload()
  }
  async function pause(): Promise<void> {
    if (await ask({ title: t('campaign.pause'), text: t('campaign.pause.text'), confirm: t('campaign.pause'), danger: false })) {
      await change(() => provider.POST('/v1/campaigns/{id}/pause', path), t('campaign.paused'))
    }
  }
  async function resume(): Promise<void> {
    if (await ask({ title: t('campaign.resume'), text: t('campaign.resume.text'), confirm: t('campaign.resume'), danger: false })) {
      await change(() => provider.POST('/v1/campaigns/{id}/resume', path), t('campaign.resumed'))
    }
  }
  async function discard(): Promise<void> {
    if (await ask({ title: t('campaign.discard.confirm'), text: t('campaign.discard.text'), confirm: t('campaign.discard.confirm') })) {
      await change(() => provider.POST('/v1/campaigns/{id}/abort', path), t('campaign.discarded'))
    }
  }
  async function abort(): Promise<void> {
    if (await ask({ title: t('campaign.abort'), text: t('campaign.abort.text'), confirm: t('campaign.abort') })) {
      await change(() => provider.POST('/v1/campaigns/{id}/abort', path), t('campaign.aborted'))
    }
  }
  async function remove(): Promise<void> {
    if (!(await ask({ title: t('campaign.delete'), text: t('campaign.delete.text'), confirm: t('action.delete') }))) return
    if (await perform(() => provider.DELETE('/v1/campaigns/{id}', path), t('campaign.deleted'))) go(at('campaigns'))
  }
  const ended = state === 'done' || state === 'aborted'
  return (
    <>
      {(state === 'draft' || state === 'scheduled') && <Button reason={reason} onClick={() => go(at('new-campaign', { id }))}>{t('campaign.edit')}</Button>}
      {(state === 'running' || state === 'scheduled') && <Button icon="pause" reason={reason} onClick={() => void pause()}>{t('campaign.pause')}</Button>}
      {state === 'paused' && <Button kind="primary" icon="play" reason={reason} onClick={() => void resume()}>{t('campaign.resume')}</Button>}
      {state === 'draft'
        ? <Button kind="danger" reason={reason} onClick={() => void discard()}>{t('campaign.discard')}</Button>
        : !ended && <Button kind="danger" icon="stop" reason={reason} onClick={() => void abort()}>{t('campaign.abort')}</Button>}
      {ended && <Button kind="danger" reason={reason} onClick={() => void remove()}>{t('action.delete')}</Button>}
    </>
  )
}

function ProgressView({ campaign }: { campaign: Campaign }) {
  const { done, total, queued, rate_per_second: rate, eta_s: eta, latency } = campaign
  return (
    <div class="panel">
      <Progress label={t('campaign.progress')} done={done} total={total} />
      <dl class="figures">
        <div><dt>{t('campaign.queued')}</dt><dd>{number(queued)}</dd></div>
        <div><dt>{t('campaign.rate')}</dt><dd>{number(rate)}/s</dd></div>
        <div><dt>{t('campaign.eta')}</dt><dd>{eta === null ? '–' : duration(eta * 1000)}</dd></div>
        <div><dt>{t('campaign.p50')}</dt><dd>{latency.p50_ms === null ? '–' : duration(latency.p50_ms)}</dd></div>
        <div><dt>{t('campaign.p99')}</dt><dd>{latency.p99_ms === null ? '–' : duration(latency.p99_ms)}</dd></div>
        <div><dt>{t('campaigns.errors')}</dt><dd class={campaign.errors > 0 ? 'bad-text' : ''}>{number(campaign.errors)}</dd></div>
      </dl>
    </div>
  )
}

const STAGES = ['pushed', 'written', 'acked', 'opened'] as const

function funnel({ recipients, counts }: Campaign): Bar[] {
  return [
    { label: t('campaigns.recipients'), value: recipients },
    ...STAGES.filter((stage) => stage !== 'acked' || counts['acked'] !== undefined)
      .map((stage) => ({ label: tValue('outcome', stage), value: counts[stage] ?? 0 })),
  ]
}

function Plan({ campaign }: { campaign: Campaign }) {
  const { schedule } = campaign
  return (
    <Facts facts={[
      [t('campaign.id'), <Id value={campaign.id} />],
      [t('campaign.audience'), campaign.complete ? audienceText(campaign.audience) : t('campaigns.incomplete')],
      campaign.created_by !== null && [t('campaigns.author'), campaign.created_by],
      campaign.edited_by !== null && campaign.edited_at !== null && [t('campaign.editedBy'), <>{campaign.edited_by} <When at={campaign.edited_at} /></>],
      campaign.approval !== null && [t('review.approved'), <>{campaign.approval.by} <When at={campaign.approval.at} /></>],
      campaign.uploaded > 0 && [t('campaign.uploaded'), number(campaign.uploaded)],
      campaign.locales.length > 0 && [t('campaign.locales'), campaign.locales.join(', ')],
      [t('campaign.lane'), tValue('lane', campaign.lane)],
      schedule.local_time !== null && [t('campaign.localTime'), schedule.local_time],
      schedule.quiet_hours !== null && [t('preferences.quiet'), `${schedule.quiet_hours.from}–${schedule.quiet_hours.to}`],
      [t('campaign.rateMax'), schedule.rate_per_second === null ? t('quotas.unlimited') : `${number(schedule.rate_per_second)}/s`],
      [t('column.created'), <When at={campaign.created_at} exact />],
      campaign.start_at !== null && [t('campaign.startAt'), <When at={campaign.start_at} exact />],
      campaign.started_at !== null && [t('campaign.startedAt'), <When at={campaign.started_at} exact />],
      campaign.finished_at !== null && [t('campaigns.finished'), <When at={campaign.finished_at} exact />],
      campaign.notification ? [t('kind.notification'), <a href={at('notification', { id: campaign.notification })}>{campaign.notification}</a>] : undefined,
      ...(campaign.warnings ?? []).map(({ service, field, warning }) => [`${t('campaign.warning')}: ${tValue('service', service)} ${field}`, warning] as const),
    ]} />
  )
}
