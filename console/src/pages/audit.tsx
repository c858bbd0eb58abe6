/** The audit log: who changed what, from where, with the values before and after. */

import { useState } from 'preact/hooks'

import { body, session as api, type SessionSchemas } from '../api/client'
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
import { Segmented } from '../ui/segmented'
import { Table } from '../ui/table'
import { When } from '../ui/when'
import { PAGE_ROWS } from './device-table'

type AuditEntry = SessionSchemas['AuditEntry']

const FILTERS = ['person', 'action', 'since', 'until'] as const
type Filters = Partial<Record<(typeof FILTERS)[number], string>>

const asked = (): Filters => Object.fromEntries(FILTERS.map((name) => [name, place.value.query.get(name) ?? '']).filter(([, value]) => value !== ''))

export default function Audit() {
  const filters = asked()
  const [typed, setTyped] = useState<Filters>(filters)
  const [open, setOpen] = useState<AuditEntry | undefined>(undefined)
  // People who read all apps see the log of all; others that of an app that they manage.
  const whole = canEverywhere('read')
  const scoped = !whole || (app.value !== undefined && place.value.query.get('scope') !== 'all')
  const load = usePages(`audit ${scoped} ${app.value} ${JSON.stringify(filters)}`, async (after) => {
    const since = fromInput(filters.since ?? '')
    const until = fromInput(filters.until ?? '')
    const query = {
      limit: PAGE_ROWS,
      ...(after ? { after } : {}),
      ...(filters.person ? { person: filters.person } : {}),
      ...(filters.action ? { action: filters.action } : {}),
      ...(since ? { since } : {}),
      ...(until ? { until } : {}),
    }
    const name = scoped ? app.value : undefined
    const answer = whole
      ? await body(api.GET('/v1/audit', { params: { query: { ...query, ...(name ? { app: name } : {}) } } }))
      : await body(api.GET('/v1/apps/{app}/audit', { params: { path: { app: name ?? '' }, query } }))
    return { rows: answer.entries, next: answer.next }
  })
  const field = (name: 'action' | 'since' | 'until', label: string, type: 'search' | 'datetime-local' = 'search') => (
    <label class="filter">
      <span>{label}</span>
      <input class="input" type={type as 'search'} value={typed[name] ?? ''} autocomplete="off" spellcheck={false} onInput={(event) => setTyped({ ...typed, [name]: event.currentTarget.value })} />
    </label>
  )
  function filter(chosen: Filters): void {
    setTyped(chosen)
    amend(Object.fromEntries(FILTERS.map((name) => [name, chosen[name]?.trim() || undefined])))
  }
  return (
    <>
      <Head title={t('page.audit')} text={t('audit.lead')}>
        {whole && app.value && (
          <Segmented
            label={t('audit.scope')}
            value={scoped ? 'app' : 'all'}
            options={[{ value: 'app', label: app.value }, { value: 'all', label: t('people.allApps') }]}
            onChange={(scope) => amend({ scope: scope === 'all' ? scope : undefined })}
          />
        )}
      </Head>
      <form class="filters" onSubmit={(event) => { event.preventDefault(); filter(typed) }}>
        {field('action', t('audit.begins'))}
        {field('since', t('audit.since'), 'datetime-local')}
        {field('until', t('audit.until'), 'datetime-local')}
        <Button type="submit">{t('action.filter')}</Button>
        {Object.keys(filters).length > 0 && <Button kind="quiet" onClick={() => filter({})}>{t('action.clearFilter')}</Button>}
      </form>
      <Table<AuditEntry>
        caption={t('page.audit')}
        load={load}
        rowKey={({ id }) => id}
        empty={<Empty icon="audit" title={t('audit.empty')} text={t('audit.empty.text')} />}
        columns={[
          { title: t('column.time'), cell: ({ at }) => <When at={at} exact /> },
          { title: t('audit.by'), cell: (entry) => entry.person ? <button type="button" class="link-button" title={t('audit.onlyPerson')} onClick={() => filter({ ...typed, person: entry.person?.id ?? '' })}>{entry.person.email}</button> : who(entry) },
          { title: t('audit.action'), cell: ({ action, target }) => <><code>{action}</code><small class="below">{target}</small></> },
          ...(scoped ? [] : [{ title: t('audit.app'), wide: true, cell: (entry: AuditEntry) => entry.app ?? <span class="none">–</span> }]),
          { title: t('audit.address'), wide: true, cell: ({ address }) => <code class="nowrap">{address}</code> },
          { title: t('column.actions'), align: 'actions', cell: (entry) => <Button small label={t('action.named', { action: t('audit.details'), name: entry.action })} onClick={() => setOpen(entry)}>{t('audit.details')}</Button> },
        ]}
      />
      {open && <Details entry={open} onClose={() => setOpen(undefined)} />}
    </>
  )
}

const who = ({ person, by, key }: AuditEntry): string => person?.email ?? [tValue('by', by), key].filter(Boolean).join(' · ')

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
