/** Forms for owners of all apps: invites a person, and changes the roles of one. */

import { useState } from 'preact/hooks'

import { body, session as api, type SessionSchemas } from '../api/client'
import { isMissing } from '../api/error'
import { EVERYWHERE, type Role, ROLES } from '../api/permission'
import { useAction } from '../app/action'
import { app, loadSession, session } from '../app/session'
import { t, tValue } from '../i18n'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { Select, TextField } from '../ui/field'
import { NewLink } from './new-link'
import { appName } from './roles'

type Assignment = { app: string; role: Role }

function RoleFields({ value, onChange }: { value: readonly Assignment[]; onChange(value: readonly Assignment[]): void }) {
  const apps = [EVERYWHERE, ...(session.value?.apps ?? [])]
  const isFree = (name: string): boolean => !value.some((one) => one.app === name)
  const free = apps.find(isFree)
  const amend = (index: number, change: Partial<Assignment>): void => onChange(value.map((one, here) => here === index ? { ...one, ...change } : one))
  return (
    <fieldset class="group">
      <legend>{t('people.roles')}</legend>
      {value.map((one, index) => (
        <div class="field-row" key={index}>
          <Select label={t('people.app')} value={one.app} onChange={(name) => amend(index, { app: name })} options={[one.app, ...apps.filter(isFree)].map((name) => ({ value: name, label: appName(name) }))} />
          <Select label={t('people.role')} hint={t(`role.${one.role}.text`)} value={one.role} onChange={(role) => amend(index, { role })} options={ROLES.map((role) => ({ value: role, label: tValue('role', role) }))} />
          <Button small kind="quiet" icon="close" label={t('action.removeNamed', { name: appName(one.app) })} onClick={() => onChange(value.filter((_, here) => here !== index))} />
        </div>
      ))}
      {free !== undefined && <Button small icon="plus" onClick={() => onChange([...value, { app: free, role: 'viewer' }])}>{t('people.addRole')}</Button>}
    </fieldset>
  )
}

export function InviteForm({ onClose }: { onClose(): void }) {
  const [email, setEmail] = useState('')
  const [roles, setRoles] = useState<readonly Assignment[]>([{ app: app.value ?? EVERYWHERE, role: 'viewer' }])
  const [link, setLink] = useState<string | undefined>(undefined)
  const invite = useAction(async () => {
    setLink((await body(api.POST('/v1/invitations', { body: { email, roles: [...roles] } }))).link)
  })
  if (link) return <NewLink title={t('invitations.created')} text={t('invitations.once', { email })} link={link} onClose={onClose} />
  return (
    <FormDialog title={t('people.invite')} wide submit={t('people.invite')} busy={invite.busy} error={invite.error} reason={roles.length === 0 ? t('people.needRole') : undefined} onClose={onClose} onSubmit={() => void invite.run()}>
      <TextField label={t('session.email')} type="email" value={email} onChange={setEmail} required autofocus />
      <RoleFields value={roles} onChange={setRoles} />
    </FormDialog>
  )
}

export function RoleForm({ person, onClose }: { person: SessionSchemas['Person']; onClose(): void }) {
  const [roles, setRoles] = useState<readonly Assignment[]>(person.roles)
  const save = useAction(async () => {
    for (const { app: name, role } of roles) {
      if (person.roles.some((old) => old.app === name && old.role === role)) continue
      await api.PUT('/v1/people/{id}/roles/{role_app}', { params: { path: { id: person.id, role_app: name } }, body: { role } })
    }
    for (const { app: name } of person.roles) {
      if (roles.some((one) => one.app === name)) continue
      await api.DELETE('/v1/people/{id}/roles/{role_app}', { params: { path: { id: person.id, role_app: name } } }).catch((error: unknown) => {
        // An earlier attempt removed it, and failed later.
        if (!isMissing(error)) throw error
      })
    }
    if (person.id === session.value?.person.id) await loadSession()
  })
  return (
    <FormDialog title={t('people.rolesOf', { name: person.name || person.email })} wide submit={t('action.save')} busy={save.busy} error={save.error} onClose={onClose} onSubmit={() => void save.run().then((done) => done && onClose())}>
      <RoleFields value={roles} onChange={setRoles} />
    </FormDialog>
  )
}
