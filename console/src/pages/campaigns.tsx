/** The campaigns of the app, newest first, filtered by the server. */

import { body, provider, type Schemas } from '../api/client'
import { number, percent } from '../app/format'
import { pageAfter, usePages } from '../app/load'
import { fromInput } from '../app/local-time'
import { go } from '../app/router'
import { app, at, refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { Badge, State } from '../ui/badge'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { Select, TextField } from '../ui/field'
import { FilterForm } from '../ui/filter'
import { Head } from '../ui/head'
import { Table } from '../ui/table'
import { When } from '../ui/when'
import { audienceText, messageTitle } from './campaign-text'
import { type Filters, useFilters } from './filters'

type Campaign = Schemas['Campaign']

const REFRESH_MS = 10_000
const STATES = ['draft', 'scheduled', 'running', 'paused', 'done', 'aborted'] as const
const FILTERS = ['state', 'name', 'created_by', 'created_since', 'created_until', 'start_since', 'start_until'] as const

export default function Campaigns() {
  const filters = useFilters(FILTERS)
  const { applied, isFiltered } = filters
  const load = usePages(`campaigns ${app.value} ${JSON.stringify(applied)}`, async (after) => {
    const query = Object.fromEntries(Object.entries(applied).map(([name, value]) => [name, /_(since|until)$/.test(name) ? fromInput(value) : value]))
    const answer = await body(provider.GET('/v1/campaigns', { params: { query: { ...query, ...pageAfter(after) } } }))
    return { rows: answer.campaigns, next: answer.next }
  }, REFRESH_MS)
  const create = <Button kind="primary" icon="plus" reason={refusal('publish')} onClick={() => go(at('new-campaign'))}>{t('campaigns.new')}</Button>
  return (
    <>
      <Head title={t('page.campaigns')} text={t('campaigns.lead')}>{create}</Head>
      <CampaignFilters {...filters} />
      <Table<Campaign>
        caption={t('page.campaigns')}
        load={load}
        rowKey={({ id }) => id}
        empty={isFiltered
          ? <Empty icon="campaign" title={t('campaigns.noMatch')} text={load.next ? t('campaigns.moreToSearch') : t('campaigns.noMatch.text')} />
          : <Empty icon="campaign" title={t('campaigns.empty')} text={t('campaigns.empty.text')}>{create}</Empty>}
        columns={[
          { title: t('column.name'), cell: (campaign) => <><a href={at('campaign', { id: campaign.id })}>{campaign.name ?? messageTitle(campaign) ?? campaign.id}</a><small class="below">{campaign.complete ? audienceText(campaign.audience) : <Badge tone="warn">{t('campaigns.incomplete')}</Badge>}</small></> },
          { title: t('column.state'), cell: ({ state, approval }) => <><State value={state} />{approval && state === 'draft' && <> <Badge tone="good">{t('review.approved')}</Badge></>}</> },
          { title: t('campaigns.progress'), align: 'end', cell: ({ state, done, total }) => state === 'draft' ? '–' : total ? percent(done / total) : number(done) },
          { title: t('campaigns.recipients'), align: 'end', cell: ({ state, recipients }) => state === 'draft' ? '–' : number(recipients) },
          { title: t('campaigns.errors'), align: 'end', cell: ({ errors }) => errors > 0 ? <span class="bad-text">{number(errors)}</span> : '0' },
          { title: t('campaigns.author'), wide: true, cell: ({ created_by }) => created_by ?? '–' },
          { title: t('column.created'), wide: true, cell: ({ created_at }) => <When at={created_at} /> },
          { title: t('campaigns.finished'), wide: true, cell: ({ finished_at }) => <When at={finished_at} /> },
        ]}
      />
    </>
  )
}

function CampaignFilters({ applied, isFiltered, typed, field, apply }: Filters<(typeof FILTERS)[number]>) {
  const more = (
    <details open={Object.keys(applied).some((name) => name !== 'name' && name !== 'state')}>
      <summary>{t('campaigns.moreFilters')}</summary>
      <div class="field-row">
        <TextField label={t('campaigns.author')} {...field('created_by')} mono />
        <TextField label={t('campaigns.createdSince')} type="datetime-local" {...field('created_since')} />
        <TextField label={t('campaigns.createdUntil')} type="datetime-local" {...field('created_until')} />
        <TextField label={t('campaigns.startSince')} type="datetime-local" {...field('start_since')} />
        <TextField label={t('campaigns.startUntil')} type="datetime-local" {...field('start_until')} />
      </div>
    </details>
  )
  return (
    <FilterForm className="campaign-filters" isFiltered={isFiltered} onApply={() => apply(typed)} onClear={() => apply({})} more={more}>
      <TextField label={t('campaigns.nameFilter')} {...field('name')} />
      <Select label={t('column.state')} {...field('state')} options={[{ value: '', label: t('campaigns.allStates') }, ...STATES.map((value) => ({ value, label: tValue('state', value) }))]} />
    </FilterForm>
  )
}
