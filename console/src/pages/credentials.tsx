/** Credentials of push services: state of the breaker, test, tokens to restore. */

import { useState } from 'preact/hooks'

import { admin, type AdminSchemas, body } from '../api/client'
import { perform, useAction } from '../app/action'
import { number } from '../app/format'
import { useLoad } from '../app/load'
import { fromInput } from '../app/local-time'
import { app, refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge, State } from '../ui/badge'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { TextField } from '../ui/field'
import { Head, Section } from '../ui/head'
import { Skeleton } from '../ui/skeleton'
import { toast } from '../ui/toast'
import { When } from '../ui/when'
import { CredentialForm } from './credential-form'
import { Rotation } from './credential-rotation'
import { Invalidations } from './invalidations'

type Credential = AdminSchemas['PushCredential']
const REFRESH_MS = 10_000

export default function Credentials() {
  const name = app.value ?? ''
  const [adding, setAdding] = useState(false)
  const load = useLoad(`credentials ${name}`, async () => (await body(admin.GET('/v1/apps/{app}/push', { params: { path: { app: name } } }))).credentials, REFRESH_MS)
  const add = <Button kind="primary" icon="plus" reason={refusal('manage')} onClick={() => setAdding(true)}>{t('credentials.add')}</Button>
  return (
    <>
      <Head title={t('page.credentials')} text={t('credentials.lead')}>{add}</Head>
      <ErrorBox error={load.error} retry={load.reload} />
      {!load.data && !load.error && <Skeleton rows={6} />}
      {load.data?.length === 0 && <Empty icon="send" title={t('credentials.empty')} text={t('credentials.empty.text')}>{add}</Empty>}
      <div class="cards">{load.data?.map((credential) => <Card key={credential.id} app={name} credential={credential} reload={load.reload} />)}</div>
      <Section title={t('invalidations.title')}><Invalidations /></Section>
      {adding && <CredentialForm app={name} onClose={(saved) => { setAdding(false); if (saved) load.reload() }} />}
    </>
  )
}

interface CardProps { app: string; credential: Credential; reload(): void }

function Card({ app: name, credential, reload }: CardProps) {
  const { id, service, environment, state, settings } = credential
  const [testing, setTesting] = useState(false)
  const [rotating, setRotating] = useState(false)
  const [restoring, setRestoring] = useState(false)
  const reason = refusal('manage')
  const title = [tValue('service', service), credential.name].filter(Boolean).join(' · ')

  async function remove(): Promise<void> {
    if (!(await ask({ title: t('credentials.remove'), text: t('credentials.remove.text', { name: title }), confirm: t('action.remove') }))) return
    if (await perform(() => admin.DELETE('/v1/apps/{app}/push/{id}', { params: { path: { app: name, id } } }), t('credentials.removed'))) reload()
  }

  return (
    <article class="card" aria-label={title}>
      <header class="card-head">
        <h2>{title}</h2>
        {service === 'apns' && <Badge>{tValue('environment', environment)}</Badge>}
        {state ? <State value={state.breaker} /> : <Badge>{t('credentials.unused')}</Badge>}
      </header>
      {state?.reason && <p class="bad-text">{state.reason}</p>}
      <Facts facts={[
        state ? [t('credentials.inFlight'), `${number(state.in_flight)} · ${t('credentials.waiting', { count: state.waiting })}`] : undefined,
        state ? [t('nodes.connections'), number(state.connections)] : undefined,
        state?.open_until ? [t('credentials.openUntil'), <When at={state.open_until} exact />] : undefined,
        state?.paused_until ? [t('credentials.pausedUntil'), <When at={state.paused_until} exact />] : undefined,
        state?.last_error ? [t('credentials.lastError'), <><code>{state.last_error.reason}</code> <When at={state.last_error.at} /></>] : undefined,
        [t('column.created'), <When at={credential.created_at} />],
      ]} />
      <details>
        <summary>{t('credentials.settings')}</summary>
        <CodeBlock label={`${t('credentials.settings')} ${title}`} value={settings} />
      </details>
      <footer class="card-actions">
        <Button small reason={reason} onClick={() => setTesting(true)}>{t('credentials.test')}</Button>
        <Button small reason={reason} onClick={() => setRotating(true)}>{t('credentials.rotate')}</Button>
        <Button small reason={reason} onClick={() => setRestoring(true)}>{t('credentials.restore')}</Button>
        <Button small kind="danger" reason={reason} onClick={() => void remove()}>{t('action.remove')}</Button>
      </footer>
      {testing && <Test app={name} id={id} title={title} onClose={() => { setTesting(false); reload() }} />}
      {rotating && <Rotation app={name} credential={credential} title={title} onClose={() => { setRotating(false); reload() }} />}
      {restoring && <Restore app={name} id={id} onClose={() => setRestoring(false)} />}
    </article>
  )
}

function Test({ app: name, id, title, onClose }: { app: string; id: string; title: string; onClose(): void }) {
  const [device, setDevice] = useState('')
  const [answer, setAnswer] = useState<AdminSchemas['PushTested'] | undefined>(undefined)
  const test = useAction(async () => setAnswer(await body(admin.POST('/v1/apps/{app}/push/{id}/test', { params: { path: { app: name, id } }, body: { device } }))))
  return (
    <FormDialog title={t('credentials.testOf', { name: title })} submit={t('credentials.test')} busy={test.busy} error={test.error} onClose={onClose} onSubmit={() => void test.run()}>
      <p>{t('credentials.test.text')}</p>
      <TextField label={t('kind.device')} value={device} onChange={setDevice} required mono autofocus />
      {answer && (
        <div role="status" class="panel">
          <p><Badge tone={answer.answer === 'accepted' ? 'good' : 'bad'}>{tValue('push.answer', answer.answer)}</Badge> {answer.reason && <code>{answer.reason}</code>}</p>
          <p lang="en">{answer.explain}</p>
        </div>
      )}
    </FormDialog>
  )
}

function Restore({ app: name, id, onClose }: { app: string; id: string; onClose(): void }) {
  const [since, setSince] = useState('')
  const [reason, setReason] = useState('')
  const restore = useAction(async () => {
    const at = fromInput(since)
    const answer = await body(admin.POST('/v1/apps/{app}/push/{id}/restore', {
      params: { path: { app: name, id } },
      body: { ...(at ? { since: at } : {}), ...(reason ? { reason } : {}) },
    }))
    toast(t('credentials.restored', { count: answer.restored }))
    onClose()
  })
  return (
    <FormDialog title={t('credentials.restore')} submit={t('credentials.restore')} busy={restore.busy} error={restore.error} onClose={onClose} onSubmit={() => void restore.run()}>
      <p>{t('credentials.restore.text')}</p>
      <TextField label={t('credentials.since')} type="datetime-local" hint={t('credentials.sinceHint')} value={since} onChange={setSince} />
      <TextField label={t('credentials.reason')} placeholder="BadDeviceToken" hint={t('credentials.reasonHint')} value={reason} onChange={setReason} mono />
    </FormDialog>
  )
}
