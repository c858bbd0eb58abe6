/** `/console/confirmed`: the end of a confirmation at a provider, in a window of its own. Tells the page that waits, and closes. */

import { useEffect } from 'preact/hooks'

import { failure, LogInFailure } from '../app/log-in-failure'
import { Outside } from '../app/outside'
import { CONFIRMATIONS } from '../app/session'
import { t } from '../i18n'

export default function Confirmed() {
  const failed = failure()
  useEffect(() => {
    const channel = new BroadcastChannel(CONFIRMATIONS)
    channel.postMessage(failed ?? '')
    channel.close()
    // Browsers close only windows that a script opened.
    if (!failed) window.close()
  }, [])
  return (
    <Outside title={t('confirmed.title')}>
      <LogInFailure provider={undefined} />
      <p>{failed ? t('confirmed.failed') : t('confirmed.done')}</p>
    </Outside>
  )
}
