/** API keys of the app. A key is shown once, when it is created. */

import { useState } from 'preact/hooks'

import { admin, body, type Schemas } from '../api/client'
import { perform, useAction } from '../app/action'
import { useLoad } from '../app/load'
import { now } from '../app/format'
import { app, refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Dialog, FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { Checks, Select, TextField } from '../ui/field'
import { Head } from '../ui/head'
import { Table } from '../ui/table'
import { When } from '../ui/when'
import { EXPIRY_TONES, expiryOf, expiryState, type Lifetime, LIFETIMES } from './key-expiry'

type Key = Schemas['Key']
type Scope = Schemas['Scope']
const SCOPES: readonly Scope[] = ['publish', 'devices', 'read', 'admin']

export default function Keys() {
  const name = app.value ?? ''
  const [creating, setCreating] = useState(false)
  const load = useLoad(`keys ${name}`, async () => (await body(admin.GET('/v1/apps/{app}/keys', { params: { path: { app: name } } }))).keys)
  const reason = refusal('manage')
  const create = <Button kind="primary" icon="plus" reason={reason} onClick={() => setCreating(true)}>{t('keys.create')}</Button>

  async function revoke(key: Key): Promise<void> {
    if (!(await ask({ title: t('keys.revoke'), text: t('keys.revoke.text', { name: key.name }), confirm: t('keys.revoke') }))) return
    if (await perform(() => admin.DELETE('/v1/apps/{app}/keys/{key}', { params: { path: { app: name, key: key.id } } }), t('keys.revoked'))) load.reload()
  }

  return (
    <>
      <Head title={t('page.keys')} text={t('keys.lead')}>{create}</Head>
      <Table<Key>
        caption={t('page.keys')}
        load={load}
        rowKey={({ id }) => id}
        empty={<Empty icon="key" title={t('keys.empty')} text={t('keys.empty.text')}>{create}</Empty>}
        columns={[
          { title: t('column.name'), cell: (key) => <><strong>{key.name}</strong> <ExpiryBadge at={key.expires_at} /></> },
          { title: t('keys.scopes'), cell: (key) => <span class="chips">{key.scopes.map((scope) => <code key={scope}>{scope}</code>)}</span> },
          { title: t('keys.id'), wide: true, cell: (key) => <code>{key.id}</code> },
          { title: t('column.created'), wide: true, cell: (key) => <When at={key.created_at} /> },
          { title: t('keys.expires'), cell: (key) => key.expires_at ? <When at={key.expires_at} /> : <span class="muted">{t('keys.never')}</span> },
          { title: t('column.actions'), align: 'actions', cell: (key) => <Button small kind="danger" reason={reason} label={t('action.named', { action: t('keys.revoke'), name: key.name })} onClick={() => void revoke(key)}>{t('keys.revoke')}</Button> },
        ]}
      />
      {creating && <Create app={name} onClose={() => { setCreating(false); load.reload() }} />}
    </>
  )
}

/** Beside the name, where it is visible on a phone too. */
function ExpiryBadge({ at }: { at: string | null }) {
  const state = expiryState(at, now.value)
  return state ? <Badge tone={EXPIRY_TONES[state]}>{tValue('keys.state', state)}</Badge> : null
}

function Create({ app: appName, onClose }: { app: string; onClose(): void }) {
  const [name, setName] = useState('')
  const [scopes, setScopes] = useState<readonly Scope[]>(['publish'])
  const [lifetime, setLifetime] = useState<Lifetime>('never')
  const [date, setDate] = useState('')
  const [key, setKey] = useState<string | undefined>(undefined)
  const create = useAction(async () => {
    const expiresAt = expiryOf(lifetime, date)
    const answer = await body(admin.POST('/v1/apps/{app}/keys', {
      params: { path: { app: appName } },
      body: { name, scopes: [...scopes], ...(expiresAt ? { expires_at: expiresAt } : {}) },
    }))
    setKey(answer.key)
  })
  if (key) {
    return (
      <Dialog title={t('keys.created')} onClose={onClose}>
        <div class="dialog-body"><p>{t('keys.once')}</p><CodeBlock label={t('keys.key')} value={key} /></div>
        <footer class="dialog-actions"><Button kind="primary" onClick={onClose}>{t('keys.stored')}</Button></footer>
      </Dialog>
    )
  }
  return (
    <FormDialog title={t('keys.create')} submit={t('keys.create')} busy={create.busy} error={create.error} reason={scopes.length === 0 ? t('keys.noScope') : undefined} onClose={onClose} onSubmit={() => void create.run()}>
      <TextField label={t('column.name')} hint={t('keys.nameHint')} value={name} onChange={setName} required autofocus />
      <Checks label={t('keys.scopes')} value={scopes} onChange={setScopes} options={SCOPES.map((value) => ({ value, label: tValue('scope', value) }))} />
      <Select label={t('keys.expires')} hint={t('keys.expiresHint')} value={lifetime} onChange={setLifetime} options={LIFETIMES.map((value) => ({ value, label: tValue('lifetime', value) }))} />
      {lifetime === 'date' && <TextField label={t('keys.date')} type="datetime-local" value={date} onChange={setDate} required />}
    </FormDialog>
  )
}
