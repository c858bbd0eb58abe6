/** People, their roles, and invitations. */

import { useState } from 'preact/hooks'

import { body, session as api } from '../api/client'
import type { Invitation, Person } from '../api/session'
import { perform } from '../app/action'
import { useLoad, usePages } from '../app/load'
import { refusal, session } from '../app/session'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { Head, Section } from '../ui/head'
import { Menu } from '../ui/menu'
import { Table } from '../ui/table'
import { When } from '../ui/when'
import { PAGE_ROWS } from './device-table'
import { InviteForm, RoleForm } from './people-form'
import { Roles } from './roles'

export default function People() {
  const [inviting, setInviting] = useState(false)
  const [changing, setChanging] = useState<Person | undefined>(undefined)
  const people = usePages('people', async (cursor) => {
    const answer = await body(api.GET('/v1/people', { params: { query: { limit: PAGE_ROWS, ...(cursor ? { cursor } : {}) } } }))
    return { rows: answer.people, next: answer.next }
  })
  const invitations = useLoad('invitations', async () => (await body(api.GET('/v1/invitations'))).invitations)
  const reason = refusal('people')
  const own = session.value?.person.id

  async function remove(person: Person): Promise<void> {
    if (!(await ask({ title: t('people.remove'), text: t('people.remove.text', { email: person.email }), confirm: t('action.remove'), typed: person.email }))) return
    if (await perform(() => api.DELETE('/v1/people/{id}', { params: { path: { id: person.id } } }), t('people.removed'))) people.reload()
  }
  async function disable(person: Person, disabled: boolean): Promise<void> {
    if (await perform(() => api.PATCH('/v1/people/{id}', { params: { path: { id: person.id } }, body: { disabled } }), disabled ? t('people.disabled') : t('people.enabled'))) people.reload()
  }
  async function withdraw(invitation: Invitation): Promise<void> {
    if (!(await ask({ title: t('invitations.withdraw'), text: t('invitations.withdraw.text', { email: invitation.email }), confirm: t('invitations.withdraw') }))) return
    if (await perform(() => api.DELETE('/v1/invitations/{id}', { params: { path: { id: invitation.id } } }), t('invitations.withdrawn'))) invitations.reload()
  }

  const invite = <Button kind="primary" icon="plus" reason={reason} onClick={() => setInviting(true)}>{t('people.invite')}</Button>
  return (
    <>
      <Head title={t('page.people')} text={t('people.lead')}>{invite}</Head>
      <Table<Person>
        caption={t('page.people')}
        load={people}
        rowKey={({ id }) => id}
        empty={<Empty icon="people" title={t('people.empty')} text={t('people.empty.text')}>{invite}</Empty>}
        columns={[
          { title: t('session.name'), cell: (person) => <><strong>{person.name || person.email}</strong>{person.id === own && <> <Badge>{t('people.you')}</Badge></>}{person.disabled && <> <Badge tone="bad">{t('people.isDisabled')}</Badge></>}<small class="below">{person.email}</small></> },
          { title: t('people.roles'), cell: (person) => <Roles roles={person.roles} /> },
          { title: t('people.totp'), wide: true, cell: (person) => person.totp ? <Badge tone="good">{t('people.totpOn')}</Badge> : <span class="soft">{t('people.totpOff')}</span> },
          { title: t('people.lastSeen'), wide: true, cell: (person) => <When at={person.last_seen_at} /> },
          {
            title: t('column.actions'), align: 'actions',
            cell: (person) => <Menu label={t('action.more', { name: person.email })} items={[
              { label: t('people.changeRoles'), reason, onChoose: () => setChanging(person) },
              { label: person.disabled ? t('people.enable') : t('people.disable'), reason: person.id === own ? t('people.notYourself') : reason, onChoose: () => void disable(person, !person.disabled) },
              { label: t('people.remove'), danger: true, reason: person.id === own ? t('people.notYourself') : reason, onChoose: () => void remove(person) },
            ]} />,
          },
        ]}
      />
      <Section title={t('invitations.title')}>
        <Table<Invitation>
          caption={t('invitations.title')}
          load={invitations}
          rowKey={({ id }) => id}
          empty={<p class="soft">{t('invitations.empty')}</p>}
          columns={[
            { title: t('session.email'), cell: ({ email }) => email },
            { title: t('people.roles'), cell: ({ roles }) => <Roles roles={roles} /> },
            { title: t('column.expires'), cell: (invitation) => <When at={invitation.expires_at} /> },
            { title: t('column.actions'), align: 'actions', cell: (invitation) => <Button small reason={reason} label={t('action.named', { action: t('invitations.withdraw'), name: invitation.email })} onClick={() => void withdraw(invitation)}>{t('invitations.withdraw')}</Button> },
          ]}
        />
      </Section>
      {inviting && <InviteForm onClose={() => { setInviting(false); invitations.reload() }} />}
      {changing && <RoleForm person={changing} onClose={() => { setChanging(undefined); people.reload() }} />}
    </>
  )
}
