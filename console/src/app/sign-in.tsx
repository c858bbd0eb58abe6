/** Sign-in: password, then the second factor if the person has one, or a provider of identities. */

import { useState } from 'preact/hooks'

import { API, body, session as api } from '../api/client'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { ErrorBox } from '../ui/error'
import { TextField } from '../ui/field'
import { Skeleton } from '../ui/skeleton'
import { useAction } from './action'
import { useLoad } from './load'
import { LogInFailure } from './log-in-failure'
import { Outside } from './outside'
import { address, place } from './router'
import { session } from './session'

export function SignIn() {
  const [ticket, setTicket] = useState<string | undefined>(undefined)
  return (
    <Outside title={ticket ? t('signIn.second') : t('signIn.title')}>
      {ticket ? <SecondFactor ticket={ticket} back={() => setTicket(undefined)} /> : <FirstFactor next={setTicket} />}
    </Outside>
  )
}

function FirstFactor({ next }: { next(ticket: string): void }) {
  const [email, setEmail] = useState('')
  const [password, setPassword] = useState('')
  const methods = useLoad('methods', () => body(api.GET('/v1/session/methods')))
  const signIn = useAction(async () => {
    const answer = await body(api.POST('/v1/session', { body: { email, password } }))
    if ('next' in answer) next(answer.ticket)
    else session.value = answer
  })
  if (methods.error) return <ErrorBox error={methods.error} retry={methods.reload} />
  if (!methods.data) return <Skeleton rows={3} />
  const failedAt = methods.data.oidc.find(({ name }) => name === place.value.query.get('provider'))
  return (
    <>
      <LogInFailure provider={failedAt?.title} />
      {methods.data.password && (
        <form class="stack" onSubmit={(event) => { event.preventDefault(); void signIn.run() }}>
          <TextField label={t('session.email')} type="email" autocomplete="username" value={email} onChange={setEmail} required autofocus />
          <TextField label={t('session.password')} type="password" autocomplete="current-password" value={password} onChange={setPassword} required />
          <ErrorBox error={signIn.error} />
          <Button type="submit" kind="primary" busy={signIn.busy}>{t('signIn.submit')}</Button>
        </form>
      )}
      {methods.data.password && methods.data.oidc.length > 0 && <p class="or"><span>{t('signIn.or')}</span></p>}
      {methods.data.oidc.length > 0 && (
        <div class="stack">
          {methods.data.oidc.map(({ name, title }) => (
            <a key={name} class="button plain" href={`${API}/v1/session/oidc/${encodeURIComponent(name)}?${new URLSearchParams({ to: here() })}`}>{t('signIn.with', { provider: title })}</a>
          ))}
        </div>
      )}
    </>
  )
}

/** The present address without the reason of a failed log-in. */
function here(): string {
  const { log_in: _, provider: __, ...query } = Object.fromEntries(place.value.query)
  return address(place.value.page, query)
}

function SecondFactor({ ticket, back }: { ticket: string; back(): void }) {
  const [code, setCode] = useState('')
  const signIn = useAction(async () => {
    session.value = await body(api.POST('/v1/session/totp', { body: { ticket, code: code.replaceAll(' ', '') } }))
  })
  return (
    <form class="stack" onSubmit={(event) => { event.preventDefault(); void signIn.run() }}>
      <TextField label={t('session.code')} hint={t('signIn.codeHint')} inputmode="numeric" autocomplete="one-time-code" value={code} onChange={setCode} required mono autofocus />
      <ErrorBox error={signIn.error} />
      <Button type="submit" kind="primary" busy={signIn.busy}>{t('signIn.submit')}</Button>
      <Button kind="quiet" onClick={back}>{t('action.back')}</Button>
    </form>
  )
}
