/** The fields of the composer, and the definition of a draft that they become. */

import { fromInput, toInput } from '../app/local-time'

/** A campaign's request as its author wrote it; parts may be missing or invalid. */
export type Definition = Readonly<Record<string, unknown>>

export const WHOM = ['everyone', 'topic', 'condition', 'upload', 'devices'] as const
export const PLATFORMS = ['ios', 'android', 'web'] as const
export const STEPS = ['audience', 'message', 'schedule', 'review'] as const
export type Step = (typeof STEPS)[number]

export interface Words { title: string; text: string }
export interface Translation extends Words { locale: string }

export interface Draft extends Words {
  name: string
  whom: (typeof WHOM)[number]
  topic: string
  condition: string
  platforms: readonly (typeof PLATFORMS)[number][]
  url: string
  translations: readonly Translation[]
  variables: Readonly<Record<string, string>>
  startAt: string
  localTime: string
  quiet: boolean
  quietFrom: string
  quietTo: string
  rate: string
}

export const EMPTY: Draft = {
  name: '', whom: 'everyone', topic: '', condition: '', platforms: [], title: '', text: '', url: '', translations: [], variables: {},
  startAt: '', localTime: '', quiet: false, quietFrom: '22:00', quietTo: '08:00', rate: '',
}

const record = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? value as Record<string, unknown> : {}
const string = (value: unknown): string => (typeof value === 'string' ? value : '')
const orNull = <T>(value: T, keep: boolean): T | null => (keep ? value : null)

/**
 * The fields that the composer changes; null removes one. Fields that it does not show stay as they are in `base`: an
 * experiment, filters by tag, data, sounds.
 */
export function toDefinition(draft: Draft, base: Definition = {}): Record<string, unknown> {
  const known = record(base['audience'])
  const filter = Object.fromEntries(Object.entries(record(known['devices'])).filter(([name]) => name !== 'platforms'))
  const devices = { ...filter, ...(draft.platforms.length > 0 ? { platforms: [...draft.platforms] } : {}) }
  const hasFilter = draft.whom !== 'upload' && (Object.keys(devices).length > 0 || draft.whom === 'devices')
  const message = record(base['message'])
  const locales = record(base['locales'])
  const words = (former: unknown, { title, text }: Words): Record<string, unknown> =>
    clean({ ...record(former), title, body: text })
  const notification = clean({ ...words(message['notification'], draft), url: draft.url })
  const translated = draft.translations.filter(({ locale }) => locale)
    .map((one) => [one.locale, { ...record(locales[one.locale]), notification: words(record(locales[one.locale])['notification'], one) }])
  const variables = Object.fromEntries(Object.entries(draft.variables).filter(([, value]) => value !== ''))
  const startAt = fromInput(draft.startAt)
  return {
    name: orNull(draft.name, draft.name !== ''),
    audience: {
      ...(draft.whom === 'everyone' ? { everyone: true } : {}),
      ...(draft.whom === 'topic' ? { topic: draft.topic } : {}),
      ...(draft.whom === 'condition' ? { condition: draft.condition } : {}),
      ...(draft.whom === 'upload' ? { upload: true } : {}),
      ...(hasFilter ? { devices } : {}),
    },
    message: { ...message, ...(Object.keys(notification).length > 0 ? { notification } : {}) },
    locales: orNull(Object.fromEntries(translated), translated.length > 0),
    variables: orNull(variables, Object.keys(variables).length > 0),
    start_at: startAt ?? null,
    local_time: orNull(draft.localTime, draft.localTime !== ''),
    quiet_hours: orNull({ from: draft.quietFrom, to: draft.quietTo }, draft.quiet),
    rate_per_second: orNull(Number(draft.rate), draft.rate !== ''),
  }
}

/** Without empty texts. */
const clean = (fields: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== ''))

/** For a new draft, which has no fields to remove. */
export const withoutNulls = (fields: Record<string, unknown>): Record<string, unknown> =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null))

export function fromDefinition(definition: Definition): Draft {
  const audience = record(definition['audience'])
  const notification = record(record(definition['message'])['notification'])
  const quiet = record(definition['quiet_hours'])
  const whom = WHOM.find((one) => one !== 'devices' && audience[one] !== undefined) ?? (audience['devices'] ? 'devices' : 'everyone')
  const platforms = record(audience['devices'])['platforms']
  const rate = definition['rate_per_second']
  return {
    name: string(definition['name']),
    whom,
    topic: string(audience['topic']),
    condition: string(audience['condition']),
    platforms: PLATFORMS.filter((one) => Array.isArray(platforms) && platforms.includes(one)),
    title: string(notification['title']),
    text: string(notification['body']),
    url: string(notification['url']),
    translations: Object.entries(record(definition['locales'])).map(([locale, one]) => {
      const words = record(record(one)['notification'])
      return { locale, title: string(words['title']), text: string(words['body']) }
    }),
    variables: Object.fromEntries(Object.entries(record(definition['variables'])).map(([name, value]) => [name, string(value)])),
    startAt: toInput(string(definition['start_at'])),
    localTime: string(definition['local_time']),
    quiet: definition['quiet_hours'] !== undefined,
    quietFrom: string(quiet['from']) || EMPTY.quietFrom,
    quietTo: string(quiet['to']) || EMPTY.quietTo,
    rate: typeof rate === 'number' ? String(rate) : '',
  }
}

const PLACEHOLDER = /\{\{\s*([A-Za-z0-9_.-]{1,64})\s*\}\}/g

/** The placeholders of all texts, each once. */
export function placeholders({ title, text, translations }: Draft): string[] {
  const texts = [title, text, ...translations.flatMap((one) => [one.title, one.text])]
  return [...new Set(texts.flatMap((one) => [...one.matchAll(PLACEHOLDER)].map((match) => match[1] ?? '')))]
}

/** As the server fills it: a recipient's own value, else the default. One without a value stays visible. */
export const fill = (text: string, own: Readonly<Record<string, string>>, defaults: Readonly<Record<string, string>>): string =>
  text.replace(PLACEHOLDER, (whole, name: string) => valueOf(own, name) ?? (valueOf(defaults, name) || whole))

/** The value of a placeholder; `constructor` has one only if it was set. */
export const valueOf = (values: Readonly<Record<string, string>>, name: string): string | undefined =>
  Object.hasOwn(values, name) ? values[name] : undefined

/** The words that a device with this language gets: the exact tag, else that of a prefix, else the message's own. */
export function wordsFor({ title, text, translations }: Draft, locale: string | null | undefined): Words {
  const find = (tag: string) => translations.find((one) => one.locale.toLowerCase() === tag)
  for (let tag = (locale ?? '').replaceAll('_', '-').toLowerCase(); tag; tag = tag.includes('-') ? tag.slice(0, tag.lastIndexOf('-')) : '') {
    const found = find(tag)
    if (found) return { title: found.title || title, text: found.text || text }
  }
  return { title, text }
}

/** The step that shows a field of the definition. */
export function stepOf(field: string | null): Step {
  const name = (field ?? '').split('.')[0] ?? ''
  if (['name', 'audience'].includes(name)) return 'audience'
  if (['start_at', 'local_time', 'quiet_hours', 'rate_per_second', 'lane', 'batch_size'].includes(name)) return 'schedule'
  return 'message'
}
