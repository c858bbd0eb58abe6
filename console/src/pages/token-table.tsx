/** Push tokens with their state; the API never returns their secret part. */

import { provider, type Schemas } from '../api/client'
import { perform } from '../app/action'
import type { Load } from '../app/load'
import { refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Empty } from '../ui/empty'
import { Menu } from '../ui/menu'
import { Table } from '../ui/table'
import { When } from '../ui/when'

type Token = Schemas['DevicePushToken']
export interface TokenRow { device: string; token: Token }

export function TokenTable({ load, withDevice, deviceLink }: { load: Load<TokenRow[]>; withDevice: boolean; deviceLink(device: string): string }) {
  async function remove({ device, token: { kind, name } }: TokenRow): Promise<void> {
    if (!(await ask({ title: t('tokens.remove'), text: t('tokens.remove.text', { kind: tValue('token.kind', kind), device }), confirm: t('action.remove') }))) return
    const removed = name
      ? () => provider.DELETE('/v1/devices/{device}/push-tokens/{kind}/{name}', { params: { path: { device, kind, name } } })
      : () => provider.DELETE('/v1/devices/{device}/push-tokens/{kind}', { params: { path: { device, kind } } })
    if (await perform(removed, t('tokens.removed'))) load.reload()
  }
  return (
    <Table<TokenRow>
      caption={t('tokens.title')}
      load={load}
      rowKey={({ device, token }) => `${device} ${token.kind} ${token.name}`}
      empty={<Empty icon="send" title={t('tokens.empty')} text={t('tokens.empty.text')} />}
      columns={[
        ...(withDevice ? [{ title: t('kind.device'), cell: ({ device }: TokenRow) => <a class="mono" href={deviceLink(device)}>{device}</a> }] : []),
        { title: t('tokens.kind'), cell: ({ token }) => <>{tValue('token.kind', token.kind)}{token.name && <> <code>{token.name}</code></>}{token.main && <> <Badge tone="info">{t('tokens.main')}</Badge></>}</> },
        { title: t('credentials.service'), cell: ({ token }) => `${tValue('service', token.service)}${token.service === 'apns' ? ` · ${tValue('environment', token.environment)}` : ''}` },
        { title: t('column.state'), cell: ({ token }) => token.suspect ? <><Badge tone="warn">{t('device.suspect')}</Badge> <code>{token.suspect.reason}</code></> : <Badge tone="good">{t('tokens.good')}</Badge> },
        { title: t('tokens.registered'), wide: true, cell: ({ token }) => <When at={token.registered_at} /> },
        { title: t('column.actions'), align: 'actions', cell: (row) => <Menu label={t('action.more', { name: `${row.device} ${row.token.kind}` })} items={[{ label: t('tokens.remove'), danger: true, reason: refusal('devices'), onChoose: () => void remove(row) }]} /> },
      ]}
    />
  )
}
