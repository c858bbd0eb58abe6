/** The live tail: what it shows and states, how its filter stands in the address, and the stream itself. */

import { useEffect, useRef, useState } from 'preact/hooks'

import { ApiError } from '../api/error'
import { session as api, type SessionSchemas } from '../api/client'
import { attended } from './attendance'
import { eventReader } from './live'

export type TailEvent = SessionSchemas['TailEvent']
export type TailText = SessionSchemas['TailText']
export type TailKind = TailEvent['event']
export type Gap = TailText['gaps'][number]

/** Rows that the page keeps: some 20 s of a full stream. */
export const ROWS_MAX = 2000
/** A tail occupies one of few places of the node: nobody looks at it after this time. */
const UNATTENDED_MS = 15 * 60_000
const RETRY_FIRST_MS = 1000
const RETRY_MAX_MS = 30_000
/** After a change of the filter, the server may hold the place of the former tail for a moment. */
const FULL_MAX = 3

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

/** What the address has of a filter. */
export function valuesOf(filter: Filter): Record<string, string | undefined> {
  const some = filter.groups.length > 0 && filter.groups.length < GROUP_NAMES.length
  return { ...Object.fromEntries(FIELDS.map((name) => [name, filter[name]?.trim() || undefined])), show: some ? filter.groups.join(',') : undefined }
}

/** What the server is asked. */
export function queryOf({ groups, ...fields }: Filter): Record<string, string> {
  const kinds = groups.length < GROUP_NAMES.length ? { kinds: groups.flatMap((name) => GROUPS[name]).join(',') } : {}
  return { ...fields, ...kinds }
}

export interface Row { key: number; event: TailEvent }

export interface Tail {
  /** The newest first, at most `ROWS_MAX`. */
  rows: readonly Row[]
  /** While the list stands still: those that it will show, the newest first, at most `ROWS_MAX`. */
  held: readonly Row[]
  /** Events that the server left out, by kind. */
  omitted: ReadonlyMap<string, number>
  gaps: ReadonlySet<Gap>
  nodesMissing: number
  missing: readonly string[]
  /** Rows that the page dropped because it had too many. */
  dropped: number
  next: number
}

export const EMPTY: Tail = { rows: [], held: [], omitted: new Map(), gaps: new Set(), nodesMissing: 0, missing: [], dropped: 0, next: 0 }

/** With the events of a text; `still`: the list stands still. */
export function received(tail: Tail, text: TailText, still: boolean): Tail {
  const fresh = text.events.map((event, index) => ({ key: tail.next + index, event })).reverse()
  const omitted = new Map(tail.omitted)
  for (const [kind, count] of Object.entries(text.omitted)) omitted.set(kind, (omitted.get(kind) ?? 0) + count)
  const all = [...fresh, ...(still ? tail.held : tail.rows)]
  const kept = all.length > ROWS_MAX ? all.slice(0, ROWS_MAX) : all
  return {
    ...tail,
    ...(still ? { held: kept } : { rows: kept }),
    omitted,
    gaps: new Set([...tail.gaps, ...text.gaps]),
    nodesMissing: text.nodes_missing,
    missing: text.missing ?? [],
    dropped: tail.dropped + all.length - kept.length,
    next: tail.next + fresh.length,
  }
}

/** Adds the held rows to the list. */
export function resumed(tail: Tail): Tail {
  const all = [...tail.held, ...tail.rows]
  return { ...tail, rows: all.slice(0, ROWS_MAX), held: [], dropped: tail.dropped + Math.max(0, all.length - ROWS_MAX) }
}

/** All rows as JSON, the oldest first. */
export const json = (rows: readonly Row[]): string => JSON.stringify(rows.map(({ event }) => event).reverse(), null, 2)

async function follow(filter: Filter, signal: AbortSignal, show: (text: TailText) => void): Promise<void> {
  const { data } = await api.GET('/v1/tail', { params: { query: queryOf(filter) }, parseAs: 'stream', signal })
  const reader = (data as ReadableStream<Uint8Array> | null | undefined)?.getReader()
  const read = eventReader()
  while (reader) {
    const { done, value } = await reader.read()
    if (done) return
    for (const text of read(value)) show(JSON.parse(text) as TailText)
  }
}

export type TailState = 'stopped' | 'unattended' | 'connecting' | 'live' | 'still' | 'broken' | 'refused'

export interface TailView {
  tail: Tail
  state: TailState
  error: unknown
  start(): void
  stop(): void
  pause(): void
  resume(): void
  clear(): void
}

/** The tail of an app with a filter. It begins at once, and again after it broke; a refusal stays one. */
export function useTail(app: string, filter: Filter): TailView {
  const [tail, setTail] = useState(EMPTY)
  const [state, setState] = useState<TailState>('connecting')
  const [error, setError] = useState<unknown>()
  const [round, setRound] = useState(0)
  const still = useRef(false)
  const stream = useRef<{ end(): void } | undefined>(undefined)
  const asked = JSON.stringify([app, queryOf(filter)])

  const setStill = (value: boolean): void => {
    still.current = value
    setState((before) => (before === 'live' || before === 'still' ? (value ? 'still' : 'live') : before))
    if (!value) setTail(resumed)
  }
  /** The list then has the held events too: no button would show them later. */
  const stop = (as: TailState = 'stopped'): void => {
    stream.current?.end()
    stream.current = undefined
    setStill(false)
    setState(as)
  }

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined
    let pause = RETRY_FIRST_MS
    let full = 0
    let ended = false
    let own = new AbortController()
    let usedAt = Date.now()

    const open = async (): Promise<void> => {
      own = new AbortController()
      setState((before) => (before === 'broken' ? 'broken' : 'connecting'))
      let problem: unknown
      try {
        await follow(filter, own.signal, (text) => {
          pause = RETRY_FIRST_MS
          full = 0
          setError(undefined)
          setState(still.current ? 'still' : 'live')
          setTail((before) => received(before, text, still.current))
        })
      } catch (caught) {
        problem = caught
      }
      if (ended || own.signal.aborted) return
      setError(problem)
      const status = problem instanceof ApiError ? problem.problem.status : 500
      if (status < 500 && status !== 429 && !(status === 409 && full++ < FULL_MAX)) return stop('refused')
      setState('broken')
      timer = setTimeout(() => void open(), pause)
      pause = Math.min(pause * 2, RETRY_MAX_MS)
    }
    const watch = setInterval(() => {
      if (attended()) usedAt = Date.now()
      else if (Date.now() - usedAt >= UNATTENDED_MS) stop('unattended')
    }, 30_000)
    const end = (): void => {
      ended = true
      clearTimeout(timer)
      clearInterval(watch)
      own.abort()
    }
    still.current = false
    setTail(EMPTY)
    setError(undefined)
    stream.current = { end }
    void open()
    return end
  }, [asked, round])

  return {
    tail,
    state,
    error,
    start: () => { setState('connecting'); setRound(round + 1) },
    stop: () => stop(),
    pause: () => setStill(true),
    resume: () => setStill(false),
    clear: () => setTail((before) => ({ ...EMPTY, next: before.next, nodesMissing: before.nodesMissing, missing: before.missing })),
  }
}
