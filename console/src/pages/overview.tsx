/** The first page: how the app does now, and the nodes for people who may see them. */

import { admin, type AdminSchemas, body, provider, type Schemas } from '../api/client'
import { number, percent } from '../app/format'
import { useLoad } from '../app/load'
import { app, at, canEverywhere, isFront } from '../app/session'
import { t, tValue } from '../i18n'
import { Badge, State } from '../ui/badge'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Head, Section } from '../ui/head'
import { Meter } from '../ui/meter'
import { Skeleton } from '../ui/skeleton'
import { Table } from '../ui/table'
import { When } from '../ui/when'
import { messageTitle } from './campaign-text'
import { Figures } from './figures'
import { NodeTable } from './node-table'
import { shownQuota } from './quota-text'

type Campaign = Schemas['Campaign']
type Credential = AdminSchemas['PushCredential']
type Quota = AdminSchemas['Quota']

/** Of what the live figures do not have: it changes slowly, and many consoles may be open all day. */
const REFRESH_MS = 30_000
const NODES_REFRESH_MS = 10_000
const CAMPAIGNS = 5
/** Limits on rates have no usage, and those of single devices no sum. */
const COUNTED: readonly Quota['quota'][] = ['connections', 'devices', 'topics', 'inbox_rows', 'inbox_bytes', 'retained_bytes', 'endpoints', 'campaigns']

export default function Overview() {
  return (
    <>
      <Head title={t('page.overview')} text={t('overview.app', { app: app.value ?? '' })} />
      {isFront() ? <Empty icon="node" title={t('front.overview')} text={t('front.overview.text')}>{canEverywhere('read') && <a href={at('cells')}>{t('page.cells')}</a>}</Empty> : <><Figures />
      <Section title={t('page.quotas')}><Usage /></Section>
      <Section title={t('page.campaigns')} actions={<a href={at('campaigns')}>{t('overview.campaigns')}</a>}><Campaigns /></Section>
      <Section title={t('overview.push')} actions={<a href={at('credentials')}>{t('page.credentials')}</a>}><PushServices /></Section></>}
      {canEverywhere('read') && (
        <Section title={t('page.nodes')} actions={<a href={at('nodes')}>{t('overview.nodes')}</a>}><NodeTable everyMs={NODES_REFRESH_MS} /></Section>
      )}
    </>
  )
}

/** What the app uses of its quotas, and what they refused. */
function Usage() {
  const name = app.value ?? ''
  const load = useLoad(`usage ${name}`, async () => (await body(admin.GET('/v1/apps/{app}/quotas', { params: { path: { app: name } } }))).quotas, REFRESH_MS)
  const shown = load.data?.filter((one) => one.refused > 0 || (one.used !== null && COUNTED.includes(one.quota)))
  return (
    <>
      <ErrorBox error={load.error} retry={load.reload} />
      {!shown && !load.error && <Skeleton rows={3} />}
      {shown && shown.length > 0 && (
        <dl class="tiles">{shown.map((quota) => <Tile key={quota.quota} quota={quota} />)}</dl>
      )}
    </>
  )
}

function Tile({ quota: { quota, used, limit, refused, scope } }: { quota: Quota }) {
  return (
    <div class="tile">
      <dt>{tValue('quota', quota)}{scope === 'node' && <small> · {t('nodes.this')}</small>}</dt>
      <dd>
        {used !== null && <strong>{shownQuota(quota, used)}</strong>}
        {used !== null && limit !== null && limit > 0 && <Meter label={t('quotas.share')} value={used / limit} />}
        {limit !== null && <small>{t('overview.limit', { limit: shownQuota(quota, limit) })}</small>}
        {refused > 0 && <small class="bad-text">{t('overview.refused', { count: refused })}</small>}
      </dd>
    </div>
  )
}

/** The campaigns that run or wait, however old, then the newest. */
function Campaigns() {
  const load = useLoad(`newest campaigns ${app.value}`, async () => {
    const read = async (state: string) => (await body(provider.GET('/v1/campaigns', { params: { query: { state, limit: CAMPAIGNS } } }))).campaigns
    const [open, others] = await Promise.all([read('running,scheduled,paused'), read('draft,done,aborted')])
    return [...open, ...others].slice(0, CAMPAIGNS)
  }, REFRESH_MS)
  return (
    <Table<Campaign>
      caption={t('page.campaigns')}
      load={load}
      rowKey={({ id }) => id}
      empty={<p class="soft">{t('campaigns.empty')}</p>}
      columns={[
        { title: t('column.name'), cell: (campaign) => <a href={at('campaign', { id: campaign.id })}>{campaign.name ?? messageTitle(campaign) ?? campaign.id}</a> },
        { title: t('column.state'), cell: ({ state }) => <State value={state} /> },
        { title: t('campaigns.progress'), align: 'end', cell: ({ state, done, total }) => state === 'draft' ? '–' : total ? percent(done / total) : number(done) },
        { title: t('campaigns.recipients'), align: 'end', cell: ({ state, recipients }) => state === 'draft' ? '–' : number(recipients) },
        { title: t('column.created'), wide: true, cell: ({ created_at }) => <When at={created_at} /> },
      ]}
    />
  )
}

/** Whether the push services accept requests now. */
function PushServices() {
  const name = app.value ?? ''
  const load = useLoad(`push ${name}`, async () => (await body(admin.GET('/v1/apps/{app}/push', { params: { path: { app: name } } }))).credentials, REFRESH_MS)
  return (
    <Table<Credential>
      caption={t('overview.push')}
      load={load}
      rowKey={({ id }) => id}
      empty={<p class="soft">{t('credentials.empty')}</p>}
      columns={[
        { title: t('credentials.service'), cell: ({ service, name: provided, environment }) => [tValue('service', service), provided, service === 'apns' && tValue('environment', environment)].filter(Boolean).join(' · ') },
        { title: t('column.state'), cell: ({ state }) => state ? <State value={state.breaker} /> : <Badge>{t('credentials.unused')}</Badge> },
        { title: t('credentials.inFlight'), align: 'end', cell: ({ state }) => number(state?.in_flight ?? 0) },
        { title: t('overview.waiting'), align: 'end', cell: ({ state }) => number(state?.waiting ?? 0) },
        { title: t('credentials.lastError'), wide: true, cell: ({ state }) => state?.last_error ? <><code>{state.last_error.reason}</code> <When at={state.last_error.at} /></> : <span class="none">–</span> },
      ]}
    />
  )
}
