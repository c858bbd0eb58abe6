/** Web Push endpoints of devices: where third parties post messages. Their URLs are not stored, so nobody sees them. */

import { body, provider, type Schemas } from '../api/client'
import { perform } from '../app/action'
import { useLoad } from '../app/load'
import { app, at, refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { Table } from '../ui/table'
import { When } from '../ui/when'

interface Row { device: string; endpoint: Schemas['Endpoint'] }

/** Requests at a time, for a user with many devices. */
const AT_ONCE = 8

async function endpointsOf(devices: readonly string[]): Promise<Row[]> {
  const rows: Row[] = []
  for (let from = 0; from < devices.length; from += AT_ONCE) {
    const part = devices.slice(from, from + AT_ONCE).map(async (device) => {
      const { endpoints } = await body(provider.GET('/v1/devices/{device}/endpoints', { params: { path: { device } } }))
      return endpoints.map((endpoint) => ({ device, endpoint }))
    })
    rows.push(...(await Promise.all(part)).flat())
  }
  return rows
}

export function EndpointTable({ devices, withDevice }: { devices: readonly string[]; withDevice: boolean }) {
  const load = useLoad(`endpoints ${app.value} ${devices.join('\n')}`, () => endpointsOf(devices))
  const reason = refusal('devices')

  async function revoke({ device, endpoint: { id, label } }: Row): Promise<void> {
    if (!(await ask({ title: t('endpoints.revoke'), text: t('endpoints.revoke.text', { name: label ?? id, device }), confirm: t('endpoints.revoke') }))) return
    if (await perform(() => provider.DELETE('/v1/devices/{device}/endpoints/{id}', { params: { path: { device, id } } }), t('endpoints.revoked'))) load.reload()
  }

  return (
    <Table<Row>
      caption={t('endpoints.title')}
      load={load}
      rowKey={({ device, endpoint }) => `${device} ${endpoint.id}`}
      empty={<Empty icon="globe" title={t('endpoints.empty')} text={t('endpoints.empty.text')} />}
      columns={[
        ...(withDevice ? [{ title: t('kind.device'), cell: ({ device }: Row) => <a class="mono" href={at('device', { id: device, tab: 'endpoints' })}>{device}</a> }] : []),
        { title: t('endpoints.label'), cell: ({ endpoint }) => <>{endpoint.label ?? <span class="none">–</span>}<small class="below"><code>{endpoint.id}</code></small></> },
        { title: t('endpoints.key'), wide: true, cell: ({ endpoint }) => endpoint.vapid_key ? <code class="setting">{endpoint.vapid_key}</code> : <Badge tone="warn">{t('endpoints.anyone')}</Badge> },
        { title: t('endpoints.idle'), wide: true, cell: ({ endpoint }) => tValue('urgency', endpoint.idle_urgency) },
        { title: t('column.created'), cell: ({ endpoint }) => <When at={endpoint.created_at} /> },
        { title: t('endpoints.expires'), cell: ({ endpoint }) => endpoint.expires_at ? <When at={endpoint.expires_at} /> : t('endpoints.never') },
        { title: t('column.actions'), align: 'actions', cell: (row) => <Button small kind="danger" reason={reason} label={t('action.named', { action: t('endpoints.revoke'), name: row.endpoint.label ?? row.endpoint.id })} onClick={() => void revoke(row)}>{t('endpoints.revoke')}</Button> },
      ]}
    />
  )
}
