/** What waits in the queues of the node that answers, and which of it is sent again. */

import { admin, type AdminSchemas, body } from '../api/client'
import { bytes, duration, number } from '../app/format'
import { useLoad } from '../app/load'
import { at, can, isFront } from '../app/session'
import { t, tValue } from '../i18n'
import { Badge } from '../ui/badge'
import { Empty } from '../ui/empty'
import { Head, Section } from '../ui/head'
import { Table } from '../ui/table'

type Queue = AdminSchemas['Queue']
const REFRESH_MS = 3000

const figure = (value: number | null, shown: (value: number) => string) => value === null ? <span class="none">–</span> : shown(value)

const LABELS = ['service', 'environment', 'lane']

/** `APNs · production · urgent`; names of sinks and cells as they are. */
const nameOf = (of: Queue['of']): string =>
  Object.entries(of)
    .sort(([one], [other]) => LABELS.indexOf(one) - LABELS.indexOf(other))
    .map(([label, value]) => (LABELS.includes(label) ? tValue(label, value) : value))
    .join(' · ')

export default function Queues() {
  const load = useLoad('queues', () => body(admin.GET('/v1/queues')), REFRESH_MS)
  return (
    <>
      <Head
        title={t('page.queues')}
        badge={load.data?.leads && <Badge tone="info">{t('queues.leads')}</Badge>}
        {...(load.data ? { text: t('queues.lead', { node: load.data.node ?? '' }) } : {})}
      />
      <Table<Queue>
        caption={t('page.queues')}
        load={{ ...load, data: load.data?.queues }}
        rowKey={({ queue, of }) => `${queue} ${Object.values(of).join(' ')}`}
        empty={<Empty icon="activity" title={t('queues.none')} text={t('queues.none.text')} />}
        columns={[
          { title: t('queues.queue'), cell: ({ queue, of }) => <><strong>{tValue('queue', queue)}</strong>{Object.keys(of).length > 0 && <small class="below">{nameOf(of)}</small>}</> },
          { title: t('queues.waiting'), align: 'end', cell: ({ waiting }) => figure(waiting, number) },
          { title: t('queues.inWork'), align: 'end', cell: ({ in_work }) => figure(in_work, number) },
          { title: t('queues.size'), align: 'end', wide: true, cell: (queue) => figure(queue.bytes, bytes) },
          { title: t('queues.oldest'), align: 'end', cell: ({ oldest_s }) => figure(oldest_s, (seconds) => duration(seconds * 1000)) },
          { title: t('queues.failed'), align: 'end', cell: ({ failed }) => failed !== null && failed > 0 ? <span class="bad-text">{number(failed)}</span> : figure(failed, number) },
          { title: t('queues.again'), wide: true, cell: ({ queue }) => <span class="soft">{tValue('queue.again', queue)}</span> },
        ]}
      />
      <Section title={t('queues.replay')} actions={can('read') && !isFront() && <a href={at('credentials')}>{t('page.credentials')}</a>}>
        <ul class="sentences">
          <li>{t('queues.replay.tokens')}</li>
          <li>{t('queues.replay.intake')}</li>
          <li>{t('queues.replay.spool')}</li>
        </ul>
      </Section>
    </>
  )
}
