/** Settings of the app: how devices authenticate, categories that override preferences; create and delete apps. */

import { useState } from 'preact/hooks'

import { admin, type AdminSchemas, body } from '../api/client'
import { perform, useAction } from '../app/action'
import { useLoad } from '../app/load'
import { address, go } from '../app/router'
import { app, canEverywhere, loadSession, refusal, refusalEverywhere } from '../app/session'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { TextArea, TextField } from '../ui/field'
import { Head, Section } from '../ui/head'
import { Skeleton } from '../ui/skeleton'
import { When } from '../ui/when'
import { NewApp } from './new-app'
import { secretText } from './secret'

type App = AdminSchemas['App']

export default function Settings() {
  const name = app.value ?? ''
  const path = { params: { path: { app: name } } }
  const [changing, setChanging] = useState(false)
  const [creating, setCreating] = useState(false)
  const load = useLoad(`app ${name}`, () => body(admin.GET('/v1/apps/{app}', path)))

  async function remove(): Promise<void> {
    if (!(await ask({ title: t('settings.delete'), text: t('settings.delete.text', { app: name }), confirm: t('action.delete'), typed: name }))) return
    await perform(async () => {
      await admin.DELETE('/v1/apps/{app}', path)
      await loadSession()
      go(address('overview'))
    }, t('settings.deleted'))
  }

  return (
    <>
      <Head title={t('page.settings')} text={t('settings.lead', { app: name })}>
        <Button kind="primary" reason={refusal('manage')} onClick={() => setChanging(true)}>{t('action.change')}</Button>
        <Button icon="plus" reason={refusalEverywhere('own')} onClick={() => setCreating(true)}>{t('settings.create')}</Button>
      </Head>
      <ErrorBox error={load.error} retry={load.reload} />
      {!load.data && !load.error && <Skeleton rows={6} />}
      {load.data && <View app={load.data} />}
      {load.data && (
        <Section title={t('settings.danger')}>
          <div class="row">
            <Button kind="danger" reason={refusal('own')} onClick={() => void remove()}>{t('settings.delete')}</Button>
          </div>
        </Section>
      )}
      {changing && load.data && <Change app={load.data} onClose={(saved) => { setChanging(false); if (saved) load.reload() }} />}
      {creating && <NewApp onClose={() => setCreating(false)} />}
    </>
  )
}

const setOrNot = (set: boolean) => set ? <Badge tone="good">{t('rules.secretSet')}</Badge> : <span class="soft">{t('rules.noSecret')}</span>
const names = (list: readonly string[]) => list.length > 0 && <span class="chips">{list.map((one) => <code key={one}>{one}</code>)}</span>

function View({ app: shown }: { app: App }) {
  return (
    <Facts facts={[
      [t('settings.secret'), setOrNot(shown.jwt_secret_set)],
      [t('settings.jwksUrl'), shown.jwks_url && <code>{shown.jwks_url}</code>],
      [t('settings.jwks'), setOrNot(shown.jwks_set)],
      [t('settings.issuer'), shown.issuer],
      [t('settings.audience'), shown.audience],
      [t('settings.publish'), names(shown.client_publish)],
      [t('settings.essential'), names(shown.essential_categories)],
      [t('column.created'), <When at={shown.created_at} exact />],
    ]} />
  )
}

const lines = (text: string): string[] => text.split('\n').map((line) => line.trim()).filter(Boolean)

function Change({ app: shown, onClose }: { app: App; onClose(saved: boolean): void }) {
  const [secret, setSecret] = useState('')
  const [jwksUrl, setJwksUrl] = useState(shown.jwks_url ?? '')
  const [issuer, setIssuer] = useState(shown.issuer ?? '')
  const [audience, setAudience] = useState(shown.audience ?? '')
  const [publish, setPublish] = useState(shown.client_publish.join('\n'))
  const [essential, setEssential] = useState(shown.essential_categories.join('\n'))
  const operator = canEverywhere('manage')
  const save = useAction(() => admin.PATCH('/v1/apps/{app}', {
    params: { path: { app: shown.name } },
    body: {
      ...(secret ? { jwt_secret: secret } : {}),
      ...(jwksUrl !== (shown.jwks_url ?? '') ? { jwks_url: jwksUrl || null } : {}),
      ...(issuer !== (shown.issuer ?? '') ? { issuer: issuer || null } : {}),
      ...(audience !== (shown.audience ?? '') ? { audience: audience || null } : {}),
      client_publish: lines(publish),
      essential_categories: lines(essential),
    },
  }))
  return (
    <FormDialog title={t('page.settings')} submit={t('action.save')} busy={save.busy} error={save.error} onClose={() => onClose(false)} onSubmit={() => void save.run().then((done) => done && onClose(true))}>
      <TextField label={t('settings.secret')} hint={t('settings.secretHint')} value={secret} onChange={setSecret} mono />
      <div class="row"><Button small onClick={() => setSecret(secretText())}>{t('credential.generate', { name: t('settings.secret') })}</Button></div>
      <TextField label={t('settings.jwksUrl')} type="url" hint={t('field.optional')} value={jwksUrl} onChange={setJwksUrl} mono />
      {operator && <TextField label={t('settings.issuer')} hint={t('field.optional')} value={issuer} onChange={setIssuer} mono />}
      {operator && <TextField label={t('settings.audience')} hint={t('field.optional')} value={audience} onChange={setAudience} mono />}
      <TextArea label={t('settings.publish')} hint={t('field.lines')} value={publish} onChange={setPublish} rows={3} mono />
      <TextArea label={t('settings.essential')} hint={t('settings.essentialHint')} value={essential} onChange={setEssential} rows={3} mono />
    </FormDialog>
  )
}
