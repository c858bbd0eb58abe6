/** People, their roles, and invitations: all of them, or those of one app. */

import { useState } from 'preact/hooks'

import { body, session as api, type SessionSchemas } from '../api/client'
import { perform } from '../app/action'
import { pageAfter, useLoad, usePages } from '../app/load'
import { canEverywhere, session } from '../app/session'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { Head, Section } from '../ui/head'
import { Menu } from '../ui/menu'
import { Table } from '../ui/table'
import { toastError } from '../ui/toast'
import { When } from '../ui/when'
import { NewLink } from './new-link'
import { InviteForm, RoleForm } from './people-form'
import { PeopleOfApp } from './people-of-app'
import { LogInMethods, Roles } from './roles'

type Person = SessionSchemas['Person']
type Invitation = SessionSchemas['Invitation']

export default function People() {
  return canEverywhere('own') ? <Everybody /> : <PeopleOfApp />
}

function Everybody() {
  const [inviting, setInviting] = useState(false)
  const [link, setLink] = useState<{ email: string; path: string } | undefined>(undefined)
  const [changing, setChanging] = useState<Person | undefined>(undefined)
  const people = usePages('people', async (after) => {
    const answer = await body(api.GET('/v1/people', { params: { query: pageAfter(after) } }))
    return { rows: answer.people, next: answer.next }
  })
  const invitations = useLoad('invitations', async () => (await body(api.GET('/v1/invitations'))).invitations)
  const own = session.value?.person.id

  async function remove(person: Person): Promise<void> {
    if (!(await ask({ title: t('people.remove'), text: t('people.remove.text', { email: person.email }), confirm: t('action.remove'), typed: person.email }))) return
    if (await perform(() => api.DELETE('/v1/people/{id}', { params: { path: { id: person.id } } }), t('people.removed'))) people.reload()
  }
  async function disable(person: Person, disabled: boolean): Promise<void> {
    if (await perform(() => api.PATCH('/v1/people/{id}', { params: { path: { id: person.id } }, body: { disabled } }), disabled ? t('people.disabled') : t('people.enabled'))) people.reload()
  }
  async function makeLink({ id, email }: Person): Promise<void> {
    if (!(await ask({ title: t('people.link'), text: t('people.link.text', { email }), confirm: t('people.link'), danger: false }))) return
    try {
      setLink({ email, path: (await body(api.POST('/v1/people/{id}/link', { params: { path: { id } } }))).link })
    } catch (error) {
      toastError(error)
    }
  }
  async function withdraw(invitation: Invitation): Promise<void> {
    if (!(await ask({ title: t('invitations.withdraw'), text: t('invitations.withdraw.text', { email: invitation.email }), confirm: t('invitations.withdraw') }))) return
    if (await perform(() => api.DELETE('/v1/invitations/{id}', { params: { path: { id: invitation.id } } }), t('invitations.withdrawn'))) invitations.reload()
  }

  const invite = <Button kind="primary" icon="plus" onClick={() => setInviting(true)}>{t('people.invite')}</Button>
  return (
    <>
      <Head title={t('page.people')} text={t('people.lead')}>{invite}</Head>
      <Table<Person>
        caption={t('page.people')}
        load={people}
        rowKey={({ id }) => id}
        empty={<Empty icon="people" title={t('people.empty')} text={t('people.empty.text')}>{invite}</Empty>}
        columns={[
          { title: t('session.name'), cell: (person) => <><strong>{person.name || person.email}</strong>{person.id === own && <> <Badge>{t('people.you')}</Badge></>}{person.disabled_at && <> <Badge tone="bad">{t('people.isDisabled')}</Badge></>}<small class="below">{person.email}</small></> },
          { title: t('people.roles'), cell: (person) => <Roles roles={person.roles} /> },
          { title: t('logIn.method'), wide: true, cell: (person) => <LogInMethods person={person} /> },
          { title: t('people.totp'), wide: true, cell: (person) => person.totp ? <Badge tone="good">{t('people.totpOn')}</Badge> : <span class="soft">{t('people.totpOff')}</span> },
          { title: t('column.created'), wide: true, cell: (person) => <When at={person.created_at} /> },
          {
            title: t('column.actions'), align: 'actions',
            cell: (person) => <Menu label={t('action.more', { name: person.email })} items={[
              { label: t('people.changeRoles'), onChoose: () => setChanging(person) },
              { label: t('people.link'), reason: person.disabled_at ? t('people.isDisabled') : undefined, onChoose: () => void makeLink(person) },
              { label: person.disabled_at ? t('people.enable') : t('people.disable'), reason: person.id === own ? t('people.notYourself') : undefined, onChoose: () => void disable(person, !person.disabled_at) },
              { label: t('people.remove'), danger: true, reason: person.id === own ? t('people.notYourself') : undefined, onChoose: () => void remove(person) },
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
            { title: t('column.actions'), align: 'actions', cell: (invitation) => <Button small label={t('action.named', { action: t('invitations.withdraw'), name: invitation.email })} onClick={() => void withdraw(invitation)}>{t('invitations.withdraw')}</Button> },
          ]}
        />
      </Section>
      {link && <NewLink title={t('people.link')} text={t('people.linkOnce', { email: link.email })} link={link.path} onClose={() => setLink(undefined)} />}
      {inviting && <InviteForm onClose={() => { setInviting(false); invitations.reload() }} />}
      {changing && <RoleForm person={changing} onClose={() => { setChanging(undefined); people.reload() }} />}
    </>
  )
}
