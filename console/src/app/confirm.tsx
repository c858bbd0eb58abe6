/** "Confirm your login": asked when the server refuses a dangerous action; the action then continues. */

import { useEffect, useState } from 'preact/hooks'

import { API, body, session as api } from '../api/client'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { Dialog, FormDialog } from '../ui/dialog'
import { ErrorBox } from '../ui/error'
import { TextField } from '../ui/field'
import { useAction } from './action'
import { failure, failureText } from './log-in-failure'
import { CONFIRMATIONS, confirming, loadSession, session } from './session'

export function ConfirmLogin() {
  // The frame goes when the session ends: the requests that wait fail.
  useEffect(() => () => confirming.value?.answer(false), [])
  return confirming.value ? <Confirm answer={confirming.value.answer} /> : null
}

function Confirm({ answer }: { answer(confirmed: boolean): void }) {
  const [password, setPassword] = useState('')
  const [code, setCode] = useState('')
  const person = session.value?.person
  const possible = person?.password || person?.totp
  const provider = person?.openid
  const confirm = useAction(async () => {
    session.value = await body(api.POST('/v1/session/confirm', { body: code ? { code: code.replaceAll(' ', '') } : { password } }))
    answer(true)
  })
  if (!possible && provider?.name) return <ConfirmAtProvider name={provider.name} title={provider.title} answer={answer} />
  return (
    <FormDialog
      title={t('confirm.title')}
      submit={t('confirm.submit')}
      busy={confirm.busy}
      error={confirm.error}
      reason={possible ? undefined : t('confirm.impossible')}
      onSubmit={() => void confirm.run()}
      onClose={() => answer(false)}
    >
      <p>{possible ? t('confirm.text') : t('confirm.impossible')}</p>
      {/* Password managers need the name that belongs to the password. */}
      <input class="hidden" type="text" autocomplete="username" value={person?.email ?? ''} readOnly tabIndex={-1} aria-hidden="true" />
      {person?.password && (
        <TextField label={t('session.password')} type="password" autocomplete="current-password" value={password} onChange={setPassword} required={!code} autofocus />
      )}
      {person?.totp && (
        <TextField label={t('session.code')} hint={person.password ? t('confirm.code') : undefined} inputmode="numeric" autocomplete="one-time-code" value={code} onChange={setCode} required={!person.password} mono />
      )}
    </FormDialog>
  )
}

/** For people without a password: they log in at the provider once more, in a window of its own, so that this page stays. */
function ConfirmAtProvider({ name, title, answer }: { name: string; title: string; answer(confirmed: boolean): void }) {
  const [blocked, setBlocked] = useState(false)
  const [failed, setFailed] = useState<string | undefined>(undefined)
  const [error, setError] = useState<unknown>(undefined)
  useEffect(() => {
    const channel = new BroadcastChannel(CONFIRMATIONS)
    channel.onmessage = ({ data }: MessageEvent<unknown>) => {
      if (data) setFailed(reasonText(String(data), title))
      else loadSession().then(() => answer(true), setError)
    }
    return () => channel.close()
  }, [])
  const open = (): void => {
    setFailed(undefined)
    const to = `${API}/v1/session/oidc/${encodeURIComponent(name)}?confirm=true`
    setBlocked(window.open(to, CONFIRMATIONS, 'popup,width=520,height=720') === null)
  }
  return (
    <Dialog title={t('confirm.title')} onClose={() => answer(false)}>
      <div class="dialog-body">
        <p>{t('confirm.providerText', { provider: title })}</p>
        {(blocked || failed) && <div class="error-box" role="alert"><div><p class="error-title">{blocked ? t('confirm.blocked') : failed}</p></div></div>}
        <ErrorBox error={error} />
      </div>
      <footer class="dialog-actions">
        <Button onClick={() => answer(false)}>{t('action.cancel')}</Button>
        <Button kind="primary" onClick={open}>{t('confirm.provider', { provider: title })}</Button>
      </footer>
    </Dialog>
  )
}

const reasonText = (reason: string, provider: string): string =>
  failureText(failure(new URLSearchParams({ log_in: reason })) ?? 'failed', provider)
