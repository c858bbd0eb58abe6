/** The Live Activities of the app. */

import { body, provider, type Schemas } from '../api/client'
import { number } from '../app/format'
import { pageAfter, usePages } from '../app/load'
import { app, at } from '../app/session'
import { t, tValue } from '../i18n'
import { State } from '../ui/badge'
import { CodeBlock } from '../ui/code'
import { Empty } from '../ui/empty'
import { Head } from '../ui/head'
import { Table } from '../ui/table'
import { When } from '../ui/when'

const COMMAND = "noroshi activity start --user u1 --type OrderAttributes --state '{\"step\":\"packed\"}'"

export default function Activities() {
  const load = usePages(`activities ${app.value}`, async (after) => {
    const answer = await body(provider.GET('/v1/activities', { params: { query: pageAfter(after) } }))
    return { rows: answer.activities, next: answer.next }
  })
  return (
    <>
      <Head title={t('page.activities')} text={t('activities.lead')} />
      <Table<Schemas['Activity']>
        caption={t('page.activities')}
        load={load}
        rowKey={({ id }) => id}
        empty={<Empty icon="activity" title={t('activities.empty')} text={t('activities.empty.text')}><CodeBlock label={t('devices.command')} value={COMMAND} /></Empty>}
        columns={[
          { title: t('kind.activity'), cell: ({ id }) => <a class="mono" href={at('activity', { id })}>{id}</a> },
          { title: t('column.state'), cell: ({ state }) => <State value={state} of="state.activity" /> },
          { title: t('activities.type'), cell: (activity) => <code>{activity.attributes_type}</code> },
          { title: t('page.devices'), align: 'end', cell: ({ devices }) => number(devices) },
          { title: t('activities.version'), align: 'end', wide: true, cell: ({ version }) => number(version) },
          { title: t('activities.join'), wide: true, cell: ({ join }) => tValue('join', join) },
          { title: t('activities.updated'), wide: true, cell: (activity) => <When at={activity.updated_at} /> },
          { title: t('column.expires'), wide: true, cell: (activity) => <When at={activity.expires_at} /> },
        ]}
      />
    </>
  )
}
