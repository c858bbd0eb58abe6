/** The audit log: who changed what, from where, with the values before and after. */

import { useState } from 'preact/hooks'

import { body, session as api, type SessionSchemas } from '../api/client'
import { pageAfter, usePages } from '../app/load'
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
import { FilterField, FilterForm } from '../ui/filter'
import { Head } from '../ui/head'
import { Segmented } from '../ui/segmented'
import { Table } from '../ui/table'
import { When } from '../ui/when'
import { useFilters } from './filters'

type AuditEntry = SessionSchemas['AuditEntry']

const FILTERS = ['person', 'action', 'since', 'until'] as const

export default function Audit() {
  const { applied, isFiltered, typed, field, apply } = useFilters(FILTERS)
  const [open, setOpen] = useState<AuditEntry | undefined>(undefined)
  // People who read all apps see the log of all; others that of an app that they manage.
  const whole = canEverywhere('read')
  const scoped = !whole || (app.value !== undefined && place.value.query.get('scope') !== 'all')
  const load = usePages(`audit ${scoped} ${app.value} ${JSON.stringify(applied)}`, async (after) => {
    const since = fromInput(applied.since ?? '')
    const until = fromInput(applied.until ?? '')
    const query = {
      ...pageAfter(after),
      ...(applied.person ? { person: applied.person } : {}),
      ...(applied.action ? { action: applied.action } : {}),
      ...(since ? { since } : {}),
      ...(until ? { until } : {}),
    }
    const name = scoped ? app.value : undefined
    const answer = whole
      ? await body(api.GET('/v1/audit', { params: { query: { ...query, ...(name ? { app: name } : {}) } } }))
      : await body(api.GET('/v1/apps/{app}/audit', { params: { path: { app: name ?? '' }, query } }))
    return { rows: answer.entries, next: answer.next }
  })
  const by = (entry: AuditEntry) => entry.person
    ? <button type="button" class="link-button" title={t('audit.onlyPerson')} onClick={() => apply({ ...typed, person: entry.person?.id ?? '' })}>{entry.person.email}</button>
    : who(entry)
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
      <FilterForm isFiltered={isFiltered} onApply={() => apply(typed)} onClear={() => apply({})}>
        <FilterField label={t('audit.begins')} {...field('action')} />
        <FilterField label={t('audit.since')} type="datetime-local" {...field('since')} />
        <FilterField label={t('audit.until')} type="datetime-local" {...field('until')} />
      </FilterForm>
      <Table<AuditEntry>
        caption={t('page.audit')}
        load={load}
        rowKey={({ id }) => id}
        empty={<Empty icon="audit" title={t('audit.empty')} text={t('audit.empty.text')} />}
        columns={[
          { title: t('column.time'), wide: true, cell: ({ at }) => <When at={at} exact /> },
          { title: t('audit.by'), wide: true, cell: by },
          {
            title: t('audit.action'),
            cell: (entry) => (
              <>
                <code>{entry.action}</code>
                {/* A phone has no room for these columns. */}
                <span class="below phone-only">{by(entry)} · <When at={entry.at} exact /></span>
                <small class="below">{entry.target}</small>
              </>
            ),
          },
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
