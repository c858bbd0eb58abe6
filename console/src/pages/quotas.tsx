/** Quotas of the app: limits, what is used, what was refused. */

import { useState } from 'preact/hooks'

import { admin, type AdminSchemas, body } from '../api/client'
import { perform, useAction } from '../app/action'
import { number } from '../app/format'
import { useLoad } from '../app/load'
import { app, isFront, refusalEverywhere } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { Select, TextField } from '../ui/field'
import { Head } from '../ui/head'
import { Meter } from '../ui/meter'
import { Table } from '../ui/table'
import { shownQuota } from './quota-text'

type Quota = AdminSchemas['Quota']
const REFRESH_MS = 10_000

export default function Quotas() {
  const name = app.value ?? ''
  const path = { params: { path: { app: name } } }
  const [changing, setChanging] = useState<Quota | undefined>(undefined)
  const load = useLoad(`quotas ${name}`, async () => (await body(admin.GET('/v1/apps/{app}/quotas', path))).quotas, REFRESH_MS)
  // Only people of the whole cluster change quotas: an app must not raise its own limits.
  const reason = refusalEverywhere('manage')

  async function restore(): Promise<void> {
    if (!(await ask({ title: t('quotas.restore'), text: t('quotas.restore.text'), confirm: t('quotas.restore') }))) return
    if (await perform(() => admin.DELETE('/v1/apps/{app}/quotas', path), t('quotas.restored'))) load.reload()
  }

  return (
    <>
      <Head title={t('page.quotas')} text={t('quotas.lead')}>
        <Button reason={reason} onClick={() => void restore()}>{t('quotas.restore')}</Button>
      </Head>
      <Table<Quota>
        caption={t('page.quotas')}
        load={load}
        rowKey={({ quota }) => quota}
        empty={<Empty icon="quota" title={t('quotas.empty')} text={t('quotas.empty.text')} />}
        columns={[
          { title: t('quotas.quota'), cell: ({ quota }) => <>{tValue('quota', quota)}<small class="below"><code>{quota}</code></small></> },
          { title: t('quotas.used'), align: 'end', cell: ({ quota, used }) => used === null || isFront() ? <span class="none">–</span> : shownQuota(quota, used) },
          { title: t('quotas.limit'), align: 'end', cell: ({ quota, limit }) => limit === null ? <span class="soft">{t('quotas.unlimited')}</span> : shownQuota(quota, limit) },
          { title: t('quotas.share'), wide: true, cell: ({ quota, used, limit }) => limit !== null && used !== null && limit > 0 && !isFront() ? <Meter label={tValue('quota', quota)} value={used / limit} /> : null },
          { title: t('quotas.source'), wide: true, cell: ({ source }) => source === 'app' ? <Badge tone="info">{t('quotas.own')}</Badge> : <span class="soft">{t('quotas.default')}</span> },
          { title: t('quotas.scope'), wide: true, cell: ({ scope }) => tValue('quota.scope', scope) },
          { title: t('quotas.refused'), align: 'end', cell: ({ refused }) => refused > 0 ? <span class="bad-text">{number(refused)}</span> : '0' },
          { title: t('column.actions'), align: 'actions', cell: (quota) => <Button small reason={reason} label={t('action.named', { action: t('action.change'), name: quota.quota })} onClick={() => setChanging(quota)}>{t('action.change')}</Button> },
        ]}
      />
      {changing && <Change app={name} quota={changing} onClose={() => { setChanging(undefined); load.reload() }} />}
    </>
  )
}

type Choice = 'default' | 'unlimited' | 'limit'

function Change({ app: name, quota, onClose }: { app: string; quota: Quota; onClose(): void }) {
  const [choice, setChoice] = useState<Choice>(quota.source === 'default' ? 'default' : quota.limit === null ? 'unlimited' : 'limit')
  const [limit, setLimit] = useState(quota.limit?.toString() ?? '')
  const save = useAction(() => admin.PATCH('/v1/apps/{app}/quotas', {
    params: { path: { app: name } },
    body: { [quota.quota]: choice === 'default' ? null : choice === 'unlimited' ? 'unlimited' : Number(limit) },
  }))
  return (
    <FormDialog title={tValue('quota', quota.quota)} submit={t('action.save')} busy={save.busy} error={save.error} onClose={onClose} onSubmit={() => void save.run().then((done) => done && onClose())}>
      <Select label={t('quotas.limit')} value={choice} onChange={setChoice} options={[
        { value: 'default', label: t('quotas.default') },
        { value: 'unlimited', label: t('quotas.unlimited') },
        { value: 'limit', label: t('quotas.ownLimit') },
      ]} />
      {choice === 'limit' && <TextField label={t('quotas.value')} type="number" hint={quota.quota.endsWith('_bytes') ? t('quotas.bytes') : undefined} value={limit} onChange={setLimit} required />}
    </FormDialog>
  )
}
