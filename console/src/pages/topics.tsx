/** The topics of the app. */

import { body, provider, type Schemas } from '../api/client'
import { number } from '../app/format'
import { pageAfter, usePages } from '../app/load'
import { app, at } from '../app/session'
import { t } from '../i18n'
import { Badge } from '../ui/badge'
import { CodeBlock } from '../ui/code'
import { Empty } from '../ui/empty'
import { Head } from '../ui/head'
import { Table } from '../ui/table'

export default function Topics() {
  const load = usePages(`topics ${app.value}`, async (after) => {
    const answer = await body(provider.GET('/v1/topics', { params: { query: pageAfter(after) } }))
    return { rows: answer.topics, next: answer.next }
  })
  return (
    <>
      <Head title={t('page.topics')} text={t('topics.lead')} />
      <Table<Schemas['Topic']>
        caption={t('page.topics')}
        load={load}
        rowKey={({ topic }) => topic}
        empty={<Empty icon="topic" title={t('topics.empty')} text={t('topics.empty.text')}><CodeBlock label={t('devices.command')} value="noroshi send --topic news --title Hello" /></Empty>}
        columns={[
          { title: t('kind.topic'), cell: ({ topic }) => <a class="mono" href={at('topic', { id: topic })}>{topic}</a> },
          { title: t('topics.subscribers'), align: 'end', cell: ({ subscribers }) => number(subscribers) },
          { title: t('topics.connected'), align: 'end', cell: ({ connected }) => number(connected) },
          { title: t('topics.log'), align: 'end', wide: true, cell: ({ log }) => number(log) },
          { title: t('topics.offset'), align: 'end', wide: true, cell: ({ offset }) => number(offset) },
          { title: t('topics.retained'), cell: ({ retained }) => retained ? <Badge tone="info">{t('topics.hasRetained')}</Badge> : <span class="none">–</span> },
        ]}
      />
    </>
  )
}
