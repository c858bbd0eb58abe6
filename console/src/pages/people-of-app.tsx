/** For owners of one app: who has a role in it. */

import { useState } from 'preact/hooks'

import { body, session as api, type SessionSchemas } from '../api/client'
import { type Role, ROLES } from '../api/permission'
import { perform, useAction } from '../app/action'
import { pageAfter, useLoad, usePages } from '../app/load'
import { app, session } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { Select, TextField } from '../ui/field'
import { Head, Section } from '../ui/head'
import { Menu } from '../ui/menu'
import { Table } from '../ui/table'
import { toast } from '../ui/toast'
import { When } from '../ui/when'
import { NewLink } from './new-link'

type Person = SessionSchemas['AppPerson']
type Invitation = SessionSchemas['AppInvitation']

export function PeopleOfApp() {
  const name = app.value ?? ''
  const own = session.value?.person.id
  const [adding, setAdding] = useState<{ email: string; role: Role } | undefined>(undefined)
  const people = usePages(`people ${name}`, async (after) => {
    const answer = await body(api.GET('/v1/apps/{app}/people', { params: { path: { app: name }, query: pageAfter(after) } }))
    return { rows: answer.people, next: answer.next }
  })

  const invitations = useLoad(`invitations ${name}`, async () => (await body(api.GET('/v1/apps/{app}/invitations', { params: { path: { app: name } } }))).invitations)

  async function withdraw({ id, email }: Invitation): Promise<void> {
    if (!(await ask({ title: t('invitations.withdraw'), text: t('invitations.withdrawApp.text', { email, app: name }), confirm: t('invitations.withdraw') }))) return
    if (await perform(() => api.DELETE('/v1/apps/{app}/invitations/{id}', { params: { path: { app: name, id } } }), t('invitations.withdrawn'))) invitations.reload()
  }

  async function remove({ id, email }: Person): Promise<void> {
    if (!(await ask({ title: t('people.removeRole'), text: t('people.removeRole.text', { email, app: name }), confirm: t('people.removeRole') }))) return
    if (await perform(() => api.DELETE('/v1/apps/{app}/people/{id}', { params: { path: { app: name, id } } }), t('people.roleRemoved'))) people.reload()
  }

  const add = <Button kind="primary" icon="plus" onClick={() => setAdding({ email: '', role: 'viewer' })}>{t('people.add')}</Button>
  return (
    <>
      <Head title={t('page.people')} text={t('people.ofApp', { app: name })}>{add}</Head>
      <Table<Person>
        caption={t('page.people')}
        load={people}
        rowKey={({ id }) => id}
        empty={<Empty icon="people" title={t('people.empty')} text={t('people.empty.text')}>{add}</Empty>}
        columns={[
          { title: t('session.name'), cell: (person) => <><strong>{person.name || person.email}</strong>{person.id === own && <> <Badge>{t('people.you')}</Badge></>}<small class="below">{person.email}</small></> },
          { title: t('people.role'), cell: ({ role }) => role && <Badge tone={role === 'owner' ? 'info' : 'muted'}>{tValue('role', role)}</Badge> },
          {
            title: t('column.actions'), align: 'actions',
            cell: (person) => <Menu label={t('action.more', { name: person.email })} items={[
              { label: t('people.changeRole'), onChoose: () => setAdding({ email: person.email, role: (person.role ?? 'viewer') as Role }) },
              { label: t('people.removeRole'), danger: true, reason: person.id === own ? t('people.notYourself') : undefined, onChoose: () => void remove(person) },
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
            { title: t('people.role'), cell: ({ role }) => <Badge tone={role === 'owner' ? 'info' : 'muted'}>{tValue('role', role)}</Badge> },
            { title: t('column.expires'), cell: (invitation) => <When at={invitation.expires_at} /> },
            { title: t('column.actions'), align: 'actions', cell: (invitation) => <Button small reason={invitation.other_apps ? t('invitations.otherApps') : undefined} label={t('action.named', { action: t('invitations.withdraw'), name: invitation.email })} onClick={() => void withdraw(invitation)}>{t('invitations.withdraw')}</Button> },
          ]}
        />
      </Section>
      {adding && <Add app={name} person={adding} onClose={() => { setAdding(undefined); people.reload(); invitations.reload() }} />}
    </>
  )
}

/** The same request gives a person another role, adds one, or sends an invitation. */
function Add({ app: name, person, onClose }: { app: string; person: { email: string; role: Role }; onClose(): void }) {
  const [email, setEmail] = useState(person.email)
  const [role, setRole] = useState<Role>(person.role)
  const [link, setLink] = useState<string | undefined>(undefined)
  const title = person.email ? t('people.changeRole') : t('people.add')
  const save = useAction(async () => {
    const answer = await body(api.POST('/v1/apps/{app}/people', { params: { path: { app: name } }, body: { email, role } }))
    if ('link' in answer) return setLink(answer.link)
    toast(t('people.roleSaved'))
    onClose()
  })
  if (link) return <NewLink title={t('invitations.created')} text={t('invitations.once', { email })} link={link} onClose={onClose} />
  return (
    <FormDialog title={title} submit={person.email ? t('action.save') : t('people.add')} busy={save.busy} error={save.error} onClose={onClose} onSubmit={() => void save.run()}>
      <TextField label={t('session.email')} type="email" value={email} onChange={setEmail} required readOnly={person.email !== ''} autofocus={person.email === ''} />
      <Select label={t('people.role')} hint={t(`role.${role}.text`)} value={role} onChange={setRole} options={ROLES.map((value) => ({ value, label: tValue('role', value) }))} />
    </FormDialog>
  )
}
