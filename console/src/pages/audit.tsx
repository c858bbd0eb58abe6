/** The audit log: who changed what, from where, with the values before and after. */

import { useState } from 'preact/hooks'

import { body, session as api } from '../api/client'
import type { AuditEntry } from '../api/session'
import { usePages } from '../app/load'
import { fromInput } from '../app/local-time'
import { amend, place } from '../app/router'
import { app, canEverywhere } from '../app/session'
import { t, tValue } from '../i18n'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Id } from '../ui/copy'
import { Dialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { Facts } from '../ui/facts'
import { Head } from '../ui/head'
import { Table } from '../ui/table'
import { When } from '../ui/when'
import { PAGE_ROWS } from './device-table'

const FILTERS = ['person', 'action', 'since', 'until'] as const
type Filters = Partial<Record<(typeof FILTERS)[number], string>>

const asked = (): Filters => Object.fromEntries(FILTERS.map((name) => [name, place.value.query.get(name) ?? '']).filter(([, value]) => value !== ''))

export default function Audit() {
  const filters = asked()
  const [typed, setTyped] = useState<Filters>(filters)
  const [open, setOpen] = useState<AuditEntry | undefined>(undefined)
  const load = usePages(`audit ${app.value} ${JSON.stringify(filters)}`, async (cursor) => {
    const since = fromInput(filters.since ?? '')
    const until = fromInput(filters.until ?? '')
    const answer = await body(api.GET('/v1/audit', {
      params: {
        query: {
          limit: PAGE_ROWS,
          ...(canEverywhere('read') || !app.value ? {} : { app: app.value }),
          ...(cursor ? { cursor } : {}),
          ...(filters.person ? { person: filters.person } : {}),
          ...(filters.action ? { action: filters.action } : {}),
          ...(since ? { since } : {}),
          ...(until ? { until } : {}),
        },
      },
    }))
    return { rows: answer.entries, next: answer.next }
  })
  const field = (name: (typeof FILTERS)[number], label: string, type: 'search' | 'datetime-local' = 'search') => (
    <label class="filter">
      <span>{label}</span>
      <input class="input" type={type as 'search'} value={typed[name] ?? ''} autocomplete="off" spellcheck={false} onInput={(event) => setTyped({ ...typed, [name]: event.currentTarget.value })} />
    </label>
  )
  return (
    <>
      <Head title={t('page.audit')} text={t('audit.lead')} />
      <form class="filters" onSubmit={(event) => { event.preventDefault(); amend(Object.fromEntries(FILTERS.map((name) => [name, typed[name]?.trim() || undefined]))) }}>
        {field('person', t('audit.person'))}
        {field('action', t('audit.action'))}
        {field('since', t('audit.since'), 'datetime-local')}
        {field('until', t('audit.until'), 'datetime-local')}
        <Button type="submit">{t('action.filter')}</Button>
        {Object.keys(filters).length > 0 && <Button kind="quiet" onClick={() => { setTyped({}); amend(Object.fromEntries(FILTERS.map((name) => [name, undefined]))) }}>{t('action.clearFilter')}</Button>}
      </form>
      <Table<AuditEntry>
        caption={t('page.audit')}
        load={load}
        rowKey={({ id }) => id}
        empty={<Empty icon="audit" title={t('audit.empty')} text={t('audit.empty.text')} />}
        columns={[
          { title: t('column.time'), cell: ({ at }) => <When at={at} exact /> },
          { title: t('audit.by'), cell: (entry) => who(entry) },
          { title: t('audit.action'), cell: ({ action }) => <code>{action}</code> },
          { title: t('audit.target'), cell: ({ target }) => target ?? <span class="none">–</span> },
          { title: t('audit.app'), wide: true, cell: (entry) => entry.app ?? <span class="none">–</span> },
          { title: t('audit.address'), wide: true, cell: ({ address }) => address ?? <span class="none">–</span> },
          { title: t('column.actions'), align: 'actions', cell: (entry) => <Button small label={t('action.named', { action: t('audit.details'), name: entry.action })} onClick={() => setOpen(entry)}>{t('audit.details')}</Button> },
        ]}
      />
      {open && <Details entry={open} onClose={() => setOpen(undefined)} />}
    </>
  )
}

const who = ({ person, by }: AuditEntry): string => person?.email ?? tValue('by', by)

function Details({ entry, onClose }: { entry: AuditEntry; onClose(): void }) {
  return (
    <Dialog title={entry.action} wide onClose={onClose}>
      <div class="dialog-body">
        <Facts facts={[
          [t('column.time'), <When at={entry.at} exact />],
          [t('audit.by'), who(entry)],
          [t('audit.target'), entry.target],
          [t('audit.app'), entry.app],
          [t('audit.address'), entry.address],
          [t('error.request'), entry.request_id && <Id value={entry.request_id} />],
        ]} />
        <div class="split">
          <div><h3 class="small-head">{t('audit.before')}</h3><CodeBlock label={t('audit.before')} value={entry.before ?? null} /></div>
          <div><h3 class="small-head">{t('audit.after')}</h3><CodeBlock label={t('audit.after')} value={entry.after ?? null} /></div>
        </div>
      </div>
    </Dialog>
  )
}
