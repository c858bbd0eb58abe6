/** The filter of the live tail: what people choose, how the address and the request have it. */

import type { TailKind } from './tail'

/** Kinds that people choose together. */
export const GROUPS = {
  accepted: ['accepted', 'routed'],
  delivered: ['kept', 'written', 'acked', 'opened'],
  dropped: ['dropped', 'expired'],
  push: ['push_skipped', 'push_sent', 'push_answered', 'token_invalidated'],
  connections: ['registered', 'connected', 'closed'],
  rejected: ['rejected'],
  other: ['campaign', 'exposed'],
} as const satisfies Record<string, readonly TailKind[]>
export type Group = keyof typeof GROUPS
export const GROUP_NAMES = Object.keys(GROUPS) as Group[]

/** Every kind is in a group: a new one in the OpenAPI document fails here. */
type Missing = Exclude<TailKind, (typeof GROUPS)[Group][number]>
export const complete: [Missing] extends [never] ? true : Missing = true

export const FIELDS = ['user', 'device', 'topic', 'notification', 'campaign'] as const
export type Filter = Partial<Record<(typeof FIELDS)[number], string>> & { groups: readonly Group[] }

/** The filter in the address: `show` has the groups; without it, all. */
export function filterOf(query: URLSearchParams): Filter {
  const shown = query.get('show')?.split(',')
  const groups = GROUP_NAMES.filter((name) => !shown || shown.includes(name))
  const fields = Object.fromEntries(FIELDS.map((name) => [name, query.get(name)?.trim()]).filter(([, value]) => value))
  return { ...fields, groups: groups.length > 0 ? groups : GROUP_NAMES }
}

/** The parameters of the address. */
export function valuesOf(filter: Filter): Record<string, string | undefined> {
  const some = filter.groups.length > 0 && filter.groups.length < GROUP_NAMES.length
  return { ...Object.fromEntries(FIELDS.map((name) => [name, filter[name]?.trim() || undefined])), show: some ? filter.groups.join(',') : undefined }
}

/** The parameters of the request. */
export function queryOf({ groups, ...fields }: Filter): Record<string, string> {
  const kinds = groups.length < GROUP_NAMES.length ? { kinds: groups.flatMap((name) => GROUPS[name]).join(',') } : {}
  return { ...fields, ...kinds }
}
