/** `/console/invitation#token=…`: the invited person chooses a name and a password. */

import { useState } from 'preact/hooks'

import { body, session as api } from '../api/client'
import { useAction } from '../app/action'
import { Outside } from '../app/outside'
import { address, go } from '../app/router'
import { session } from '../app/session'
import { takeToken } from '../app/token'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { ErrorBox } from '../ui/error'
import { TextField } from '../ui/field'
import { PASSWORD_MIN } from './password-rule'

export default function Invitation() {
  const [token] = useState(takeToken)
  const [name, setName] = useState('')
  const [password, setPassword] = useState('')
  const accept = useAction(async () => {
    session.value = await body(api.POST('/v1/invitations/accept', { body: { token, name, password } }))
    go(address('overview'), 'replace')
  })
  return (
    <Outside title={t('page.invitation')}>
      {token ? (
        <form class="stack" onSubmit={(event) => { event.preventDefault(); void accept.run() }}>
          <TextField label={t('session.name')} autocomplete="name" value={name} onChange={setName} required autofocus />
          <TextField label={t('session.newPassword')} hint={t('session.passwordHint', { min: PASSWORD_MIN })} type="password" autocomplete="new-password" minlength={PASSWORD_MIN} value={password} onChange={setPassword} required />
          <ErrorBox error={accept.error} />
          <Button type="submit" kind="primary" busy={accept.busy}>{t('invitation.accept')}</Button>
        </form>
      ) : <p>{t('link.noToken')}</p>}
    </Outside>
  )
}
