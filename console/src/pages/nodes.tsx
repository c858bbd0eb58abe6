/** Nodes, and the drain of the node that answers. */

import { useState } from 'preact/hooks'

import { admin, type AdminSchemas, body } from '../api/client'
import { perform, useAction } from '../app/action'
import { duration, number } from '../app/format'
import { useLoad } from '../app/load'
import { refusalEverywhere } from '../app/session'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { State } from '../ui/badge'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { TextField } from '../ui/field'
import { Head, Section } from '../ui/head'
import { Progress } from '../ui/progress'
import { Skeleton } from '../ui/skeleton'
import { When } from '../ui/when'
import { NodeTable } from './node-table'

const REFRESH_MS = 2000

export default function Nodes() {
  const drain = useLoad('drain', () => body(admin.GET('/v1/drain')), REFRESH_MS)
  return (
    <>
      <Head title={t('page.nodes')} text={t('nodes.lead')} />
      <NodeTable />
      <Section title={t('drain.title')}>
        <ErrorBox error={drain.error} retry={drain.reload} />
        {drain.data ? <DrainView drain={drain.data} reload={drain.reload} /> : !drain.error && <Skeleton />}
      </Section>
    </>
  )
}

function DrainView({ drain, reload }: { drain: AdminSchemas['Drain']; reload(): void }) {
  const [starting, setStarting] = useState(false)
  const refusal = refusalEverywhere('manage')
  const moved = drain.moved ?? 0
  const all = moved + drain.connections

  async function cancel(): Promise<void> {
    if (!(await ask({ title: t('drain.cancel'), text: t('drain.cancel.text'), confirm: t('drain.cancel'), danger: false }))) return
    if (await perform(() => admin.DELETE('/v1/drain'), t('drain.cancelled'))) reload()
  }

  return (
    <>
      {drain.state !== 'serving' && <Progress label={t('drain.progress')} done={moved} total={all} />}
      <Facts facts={[
        [t('column.state'), <State value={drain.state} />],
        [t('nodes.connections'), number(drain.connections)],
        drain.moved !== null && [t('drain.moved'), number(drain.moved)],
        drain.rate !== null && [t('drain.rate'), `${number(drain.rate)}/s`],
        drain.eta_s !== null && [t('drain.eta'), duration(drain.eta_s * 1000)],
        drain.started_at !== null && [t('drain.started'), <When at={drain.started_at} />],
        drain.deadline_at !== null && [t('drain.deadline'), <When at={drain.deadline_at} />],
      ]} />
      <div class="row">
        {drain.state === 'serving'
          ? <Button reason={refusal} onClick={() => setStarting(true)}>{t('drain.start')}</Button>
          : <Button reason={refusal} onClick={() => void cancel()}>{t('drain.cancel')}</Button>}
      </div>
      {starting && <StartDrain onClose={() => { setStarting(false); reload() }} />}
    </>
  )
}

function StartDrain({ onClose }: { onClose(): void }) {
  const [spread, setSpread] = useState('30s')
  const [deadline, setDeadline] = useState('10m')
  const start = useAction(() => admin.PUT('/v1/drain', {
    body: { ...(spread ? { spread } : {}), ...(deadline ? { deadline } : {}) },
  }))
  return (
    <FormDialog title={t('drain.start')} submit={t('drain.start')} danger busy={start.busy} error={start.error} onClose={onClose} onSubmit={() => void start.run().then((done) => done && onClose())}>
      <p>{t('drain.text')}</p>
      <TextField label={t('drain.spread')} hint={t('field.duration')} value={spread} onChange={setSpread} mono />
      <TextField label={t('drain.within')} hint={t('field.duration')} value={deadline} onChange={setDeadline} mono />
    </FormDialog>
  )
}
