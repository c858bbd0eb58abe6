/** The nodes of the cluster with their leases, load and drains. */

import { admin, type AdminSchemas, body } from '../api/client'
import { duration, number } from '../app/format'
import { useLoad } from '../app/load'
import { t, tValue } from '../i18n'
import { Badge, State } from '../ui/badge'
import { Empty } from '../ui/empty'
import { Table } from '../ui/table'
import { When } from '../ui/when'

type Node = AdminSchemas['Node']

const REFRESH_MS = 5000

export function NodeTable({ everyMs = REFRESH_MS }: { everyMs?: number }) {
  const load = useLoad('nodes', async () => (await body(admin.GET('/v1/nodes'))).nodes, everyMs)
  return (
    <Table<Node>
      caption={t('page.nodes')}
      load={load}
      rowKey={({ name }) => name}
      empty={<Empty icon="node" title={t('nodes.empty')} text={t('nodes.empty.text')} />}
      columns={[
        { title: t('column.name'), cell: (node) => <><strong>{node.name}</strong>{node.this && <> <Badge>{t('nodes.this')}</Badge></>}{node.admin && <small class="below">{node.admin}</small>}</> },
        { title: t('column.state'), cell: (node) => <State value={node.drain} /> },
        { title: t('nodes.roles'), wide: true, cell: (node) => <span class="nowrap">{node.roles.map((role) => tValue('role.node', role)).join(', ') || '–'}</span> },
        { title: t('nodes.connections'), align: 'end', cell: (node) => number(node.connections) },
        { title: t('nodes.deliveries'), align: 'end', cell: (node) => number(node.deliveries_per_second) },
        { title: t('nodes.cpu'), align: 'end', wide: true, cell: (node) => node.cpu === null ? '–' : number(Math.round(node.cpu * 100) / 100) },
        { title: t('nodes.lease'), align: 'end', wide: true, cell: (node) => node.lease_ms === null ? t('nodes.alone') : duration(node.lease_ms) },
        { title: t('nodes.started'), wide: true, cell: (node) => <When at={node.started_at} /> },
        { title: t('nodes.version'), wide: true, cell: (node) => <code>{node.version}</code> },
      ]}
    />
  )
}
