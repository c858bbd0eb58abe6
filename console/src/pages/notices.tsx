/** Maintenance notices: what the app shows before and during maintenance. */

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
import { NoticeForm } from './notice-form'

type Notice = Schemas['Notice']

export default function Notices() {
  const name = app.value ?? ''
  const archived = place.value.query.get('archived') === 'true'
  const [editing, setEditing] = useState<Notice | 'new' | undefined>(undefined)
  const load = usePages(`notices ${name} ${archived}`, async (after) => {
    const query = { archived, ...pageAfter(after) }
    const answer = await body(admin.GET('/v1/apps/{app}/notices', { params: { path: { app: name }, query } }))
    return { rows: answer.notices, next: answer.next }
  })
  const reason = refusal('define')

  async function end(notice: Notice): Promise<void> {
    if (!(await ask({ title: t('notices.end'), text: t('notices.end.text'), confirm: t('notices.end') }))) return
    if (await perform(() => admin.DELETE('/v1/apps/{app}/notices/{name}', { params: { path: { app: name, name: notice.name } } }), t('notices.ended'))) load.reload()
  }

  const create = <Button kind="primary" icon="plus" reason={reason} onClick={() => setEditing('new')}>{t('notices.new')}</Button>
  return (
    <>
      <Head title={t('page.notices')} text={t('notices.lead')}>{create}</Head>
      <div class="bar"><Switch label={t('notices.showOver')} value={archived} onChange={(value) => amend({ archived: value ? 'true' : undefined })} /></div>
      <Table<Notice>
        caption={t('page.notices')}
        load={load}
        rowKey={(notice) => notice.name}
        empty={<Empty icon="notice" title={t('notices.empty')} text={t('notices.empty.text')}>{create}</Empty>}
        columns={[
          { title: t('column.name'), cell: (notice) => <><code>{notice.name}</code><small class="below">{(notice.notification as Schemas['Shown'] | undefined)?.title ?? ''}</small></> },
          { title: t('column.state'), cell: (notice) => <State value={notice.state} /> },
          { title: t('notices.starts'), cell: (notice) => <When at={notice.starts_at} exact /> },
          { title: t('notices.ends'), cell: (notice) => <When at={notice.ends_at} exact /> },
          { title: t('campaign.locales'), wide: true, cell: ({ locales }) => Object.keys(locales).join(', ') || <span class="none">–</span> },
          {
            title: t('column.actions'), align: 'actions',
            cell: (notice) => notice.state === 'over' ? null : (
              <Menu label={t('action.more', { name: notice.name })} items={[
                { label: t('action.change'), reason, onChoose: () => setEditing(notice) },
                { label: t('notices.end'), danger: true, reason, onChoose: () => void end(notice) },
              ]} />
            ),
          },
        ]}
      />
      {editing && <NoticeForm app={name} notice={editing === 'new' ? undefined : editing} onClose={(saved) => { setEditing(undefined); if (saved) load.reload() }} />}
    </>
  )
}
