/** What the live tail shows: its rows, those that wait while the list is paused, and what the list lacks. No DOM. */

import type { SessionSchemas } from '../api/client'

export type TailEvent = SessionSchemas['TailEvent']
export type TailText = SessionSchemas['TailText']
export type TailKind = TailEvent['event']
export type Gap = TailText['gaps'][number]

/** Rows that the page keeps: some 20 s of a full stream. */
export const ROWS_MAX = 2000
/** Omissions of one kind that the page lists; older ones become one. */
export const OMISSIONS_MAX = 5
/** Reports of the same kind within this time are one omission. */
const JOIN_MS = 10_000

export interface Row { key: number; event: TailEvent }

/** `hidden`, `disconnected`: the page had no stream. The others come from the server. */
export type Interruption = 'hidden' | 'disconnected'

/** A time of which the list lacks events. */
export interface Omission {
  kind: 'omitted' | Gap | Interruption
  from: string
  until: string
  /** Events of `omitted`, by kind. */
  counts: Readonly<Record<string, number>>
}

export interface Tail {
  /** The newest first, at most `ROWS_MAX`. */
  rows: readonly Row[]
  /** While the list is paused: those that it will show, the newest first, at most `ROWS_MAX`. */
  held: readonly Row[]
  /** The newest first. */
  omissions: readonly Omission[]
  nodesMissing: number
  missing: readonly string[]
  /** Rows that the page dropped because it had too many. */
  dropped: number
  /** When the server sent the last text. */
  at: string | undefined
  next: number
}

export const EMPTY: Tail = { rows: [], held: [], omissions: [], nodesMissing: 0, missing: [], dropped: 0, at: undefined, next: 0 }

/** With the events of a text; `paused`: the list does not move. `interruption`: why the page had no stream since the last text. */
export function received(tail: Tail, text: TailText, paused: boolean, interruption?: Interruption): Tail {
  const fresh = text.events.map((event, index) => ({ key: tail.next + index, event })).reverse()
  const all = [...fresh, ...(paused ? tail.held : tail.rows)]
  const kept = all.length > ROWS_MAX ? all.slice(0, ROWS_MAX) : all
  const since = tail.at ?? text.at
  const reports: Omission[] = [
    ...(interruption && tail.at ? [{ kind: interruption, from: since, until: text.at, counts: {} }] : []),
    ...(Object.keys(text.omitted).length > 0 ? [{ kind: 'omitted' as const, from: text.at, until: text.at, counts: text.omitted }] : []),
    ...text.gaps.map((kind) => ({ kind, from: text.at, until: text.at, counts: {} })),
  ]
  return {
    ...tail,
    ...(paused ? { held: kept } : { rows: kept }),
    omissions: reports.reduce(noted, tail.omissions),
    nodesMissing: text.nodes_missing,
    missing: text.missing ?? [],
    dropped: tail.dropped + all.length - kept.length,
    at: text.at,
    next: tail.next + fresh.length,
  }
}

const joined = (older: Omission, newer: Omission): Omission => ({
  kind: newer.kind,
  from: older.from,
  until: newer.until,
  counts: Object.entries(newer.counts).reduce((sums, [kind, count]) => ({ ...sums, [kind]: (sums[kind] ?? 0) + count }), older.counts),
})

function noted(omissions: readonly Omission[], report: Omission): readonly Omission[] {
  const [last, ...before] = omissions.filter(({ kind }) => kind === report.kind)
  const others = omissions.filter(({ kind }) => kind !== report.kind)
  const isSame = last && Date.parse(report.from) - Date.parse(last.until) < JOIN_MS
  const own = isSame ? [joined(last, report), ...before] : last ? [report, last, ...before] : [report]
  const [oldest, older] = [own.at(-1), own.at(-2)]
  const bounded = own.length > OMISSIONS_MAX && oldest && older ? [...own.slice(0, -2), joined(oldest, older)] : own
  return [...bounded, ...others].sort((one, other) => Date.parse(other.until) - Date.parse(one.until))
}

/** Adds the held rows to the list. */
export function resumed(tail: Tail): Tail {
  const all = [...tail.held, ...tail.rows]
  return { ...tail, rows: all.slice(0, ROWS_MAX), held: [], dropped: tail.dropped + Math.max(0, all.length - ROWS_MAX) }
}

/** Without rows and omissions; the stream goes on. */
export const cleared = ({ next, at, nodesMissing, missing }: Tail): Tail => ({ ...EMPTY, next, at, nodesMissing, missing })

/** All rows as JSON, the oldest first. */
export const json = (rows: readonly Row[]): string => JSON.stringify(rows.map(({ event }) => event).reverse(), null, 2)
