/** The newest notifications of one user or device, with what happened to them there. */

import { t } from '../i18n'
import { Empty } from '../ui/empty'
import { NotificationTable, useNotifications } from './notification-table'

export function RecentNotifications(whose: { user: string } | { device: string }) {
  const load = useNotifications(whose)
  return (
    <>
      <p class="soft">{t('notifications.recent.text')}</p>
      <NotificationTable load={load} withRecipients empty={<Empty icon="bell" title={t('notifications.none')} text={t('notifications.recent.none')} />} />
    </>
  )
}
