/** "Confirm your login": asked when the server refuses a dangerous action; the action then continues. */

import { useState } from 'preact/hooks'

import { body, session as api } from '../api/client'
import { t } from '../i18n'
import { FormDialog } from '../ui/dialog'
import { TextField } from '../ui/field'
import { useAction } from './action'
import { confirming, session } from './session'

export function ConfirmLogin() {
  return confirming.value ? <Confirm answer={confirming.value.answer} /> : null
}

function Confirm({ answer }: { answer(confirmed: boolean): void }) {
  const [password, setPassword] = useState('')
  const [code, setCode] = useState('')
  const person = session.value?.person
  const possible = person?.password || person?.totp
  const confirm = useAction(async () => {
    session.value = await body(api.POST('/v1/session/confirm', { body: code ? { code } : { password } }))
    answer(true)
  })
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
        <TextField label={t('session.code')} hint={person.password ? t('confirm.code') : undefined} inputmode="numeric" autocomplete="one-time-code" value={code} onChange={setCode} mono />
      )}
    </FormDialog>
  )
}
