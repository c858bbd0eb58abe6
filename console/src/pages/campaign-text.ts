/** Campaigns in words. */

import type { Schemas } from '../api/client'
import { t, tValue } from '../i18n'

export function audienceText(audience: Schemas['Audience']): string {
  const { everyone, topic, condition, upload, devices } = audience
  const whom = everyone ? tValue('target', 'everyone')
    : topic ? `${tValue('target', 'topic')}: ${topic}`
    : condition ? `${tValue('target', 'condition')}: ${condition}`
    : upload ? t('audience.upload')
    : t('audience.devices')
  const filters = Object.values(devices ?? {}).filter((value) => value !== null).length
  return filters > 0 ? `${whom} · ${t('audience.filters', { count: filters })}` : whom
}

export const messageTitle = ({ message }: { message: Schemas['CampaignMessage'] }): string | undefined =>
  message.notification?.title ?? undefined
