/** The app's own names in examples: one user, device, topic and so on, as far as the person may read them. */

import { admin, body, provider, session as api } from '../api/client'
import { canEverywhere, can, session } from '../app/session'
import type { Listed } from './document'

export type Names = Readonly<Record<string, string>>

/** What each parameter of a path names, by the part of the path before it. */
const KINDS: Readonly<Record<string, string>> = {
  apps: 'app', devices: 'device', users: 'user', topics: 'topic', campaigns: 'campaign', activities: 'activity',
  notifications: 'notification', channels: 'channel', experiments: 'experiment', notices: 'notice', keys: 'key', push: 'credential',
  people: 'person', invitations: 'invitation', sessions: 'session', roles: 'app',
}

/** Names of parameters of a path with what they name: `id` of a campaign is a `campaign`. */
export function kindsIn(path: string): [parameter: string, kind: string][] {
  return [...path.matchAll(/([\w-]+)\/\{(\w+)\}/g)].flatMap(([, before = '', parameter = '']) => {
    const kind = KINDS[before]
    return kind ? [[parameter, kind] as [string, string]] : []
  })
}

type Read = () => Promise<string | null | undefined>
const first = <T>(list: readonly T[] | undefined): T | undefined => list?.[0]

function reads(app: string): Record<string, Read> {
  const path = { params: { path: { app } } }
  const one = { params: { query: { limit: 1 } } }
  const devices = async () => first((await body(provider.GET('/v1/devices', { params: { query: { limit: 20 } } }))).devices.filter(({ user }) => user))
  return {
    device: async () => (await devices())?.device ?? first((await body(provider.GET('/v1/devices', one))).devices)?.device,
    user: async () => (await devices())?.user,
    topic: async () => first((await body(provider.GET('/v1/topics', one))).topics)?.topic,
    campaign: async () => first((await body(provider.GET('/v1/campaigns', one))).campaigns)?.id,
    activity: async () => first((await body(provider.GET('/v1/activities', one))).activities)?.id,
    channel: async () => first((await body(provider.GET('/v1/push/channels', one))).channels)?.name,
    experiment: async () => first((await body(admin.GET('/v1/apps/{app}/experiments', path))).experiments)?.name,
    notice: async () => first((await body(admin.GET('/v1/apps/{app}/notices', path))).notices)?.name,
    key: async () => first((await body(admin.GET('/v1/apps/{app}/keys', path))).keys)?.id,
    credential: async () => first((await body(admin.GET('/v1/apps/{app}/push', path))).credentials)?.id,
    session: async () => (await body(api.GET('/v1/sessions'))).sessions.find(({ current }) => !current)?.id,
  }
}

/** A name that cannot be read is left out: the field of the form stays empty. */
export async function namesFor({ path }: Listed, app: string | undefined, bodyNeeds: readonly string[]): Promise<Names> {
  if (app === undefined) return {}
  const known: Record<string, string> = { app }
  const me = session.value?.person.id
  if (me !== undefined && canEverywhere('own')) known['person'] = me
  if (!can('read')) return known
  const readers = reads(app)
  const wanted = new Set([...kindsIn(path).map(([, kind]) => kind), ...bodyNeeds])
  await Promise.all([...wanted].map(async (kind) => {
    const name = await readers[kind]?.().catch(() => undefined)
    if (name) known[kind] = name
  }))
  return known
}

const HOLDERS = /^(to|audience)$/
/** Examples that register something would change what they name. */
const KEEPS: ReadonlySet<string> = new Set(['registerDevice', 'importDevices'])

/** Replaces the recipients of an example with the app's own. */
export function personal(value: unknown, names: Names, id: string): unknown {
  return KEEPS.has(id) ? value : replace(value, names, id === 'presence')
}

function replace(value: unknown, names: Names, inside: boolean): unknown {
  if (Array.isArray(value)) return value.map((one) => replace(one, names, inside))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, one]) => {
    if (inside && key === 'users' && Array.isArray(one) && names['user']) return [key, [names['user']]]
    if (inside && key === 'devices' && Array.isArray(one) && names['device']) return [key, [names['device']]]
    if (inside && key === 'topic' && typeof one === 'string' && names['topic']) return [key, names['topic']]
    if (key === 'app' && typeof one === 'string' && one !== '*' && names['app']) return [key, names['app']]
    return [key, replace(one, names, HOLDERS.test(key))]
  }))
}
