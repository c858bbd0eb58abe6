/** Where the person is signed in. */

import { body, session as api, type SessionSchemas } from '../api/client'
import { perform } from '../app/action'
import { agentText } from '../app/agent'
import { useLoad } from '../app/load'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { Table } from '../ui/table'
import { When } from '../ui/when'

type OwnSession = SessionSchemas['Sessions']['sessions'][number]

export function OwnSessions() {
  const load = useLoad('sessions', async () => (await body(api.GET('/v1/sessions'))).sessions)
  async function end({ id }: OwnSession): Promise<void> {
    if (!(await ask({ title: t('account.end'), text: t('account.end.text'), confirm: t('account.end') }))) return
    if (await perform(() => api.DELETE('/v1/sessions/{id}', { params: { path: { id } } }), t('account.ended'))) load.reload()
  }
  return (
    <Table<OwnSession>
      caption={t('account.sessions')}
      load={load}
      rowKey={({ id }) => id}
      empty={null}
      columns={[
        { title: t('account.browser'), cell: ({ agent, current }) => <><span title={agent}>{agentText(agent)}</span>{current && <> <Badge tone="good">{t('account.current')}</Badge></>}</> },
        { title: t('audit.address'), cell: ({ address }) => <code>{address}</code> },
        { title: t('account.lastSeen'), cell: (one) => <When at={one.last_seen_at} /> },
        { title: t('account.since'), wide: true, cell: (one) => <When at={one.created_at} /> },
        { title: t('column.actions'), align: 'actions', cell: (one) => <Button small reason={one.current ? t('account.signOutInstead') : undefined} label={t('action.named', { action: t('account.end'), name: one.address })} onClick={() => void end(one)}>{t('account.end')}</Button> },
      ]}
    />
  )
}
