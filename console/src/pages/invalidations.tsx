/** Push tokens that push services declared invalid, newest last as the API lists them. */

import { body, provider, type Schemas } from '../api/client'
import { PAGE_ROWS, pageAfter, usePages } from '../app/load'
import { app, at } from '../app/session'
import { t, tValue } from '../i18n'
import { Badge } from '../ui/badge'
import { Empty } from '../ui/empty'
import { Table } from '../ui/table'
import { When } from '../ui/when'

type Invalidation = Schemas['Invalidation']

export function Invalidations() {
  const load = usePages(`invalidations ${app.value}`, async (after) => {
    const query = pageAfter(after)
    const answer = await body(provider.GET('/v1/push/invalidations', { params: { query } })) as Schemas['Invalidations']
    // `next` is a position to continue from later, so the last page has one too.
    return { rows: answer.invalidations, next: answer.invalidations.length < PAGE_ROWS ? null : answer.next }
  })
  return (
    <Table<Invalidation>
      caption={t('invalidations.title')}
      load={load}
      rowKey={({ seq }) => seq}
      empty={<Empty icon="check" title={t('invalidations.empty')} text={t('invalidations.empty.text')} />}
      columns={[
        { title: t('column.time'), cell: (one) => <When at={one.at} /> },
        { title: t('kind.device'), cell: ({ device }) => <a class="mono" href={at('device', { id: device })}>{device}</a> },
        { title: t('tokens.kind'), cell: ({ kind, name }) => <>{tValue('token.kind', kind)}{name && <> <code>{name}</code></>}</> },
        { title: t('credentials.service'), wide: true, cell: ({ service, environment }) => `${tValue('service', service)}${service === 'apns' ? ` · ${tValue('environment', environment)}` : ''}` },
        { title: t('credentials.reason'), cell: ({ reason }) => <code>{reason}</code> },
        { title: t('column.state'), cell: ({ removed }) => removed ? <Badge tone="bad">{t('invalidations.removed')}</Badge> : <Badge tone="warn">{t('device.suspect')}</Badge> },
      ]}
    />
  )
}
