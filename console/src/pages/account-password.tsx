import { useState } from 'preact/hooks'

import { session as api } from '../api/client'
import { useAction } from '../app/action'
import { loadSession, session } from '../app/session'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { ErrorBox } from '../ui/error'
import { TextField } from '../ui/field'
import { toast } from '../ui/toast'
import { PASSWORD_MIN } from './password-rule'

export function Password() {
  const [current, setCurrent] = useState('')
  const [next, setNext] = useState('')
  const has = session.value?.person.password === true
  const change = useAction(async () => {
    await api.PUT('/v1/session/password', { body: { ...(has ? { current } : {}), new: next } })
    await loadSession()
    setCurrent('')
    setNext('')
    toast(t('account.passwordChanged'))
  })
  return (
    <form class="stack narrow" onSubmit={(event) => { event.preventDefault(); void change.run() }}>
      {has && <TextField label={t('account.currentPassword')} type="password" autocomplete="current-password" value={current} onChange={setCurrent} required />}
      <TextField label={t('session.newPassword')} hint={t('session.passwordHint', { min: PASSWORD_MIN })} type="password" autocomplete="new-password" minlength={PASSWORD_MIN} value={next} onChange={setNext} required />
      <p class="soft">{has ? t('account.passwordText') : t('account.noPassword')}</p>
      <ErrorBox error={change.error} />
      <div class="row"><Button type="submit" kind="primary" busy={change.busy}>{has ? t('account.changePassword') : t('account.setPassword')}</Button></div>
    </form>
  )
}
