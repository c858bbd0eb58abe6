/** The fields of the composer, and the request that they become. */

import type { Schemas } from '../api/client'
import { fromInput } from '../app/local-time'

type NewCampaign = Schemas['NewCampaign']
export const WHOM = ['everyone', 'topic', 'condition', 'upload'] as const
export const PLATFORMS = ['ios', 'android', 'web'] as const

export interface Draft {
  name: string
  whom: (typeof WHOM)[number]
  topic: string
  condition: string
  platforms: readonly (typeof PLATFORMS)[number][]
  title: string
  text: string
  url: string
  translations: readonly { locale: string; title: string; text: string }[]
  startAt: string
  localTime: string
  quiet: boolean
  quietFrom: string
  quietTo: string
  rate: string
}

export const EMPTY: Draft = {
  name: '', whom: 'everyone', topic: '', condition: '', platforms: [], title: '', text: '', url: '', translations: [],
  startAt: '', localTime: '', quiet: false, quietFrom: '22:00', quietTo: '08:00', rate: '',
}

export function toCampaign(draft: Draft): NewCampaign {
  const startAt = fromInput(draft.startAt)
  const words = ({ title, text }: { title: string; text: string }) => ({ title, ...(text ? { body: text } : {}) })
  return {
    ...(draft.name ? { name: draft.name } : {}),
    audience: {
      ...(draft.whom === 'everyone' ? { everyone: true as const } : {}),
      ...(draft.whom === 'topic' ? { topic: draft.topic } : {}),
      ...(draft.whom === 'condition' ? { condition: draft.condition } : {}),
      ...(draft.whom === 'upload' ? { upload: true as const } : {}),
      ...(draft.platforms.length > 0 ? { devices: { platforms: [...draft.platforms] } } : {}),
    },
    message: { notification: { ...words(draft), ...(draft.url ? { url: draft.url } : {}) } },
    ...(draft.translations.length > 0 ? { locales: Object.fromEntries(draft.translations.filter(({ locale }) => locale).map((one) => [one.locale, { notification: words(one) }])) } : {}),
    ...(startAt ? { start_at: startAt } : {}),
    ...(draft.localTime ? { local_time: draft.localTime } : {}),
    ...(draft.quiet ? { quiet_hours: { from: draft.quietFrom, to: draft.quietTo } } : {}),
    ...(draft.rate ? { rate_per_second: Number(draft.rate) } : {}),
    start: false,
  }
}
