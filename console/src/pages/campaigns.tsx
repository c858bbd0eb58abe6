/** The campaigns of the app, newest first. */

import { body, provider, type Schemas } from '../api/client'
import { number, percent } from '../app/format'
import { usePages } from '../app/load'
import { app, at, refusal } from '../app/session'
import { t } from '../i18n'
import { State } from '../ui/badge'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { Head } from '../ui/head'
import { Table } from '../ui/table'
import { When } from '../ui/when'
import { go } from '../app/router'
import { PAGE_ROWS } from './device-table'
import { audienceText, messageTitle } from './campaign-text'

type Campaign = Schemas['Campaign']

const REFRESH_MS = 10_000

export default function Campaigns() {
  const load = usePages(`campaigns ${app.value}`, async (after) => {
    const answer = await body(provider.GET('/v1/campaigns', { params: { query: { limit: PAGE_ROWS, ...(after ? { after } : {}) } } }))
    return { rows: answer.campaigns, next: answer.next }
  }, REFRESH_MS)
  const create = <Button kind="primary" icon="plus" reason={refusal('publish')} onClick={() => go(at('new-campaign'))}>{t('campaigns.new')}</Button>
  return (
    <>
      <Head title={t('page.campaigns')} text={t('campaigns.lead')}>{create}</Head>
      <Table<Campaign>
        caption={t('page.campaigns')}
        load={load}
        rowKey={({ id }) => id}
        empty={<Empty icon="campaign" title={t('campaigns.empty')} text={t('campaigns.empty.text')}>{create}</Empty>}
        columns={[
          { title: t('column.name'), cell: (campaign) => <><a href={at('campaign', { id: campaign.id })}>{campaign.name ?? messageTitle(campaign) ?? campaign.id}</a><small class="below">{audienceText(campaign.audience)}</small></> },
          { title: t('column.state'), cell: ({ state }) => <State value={state} /> },
          { title: t('campaigns.progress'), align: 'end', cell: ({ done, total }) => total ? percent(done / total) : number(done) },
          { title: t('campaigns.recipients'), align: 'end', cell: ({ recipients }) => number(recipients) },
          { title: t('campaigns.errors'), align: 'end', cell: ({ errors }) => errors > 0 ? <span class="bad-text">{number(errors)}</span> : '0' },
          { title: t('column.created'), wide: true, cell: ({ created_at }) => <When at={created_at} /> },
          { title: t('campaigns.finished'), wide: true, cell: ({ finished_at }) => <When at={finished_at} /> },
        ]}
      />
    </>
  )
}
