/** Adds a credential: the fields that each push service needs. */

import { useState } from 'preact/hooks'

import { admin, type Schemas } from '../api/client'
import { useAction } from '../app/action'
import { t, tValue, type PlainKey } from '../i18n'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { Select, Switch, TextArea, TextField } from '../ui/field'
import { parseObject } from './json'
import { canMakeKeys, vapidKey, webhookSecret } from './secret'

type NewCredential = Schemas['NewPushCredential']
export type Service = NewCredential['service']

export interface FieldOf { name: 'name' | 'key' | 'key_id' | 'team_id' | 'topic' | 'service_account' | 'subject' | 'private_key' | 'url' | 'secret' | 'client_id' | 'client_secret' | 'tenant_id' | 'endpoint' | 'token_endpoint'; label: PlainKey; kind?: 'lines' | 'json'; optional?: boolean; hint?: PlainKey; generate?(): string | Promise<string> }

export const FIELDS: Record<Service, readonly FieldOf[]> = {
  apns: [
    { name: 'topic', label: 'credential.bundle' },
    { name: 'key', label: 'credential.p8', kind: 'lines' },
    { name: 'key_id', label: 'credential.keyId' },
    { name: 'team_id', label: 'credential.teamId' },
  ],
  fcm: [{ name: 'service_account', label: 'credential.google', kind: 'json' }],
  webpush: [
    { name: 'subject', label: 'credential.subject', hint: 'credential.subject.hint' },
    { name: 'private_key', label: 'credential.vapid', kind: 'lines', hint: 'credential.vapid.hint', ...(canMakeKeys() ? { generate: vapidKey } : {}) },
  ],
  webhook: [
    { name: 'name', label: 'credential.provider' },
    { name: 'url', label: 'credential.url' },
    { name: 'secret', label: 'credential.secret', hint: 'credential.secret.hint', generate: webhookSecret },
  ],
  hms: [{ name: 'service_account', label: 'credential.huawei', kind: 'json' }],
  wns: [
    { name: 'client_id', label: 'credential.clientId' },
    { name: 'client_secret', label: 'credential.clientSecret' },
    { name: 'tenant_id', label: 'credential.tenant', optional: true },
  ],
}
/** For a service that can be replaced by a server of one's own, such as `noroshi dev-push`. */
const ENDPOINTS: Partial<Record<Service, readonly FieldOf[]>> = {
  apns: [{ name: 'endpoint', label: 'credential.endpoint', optional: true }],
  fcm: [{ name: 'endpoint', label: 'credential.endpoint', optional: true }, { name: 'token_endpoint', label: 'credential.tokenEndpoint', optional: true }],
  hms: [{ name: 'endpoint', label: 'credential.endpoint', optional: true }],
  wns: [{ name: 'endpoint', label: 'credential.endpoint', optional: true }, { name: 'token_endpoint', label: 'credential.tokenEndpoint', optional: true }],
}
const SERVICES = Object.keys(FIELDS) as Service[]

/** The fields with a value, as the API takes them. */
export function filled(fields: readonly FieldOf[], values: Readonly<Record<string, string>>): Record<string, unknown> {
  return Object.fromEntries(fields.filter(({ name }) => values[name]?.trim()).map(({ name, kind }) => {
    const value = values[name] ?? ''
    return [name, kind === 'json' ? parseObject(value) : value.trim()]
  }))
}

export function Field({ field, value, onChange }: { field: FieldOf; value: string; onChange(value: string): void }) {
  const shared = {
    label: t(field.label),
    value,
    onChange,
    required: !field.optional,
    ...(field.hint ? { hint: t(field.hint) } : field.optional ? { hint: t('field.optional') } : {}),
  }
  const control = field.kind ? <TextArea {...shared} rows={field.generate ? 2 : 5} mono /> : <TextField {...shared} mono />
  const { generate } = field
  return (
    <>
      {control}
      {generate && <div class="row"><Button small onClick={() => void Promise.resolve(generate()).then(onChange)}>{t('credential.generate', { name: shared.label })}</Button></div>}
    </>
  )
}

export function CredentialForm({ app, onClose }: { app: string; onClose(saved: boolean): void }) {
  const [service, setService] = useState<Service>('apns')
  const [environment, setEnvironment] = useState<'production' | 'sandbox'>('production')
  const [values, setValues] = useState<Readonly<Record<string, string>>>({})
  const [replace, setReplace] = useState(false)
  const fields = FIELDS[service]
  const endpoints = ENDPOINTS[service] ?? []

  const save = useAction(async () => {
    await admin.POST('/v1/apps/{app}/push', {
      params: { path: { app }, query: { replace } },
      body: { service, ...(service === 'apns' ? { environment } : {}), ...filled([...fields, ...endpoints], values) } as NewCredential,
    })
  })
  const input = (field: FieldOf) => <Field key={field.name} field={field} value={values[field.name] ?? ''} onChange={(value) => setValues((before) => ({ ...before, [field.name]: value }))} />
  return (
    <FormDialog title={t('credentials.add')} wide submit={t('credentials.add')} busy={save.busy} error={save.error} onClose={() => onClose(false)} onSubmit={() => void save.run().then((done) => done && onClose(true))}>
      <div class="field-row">
        <Select label={t('credentials.service')} value={service} onChange={setService} options={SERVICES.map((value) => ({ value, label: tValue('service', value) }))} />
        {service === 'apns' && <Select label={t('credentials.environment')} value={environment} onChange={setEnvironment} options={(['production', 'sandbox'] as const).map((value) => ({ value, label: tValue('environment', value) }))} />}
      </div>
      {fields.map(input)}
      {endpoints.length > 0 && <details class="group"><summary>{t('credential.ownServer')}</summary>{endpoints.map(input)}</details>}
      <Switch label={t('credentials.replace')} hint={t('credentials.replaceHint')} value={replace} onChange={setReplace} />
    </FormDialog>
  )
}
