/** A page of devices: all of the app, or those of a user. */

import type { ComponentChildren } from 'preact'

import { body, provider, type Schemas } from '../api/client'
import type { operations } from '../api/provider'
import { PAGE_ROWS, type Pages, usePages } from '../app/load'
import { seek } from '../app/seek'
import { app, at } from '../app/session'
import { t, tValue } from '../i18n'
import { Badge, State } from '../ui/badge'
import { Table } from '../ui/table'
import { Day, When } from '../ui/when'
import { seenQuery } from './day-seen'

type Device = Schemas['Device']
type Query = operations['devices']['parameters']['query']

export const DEVICE_FILTERS = ['user', 'platform', 'token', 'service', 'seen'] as const
export type DeviceFilters = Partial<Record<(typeof DEVICE_FILTERS)[number], string>>

export const useDevices = (filters: DeviceFilters): Pages<Device> =>
  usePages(`devices ${app.value} ${JSON.stringify(filters)}`, async (after) => {
    const { seen, ...others } = filters
    const wanted = { ...others, ...seenQuery(seen, Date.now()) }
    const read = async (from: string | undefined, limit: number) => {
      const query = { ...wanted, limit, ...(from ? { after: from } : {}) } as NonNullable<Query>
      const answer = await body(provider.GET('/v1/devices', { params: { query } }))
      return { rows: answer.devices, next: answer.next }
    }
    const { rows, next } = await seek(read, after, PAGE_ROWS)
    return { rows, next }
  })

interface Props { load: Pages<Device>; empty: ComponentChildren; withUser?: boolean }

export function DeviceTable({ load, empty, withUser = true }: Props) {
  const isPartial = load.next !== undefined && load.data !== undefined && load.data.length < PAGE_ROWS
  return (
    <>
      {isPartial && <p class="soft" role="status">{t('devices.partial')}</p>}
      <Table<Device>
        caption={t('page.devices')}
        load={load}
        rowKey={({ device }) => device}
        empty={empty}
        columns={[
          { title: t('kind.device'), cell: ({ device }) => <a class="mono" href={at('device', { id: device })}>{device}</a> },
          ...(withUser ? [{ title: t('kind.user'), cell: ({ user }: Device) => user === null ? <span class="none">–</span> : <a href={at('user', { id: user })}>{user}</a> }] : []),
          { title: t('device.presence'), cell: ({ presence }) => <State value={presence} /> },
          { title: t('device.lastSeen'), cell: ({ last_seen }) => <Day day={last_seen} none={t('device.neverSeen')} /> },
          { title: t('device.platform'), cell: ({ platform }) => platform === null ? <span class="none">–</span> : tValue('platform', platform) },
          { title: t('device.push'), cell: (device) => <PushState device={device} /> },
          { title: t('device.version'), wide: true, cell: ({ app_version }) => app_version ?? <span class="none">–</span> },
          { title: t('device.locale'), wide: true, cell: ({ locale }) => locale ?? <span class="none">–</span> },
          { title: t('column.created'), wide: true, cell: ({ created_at }) => <When at={created_at} /> },
        ]}
      />
    </>
  )
}

function PushState({ device: { push_tokens: tokens, push_suspect: suspect } }: { device: Device }) {
  const main = tokens.find((token) => token.main)
  if (suspect || main?.suspect) return <Badge tone="warn">{t('device.suspect')}</Badge>
  if (!main) return <span class="none">{t('device.noToken')}</span>
  return <Badge tone="good">{tValue('service', main.service)}</Badge>
}
