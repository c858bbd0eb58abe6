/** Replaces the secret of a credential: the server tests the new one first. What is not secret is filled in. */

import { useState } from 'preact/hooks'

import { admin, type AdminSchemas } from '../api/client'
import { useAction } from '../app/action'
import { t } from '../i18n'
import { FormDialog } from '../ui/dialog'
import { TextField } from '../ui/field'
import { toast } from '../ui/toast'
import { Field, FIELDS, filled } from './credential-form'

type Credential = AdminSchemas['PushCredential']
interface RotationProps { app: string; credential: Credential; title: string; onClose(): void }

export function Rotation({ app, credential, title, onClose }: RotationProps) {
  const { id, service } = credential
  const settings: Readonly<Record<string, unknown>> = credential.settings
  // The name of a provider identifies the credential.
  const fields = FIELDS[service].filter(({ name }) => name !== 'name')
  const shown = (name: string): string => {
    const value = settings[name]
    return typeof value === 'string' ? value : ''
  }
  const [values, setValues] = useState<Readonly<Record<string, string>>>(() => Object.fromEntries(fields.map(({ name }) => [name, shown(name)])))
  const [device, setDevice] = useState('')
  const rotate = useAction(async () => {
    const changed = fields.filter(({ name }) => values[name]?.trim() !== shown(name))
    // A signing key instead of a certificate.
    const without = settings.certificate && values.key ? { certificate: null, private_key: null } : {}
    await admin.POST('/v1/apps/{app}/push/{id}/rotate', {
      params: { path: { app, id } },
      body: { credential: { ...filled(changed, values), ...without }, device },
    })
    toast(t('credentials.rotated'))
    onClose()
  })
  return (
    <FormDialog title={t('credentials.rotateOf', { name: title })} wide submit={t('credentials.rotate')} busy={rotate.busy} error={rotate.error} onClose={onClose} onSubmit={() => void rotate.run()}>
      <p>{t('credentials.rotate.text')}</p>
      {service === 'webpush' && <p class="bad-text">{t('credentials.rotate.webpush')}</p>}
      {fields.map((field) => <Field key={field.name} field={field} value={values[field.name] ?? ''} onChange={(value) => setValues((before) => ({ ...before, [field.name]: value }))} />)}
      <TextField label={t('credentials.rotate.device')} hint={t('credentials.rotate.deviceHint')} value={device} onChange={setDevice} required mono />
    </FormDialog>
  )
}
