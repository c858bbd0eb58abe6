/** Experiments: variants and their weights, running or stopped. */

import { useState } from 'preact/hooks'

import { admin, body, type Schemas } from '../api/client'
import { perform } from '../app/action'
import { pageAfter, usePages } from '../app/load'
import { amend, place } from '../app/router'
import { app, refusal } from '../app/session'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { State } from '../ui/badge'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { Switch } from '../ui/field'
import { Head } from '../ui/head'
import { Menu } from '../ui/menu'
import { Table } from '../ui/table'
import { When } from '../ui/when'
import { ExperimentForm } from './experiment-form'
import { Shares } from './shares'

type Experiment = Schemas['Experiment']

export default function Experiments() {
  const name = app.value ?? ''
  const archived = place.value.query.get('archived') === 'true'
  const [editing, setEditing] = useState<Experiment | 'new' | undefined>(undefined)
  const load = usePages(`experiments ${name} ${archived}`, async (after) => {
    const query = { archived, ...pageAfter(after) }
    const answer = await body(admin.GET('/v1/apps/{app}/experiments', { params: { path: { app: name }, query } }))
    return { rows: answer.experiments, next: answer.next }
  })
  const reason = refusal('define')
  const of = (experiment: Experiment) => ({ params: { path: { app: name, name: experiment.name } } })

  async function setKilled(experiment: Experiment, killed: boolean): Promise<void> {
    if (killed && !(await ask({ title: t('experiments.stop'), text: t('experiments.stop.text', { name: experiment.name }), confirm: t('experiments.stop') }))) return
    const done = killed ? t('experiments.stopped') : t('experiments.restarted')
    if (await perform(() => admin.PATCH('/v1/apps/{app}/experiments/{name}', { ...of(experiment), body: { killed } }), done)) load.reload()
  }
  async function end(experiment: Experiment): Promise<void> {
    if (!(await ask({ title: t('experiments.end'), text: t('experiments.end.text', { name: experiment.name }), confirm: t('experiments.end') }))) return
    if (await perform(() => admin.DELETE('/v1/apps/{app}/experiments/{name}', of(experiment)), t('experiments.ended'))) load.reload()
  }

  const create = <Button kind="primary" icon="plus" reason={reason} onClick={() => setEditing('new')}>{t('experiments.new')}</Button>
  return (
    <>
      <Head title={t('page.experiments')} text={t('experiments.lead')}>{create}</Head>
      <div class="bar"><Switch label={t('experiments.showArchived')} value={archived} onChange={(value) => amend({ archived: value ? 'true' : undefined })} /></div>
      <Table<Experiment>
        caption={t('page.experiments')}
        load={load}
        rowKey={(experiment) => experiment.name}
        empty={<Empty icon="experiment" title={t('experiments.empty')} text={t('experiments.empty.text')}>{create}</Empty>}
        columns={[
          { title: t('column.name'), cell: (experiment) => <><code>{experiment.name}</code>{experiment.description && <small class="below">{experiment.description}</small>}</> },
          { title: t('column.state'), cell: (experiment) => <State value={experiment.state} /> },
          { title: t('experiments.variants'), cell: (experiment) => <Shares parts={experiment.variants} /> },
          { title: t('experiments.overrides'), align: 'end', wide: true, cell: ({ overrides }) => Object.keys(overrides.users).length + Object.keys(overrides.devices).length },
          { title: t('experiments.starts'), wide: true, cell: (experiment) => <When at={experiment.starts_at} /> },
          { title: t('experiments.ends'), wide: true, cell: (experiment) => <When at={experiment.ends_at ?? experiment.archived_at} /> },
          {
            title: t('column.actions'), align: 'actions',
            cell: (experiment) => experiment.state === 'archived' ? null : (
              <Menu label={t('action.more', { name: experiment.name })} items={[
                { label: t('action.change'), reason, onChoose: () => setEditing(experiment) },
                experiment.killed
                  ? { label: t('experiments.restart'), reason, onChoose: () => void setKilled(experiment, false) }
                  : { label: t('experiments.stop'), danger: true, reason, onChoose: () => void setKilled(experiment, true) },
                { label: t('experiments.end'), danger: true, reason, onChoose: () => void end(experiment) },
              ]} />
            ),
          },
        ]}
      />
      {editing && <ExperimentForm app={name} experiment={editing === 'new' ? undefined : editing} onClose={(saved) => { setEditing(undefined); if (saved) load.reload() }} />}
    </>
  )
}
