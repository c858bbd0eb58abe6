/** The variants of a device in the experiments that run. */

import { admin, body } from '../api/client'
import { useLoad } from '../app/load'
import { app, at } from '../app/session'
import { t } from '../i18n'
import { Badge } from '../ui/badge'
import { Empty } from '../ui/empty'
import { Table } from '../ui/table'

interface Row { experiment: string; variant: string | null }

/** Each experiment is a request. */
const EXPERIMENTS_MAX = 20

async function variantsOf(name: string, device: string): Promise<Row[]> {
  const path = { app: name }
  const { experiments } = await body(admin.GET('/v1/apps/{app}/experiments', { params: { path, query: { limit: 100 } } }))
  const running = experiments.filter(({ state }) => state === 'running').slice(0, EXPERIMENTS_MAX)
  return Promise.all(running.map(async ({ name: experiment }) => {
    const answer = await body(admin.GET('/v1/apps/{app}/experiments/{name}/devices/{device}', { params: { path: { ...path, name: experiment, device } } }))
    return { experiment, variant: answer.variant }
  }))
}

export function DeviceVariants({ device }: { device: string }) {
  const name = app.value ?? ''
  const load = useLoad(`variants ${name} ${device}`, () => variantsOf(name, device))
  return (
    <Table<Row>
      caption={t('page.experiments')}
      load={load}
      rowKey={({ experiment }) => experiment}
      empty={<Empty icon="experiment" title={t('device.noExperiment')} text={t('experiments.empty.text')}><a class="button" href={at('experiments')}>{t('page.experiments')}</a></Empty>}
      columns={[
        { title: t('experiments.one'), cell: ({ experiment }) => <code>{experiment}</code> },
        { title: t('variants.variant'), cell: ({ variant }) => variant === null ? <span class="soft">{t('device.notInExperiment')}</span> : <Badge tone="info">{variant}</Badge> },
      ]}
    />
  )
}
