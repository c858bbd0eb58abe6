import { useState } from 'preact/hooks'

import { session as api } from '../api/client'
import { useAction } from '../app/action'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { ErrorBox } from '../ui/error'
import { TextField } from '../ui/field'
import { toast } from '../ui/toast'
import { PASSWORD_MIN } from './password-rule'

export function Password() {
  const [current, setCurrent] = useState('')
  const [next, setNext] = useState('')
  const change = useAction(async () => {
    await api.PUT('/v1/session/password', { body: { current, new: next } })
    setCurrent('')
    setNext('')
    toast(t('account.passwordChanged'))
  })
  return (
    <form class="stack narrow" onSubmit={(event) => { event.preventDefault(); void change.run() }}>
      <TextField label={t('account.currentPassword')} type="password" autocomplete="current-password" value={current} onChange={setCurrent} required />
      <TextField label={t('session.newPassword')} hint={t('session.passwordHint', { min: PASSWORD_MIN })} type="password" autocomplete="new-password" minlength={PASSWORD_MIN} value={next} onChange={setNext} required />
      <p class="soft">{t('account.passwordText')}</p>
      <ErrorBox error={change.error} />
      <div class="row"><Button type="submit" kind="primary" busy={change.busy}>{t('account.changePassword')}</Button></div>
    </form>
  )
}
