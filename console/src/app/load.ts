/** Reads from the API for a component: the state of one answer, and pages of a list. */

import { useCallback, useEffect, useRef, useState } from 'preact/hooks'

export interface Load<T> {
  data: T | undefined
  error: unknown
  loading: boolean
  reload(): void
}

interface State<T> { key: string; data: T | undefined; error: unknown; loading: boolean }

/** The longest time that a repetition waits for the previous answer: a connection may hang after the computer slept. */
const PATIENCE_MS = 30_000

/**
 * Calls `read` when `key` changes, and every `everyMs` while the page is visible and no answer is pending. Answers of an
 * older key are dropped; the last answer, or its error, stays during a repetition.
 */
export function useLoad<T>(key: string, read: () => Promise<T>, everyMs?: number): Load<T> {
  const [state, setState] = useState<State<T>>({ key, data: undefined, error: undefined, loading: true })
  const [round, setRound] = useState(0)
  const latest = useRef(read)
  latest.current = read
  const askedAt = useRef<number | undefined>(undefined)

  useEffect(() => {
    let wanted = true
    askedAt.current = Date.now()
    setState((before) => (before.key === key ? { ...before, loading: true } : { key, data: undefined, error: undefined, loading: true }))
    const settle = (next: (before: State<T>) => State<T>): void => {
      if (!wanted) return
      askedAt.current = undefined
      setState(next)
    }
    latest.current().then(
      (data) => settle(() => ({ key, data, error: undefined, loading: false })),
      (error: unknown) => settle((before) => ({ ...before, error, loading: false })),
    )
    return () => void (wanted = false)
  }, [key, round])

  useEffect(() => {
    if (everyMs === undefined) return undefined
    const isPending = (): boolean => askedAt.current !== undefined && Date.now() - askedAt.current < PATIENCE_MS
    const timer = setInterval(() => document.visibilityState === 'visible' && !isPending() && setRound((n) => n + 1), everyMs)
    return () => clearInterval(timer)
  }, [everyMs])

  const reload = useCallback(() => {
    setState((before) => ({ ...before, error: undefined }))
    setRound((n) => n + 1)
  }, [])
  const own = state.key === key
  return { data: own ? state.data : undefined, error: own ? state.error : undefined, loading: !own || state.loading, reload }
}

export interface Pages<T> extends Load<T[]> {
  number: number
  /** How far back a page came that is not full, although more may follow. */
  searchedTo?: string | undefined
  previous: (() => void) | undefined
  next: (() => void) | undefined
}

/** Rows of a page. */
export const PAGE_ROWS = 50

/** The query for the page after a cursor. */
export const pageAfter = (after: string | undefined): { limit: number; after?: string } => ({ limit: PAGE_ROWS, ...(after ? { after } : {}) })

/** One page of a list at a time, by cursor. Only one page is ever in memory. */
export function usePages<T>(
  key: string,
  read: (after: string | undefined) => Promise<{ rows: T[]; next: string | null; searchedTo?: string | undefined }>,
  everyMs?: number,
): Pages<T> {
  const [trail, setTrail] = useState<{ key: string; cursors: string[] }>({ key, cursors: [] })
  const cursors = trail.key === key ? trail.cursors : []
  const after = cursors.at(-1)
  const load = useLoad(`${key}\n${after ?? ''}`, () => read(after), everyMs)
  const next = load.data?.next
  return {
    ...load,
    data: load.data?.rows,
    searchedTo: load.data?.searchedTo,
    number: cursors.length + 1,
    previous: cursors.length > 0 ? () => setTrail({ key, cursors: cursors.slice(0, -1) }) : undefined,
    next: next ? () => setTrail({ key, cursors: [...cursors, next] }) : undefined,
  }
}
