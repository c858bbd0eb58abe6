/** The second factor: a QR code, a first code to prove that it works, recovery codes. */

import { useState } from 'preact/hooks'

import { body, session as api } from '../api/client'
import { perform, useAction } from '../app/action'
import { loadSession, session } from '../app/session'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Id } from '../ui/copy'
import { Dialog, FormDialog } from '../ui/dialog'
import { ErrorBox } from '../ui/error'
import { TextField } from '../ui/field'
import { QrCode } from '../ui/qr'

interface Secret { secret: string; uri: string }

export function SecondFactor() {
  const on = session.value?.person.totp === true
  const [secret, setSecret] = useState<Secret | undefined>(undefined)
  const [codes, setCodes] = useState<readonly string[] | undefined>(undefined)
  const begin = useAction(async () => setSecret(await body(api.POST('/v1/session/totp-secret'))))

  async function turnOff(): Promise<void> {
    if (!(await ask({ title: t('totp.off'), text: t('totp.off.text'), confirm: t('totp.off') }))) return
    await perform(async () => {
      await api.DELETE('/v1/session/totp-secret')
      await loadSession()
    }, t('totp.isOff'))
  }

  return (
    <div class="stack narrow">
      <p>{t('totp.text')}</p>
      <p>{on ? <Badge tone="good">{t('people.totpOn')}</Badge> : <Badge>{t('people.totpOff')}</Badge>}</p>
      <ErrorBox error={begin.error} />
      <div class="row">
        {on ? <Button kind="danger" onClick={() => void turnOff()}>{t('totp.off')}</Button>
          : <Button kind="primary" busy={begin.busy} onClick={() => void begin.run()}>{t('totp.on')}</Button>}
      </div>
      {secret && <SetUp secret={secret} onClose={() => setSecret(undefined)} onDone={(recovery) => { setSecret(undefined); setCodes(recovery) }} />}
      {codes && (
        <Dialog title={t('totp.recovery')} onClose={() => setCodes(undefined)}>
          <div class="dialog-body"><p>{t('totp.recovery.text')}</p><CodeBlock label={t('totp.recovery')} value={codes.join('\n')} /></div>
          <footer class="dialog-actions"><Button kind="primary" onClick={() => setCodes(undefined)}>{t('totp.saved')}</Button></footer>
        </Dialog>
      )}
    </div>
  )
}

function SetUp({ secret: { secret, uri }, onClose, onDone }: { secret: Secret; onClose(): void; onDone(codes: readonly string[]): void }) {
  const [code, setCode] = useState('')
  const turnOn = useAction(async () => {
    const answer = await body(api.PUT('/v1/session/totp-secret', { body: { code: code.replaceAll(' ', '') } }))
    await loadSession()
    onDone(answer.recovery_codes)
  })
  return (
    <FormDialog title={t('people.totp')} submit={t('totp.verify')} busy={turnOn.busy} error={turnOn.error} onClose={onClose} onSubmit={() => void turnOn.run()}>
      <p>{t('totp.scan')}</p>
      <QrCode text={uri} label={t('totp.qr')} />
      <p class="soft">{t('totp.manual')} <Id value={secret} /></p>
      <TextField label={t('session.code')} inputmode="numeric" autocomplete="one-time-code" value={code} onChange={setCode} required mono autofocus />
    </FormDialog>
  )
}
