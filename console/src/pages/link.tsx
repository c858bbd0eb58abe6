/** `/console/link#token=…`: signs in with a one-time link. The token leaves the address bar at once. */

import { useEffect, useState } from 'preact/hooks'

import { body, session as api } from '../api/client'
import { useAction } from '../app/action'
import { Outside } from '../app/outside'
import { address, go } from '../app/router'
import { session } from '../app/session'
import { takeToken } from '../app/token'
import { t } from '../i18n'
import { ErrorBox } from '../ui/error'
import { Skeleton } from '../ui/skeleton'

export default function Link() {
  const [token] = useState(takeToken)
  const signIn = useAction(async () => {
    session.value = await body(api.POST('/v1/session/link', { body: { token } }))
    go(address('overview'), 'replace')
  })
  useEffect(() => {
    if (token) void signIn.run()
  }, [])
  return (
    <Outside title={t('page.link')}>
      {!token && <p>{t('link.noToken')}</p>}
      {signIn.busy && <Skeleton rows={2} />}
      <ErrorBox error={signIn.error} />
      {(!token || signIn.error !== undefined) && <p><a href={address('overview')}>{t('link.toSignIn')}</a></p>}
    </Outside>
  )
}
