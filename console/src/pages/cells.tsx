/** The cells of a front: whether they answer, what they hold, and moves of users and devices between them. */

import { useState } from 'preact/hooks'

import { admin, type AdminSchemas, body } from '../api/client'
import { perform, useAction } from '../app/action'
import { duration, number } from '../app/format'
import { useLoad } from '../app/load'
import { refusalEverywhere, session } from '../app/session'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { Select, TextField } from '../ui/field'
import { Head } from '../ui/head'
import { Menu } from '../ui/menu'
import { Progress } from '../ui/progress'
import { Table } from '../ui/table'
import { toast } from '../ui/toast'

type Cell = AdminSchemas['Cell']
const REFRESH_MS = 3000

export default function Cells() {
  const [moving, setMoving] = useState<Cell | undefined>(undefined)
  const [weighing, setWeighing] = useState<Cell | undefined>(undefined)
  const load = useLoad('cells', async () => (await body(admin.GET('/v1/cells'))).cells, REFRESH_MS)
  const reason = refusalEverywhere('manage')
  const alone = (load.data?.length ?? 0) < 2

  async function drain({ cell, draining }: Cell): Promise<void> {
    const text = draining ? t('cells.accept.text', { cell }) : t('cells.drain.text', { cell })
    const title = draining ? t('cells.accept') : t('cells.drain')
    if (!(await ask({ title, text, confirm: title, danger: !draining }))) return
    if (await perform(() => admin.PATCH('/v1/cells/{cell}', { params: { path: { cell } }, body: { draining: !draining } }), t('cells.changed'))) load.reload()
  }

  return (
    <>
      <Head title={t('page.cells')} text={t('cells.lead')} />
      <Table<Cell>
        caption={t('page.cells')}
        load={load}
        rowKey={({ cell }) => cell}
        empty={<Empty icon="node" title={t('cells.none')} text={t('cells.none.text')} />}
        columns={[
          { title: t('column.name'), cell: ({ cell, url }) => <><strong>{cell}</strong><small class="below">{url}</small></> },
          { title: t('column.state'), cell: ({ up, draining }) => <><Badge tone={up ? 'good' : 'bad'}>{up ? t('cells.up') : t('cells.down')}</Badge>{draining && <> <Badge tone="warn">{t('cells.draining')}</Badge></>}</> },
          { title: t('cells.users'), align: 'end', cell: ({ users }) => number(users) },
          { title: t('page.devices'), align: 'end', cell: ({ devices }) => number(devices) },
          { title: t('cells.weight'), align: 'end', wide: true, cell: ({ weight }) => number(weight) },
          { title: t('cells.leaving'), align: 'end', cell: ({ leaving }) => number(leaving) },
          { title: t('cells.waiting'), align: 'end', cell: ({ waiting, oldest_waiting_seconds: oldest }) => <>{number(waiting)}{waiting > 0 && <small class="below">{t('cells.oldest', { age: duration(oldest * 1000) })}</small>}</> },
          {
            title: t('column.actions'), align: 'actions',
            cell: (cell) => <Menu label={t('action.more', { name: cell.cell })} items={[
              { label: t('cells.move'), reason: reason ?? (alone ? t('cells.alone') : undefined), onChoose: () => setMoving(cell) },
              { label: t('cells.changeWeight'), reason, onChoose: () => setWeighing(cell) },
              { label: cell.draining ? t('cells.accept') : t('cells.drain'), reason, onChoose: () => void drain(cell) },
            ]} />,
          },
        ]}
      />
      {load.data?.some(({ leaving }) => leaving > 0) && <div class="panel moves">{load.data.filter(({ leaving }) => leaving > 0).map(({ cell, leaving, devices }) => (
        <Progress key={cell} label={t('cells.moving', { cell })} done={devices} total={devices + leaving} />
      ))}</div>}
      {weighing && <Weight cell={weighing} onClose={() => { setWeighing(undefined); load.reload() }} />}
      {moving && <Move from={moving} cells={load.data ?? []} onClose={() => { setMoving(undefined); load.reload() }} />}
    </>
  )
}

function Weight({ cell: { cell, weight }, onClose }: { cell: Cell; onClose(): void }) {
  const [value, setValue] = useState(String(weight))
  const save = useAction(() => admin.PATCH('/v1/cells/{cell}', { params: { path: { cell } }, body: { weight: value === '' ? null : Number(value) } }))
  return (
    <FormDialog title={t('cells.weightOf', { cell })} submit={t('action.save')} busy={save.busy} error={save.error} onClose={onClose} onSubmit={() => void save.run().then((done) => done && onClose())}>
      <TextField label={t('cells.weight')} hint={t('cells.weight.hint')} type="number" inputmode="numeric" value={value} onChange={setValue} autofocus />
    </FormDialog>
  )
}

type What = 'user' | 'device' | 'share'

function Move({ from, cells, onClose }: { from: Cell; cells: readonly Cell[]; onClose(): void }) {
  const others = cells.filter(({ cell }) => cell !== from.cell)
  const apps = session.value?.apps ?? []
  const [to, setTo] = useState(others[0]?.cell ?? '')
  const [what, setWhat] = useState<What>('user')
  const [app, setApp] = useState(apps[0] ?? '')
  const [id, setId] = useState('')
  const [share, setShare] = useState('10')
  const move = useAction(async () => {
    const moved = await body(admin.POST('/v1/cells/{cell}/moves', {
      params: { path: { cell: from.cell } },
      body: what === 'share' ? { to, share: Number(share) } : { to, app, [what]: id },
    }))
    toast(t('cells.moved', { users: moved.users, devices: moved.devices }))
    onClose()
  })
  return (
    <FormDialog title={t('cells.moveFrom', { cell: from.cell })} submit={t('cells.move')} danger busy={move.busy} error={move.error} onClose={onClose} onSubmit={() => void move.run()}>
      <p>{t('cells.move.text')}</p>
      <Select label={t('cells.to')} value={to} onChange={setTo} options={others.map(({ cell }) => ({ value: cell, label: cell }))} />
      <Select<What> label={t('cells.what')} value={what} onChange={setWhat} options={[{ value: 'user', label: t('cells.what.user') }, { value: 'device', label: t('cells.what.device') }, { value: 'share', label: t('cells.what.share') }]} />
      {what === 'share'
        ? <TextField label={t('cells.percent')} type="number" value={share} onChange={setShare} required />
        : <>
            <Select label={t('shell.app')} value={app} onChange={setApp} options={apps.map((name) => ({ value: name, label: name }))} />
            <TextField label={what === 'user' ? t('kind.user') : t('kind.device')} value={id} onChange={setId} required mono />
          </>}
    </FormDialog>
  )
}
