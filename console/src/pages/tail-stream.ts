/** The stream of the live tail: opens, breaks, pauses in a hidden tab, and ends when nobody uses the page. */

import { useEffect, useRef, useState } from 'preact/hooks'

import { session as api } from '../api/client'
import { ApiError } from '../api/error'
import { attended } from '../app/attendance'
import { eventReader } from '../app/live'
import { cleared, EMPTY, type Interruption, received, resumed, type Tail, type TailText } from './tail'
import { type Filter, queryOf } from './tail-filter'

/** A tail occupies one of few places of the node: the page gives it back after this time without input. */
const UNATTENDED_MS = 15 * 60_000
/** The same in a hidden tab, which opens its stream again when a person returns to it. */
export const HIDDEN_MS = 60_000
const RETRY_FIRST_MS = 1000
const RETRY_MAX_MS = 30_000
/** After a change of the filter, the server may hold the place of the former tail for a moment. */
const FULL_MAX = 3

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

export type TailState = 'stopped' | 'unattended' | 'hidden' | 'connecting' | 'live' | 'paused' | 'broken' | 'refused'

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

/** The tail of an app with a filter. It begins at once, and again after it broke; a refusal is final. */
export function useTail(app: string, filter: Filter): TailView {
  const [tail, setTail] = useState(EMPTY)
  const [state, setState] = useState<TailState>('connecting')
  const [error, setError] = useState<unknown>()
  const [round, setRound] = useState(0)
  const isPaused = useRef(false)
  const stream = useRef<{ end(): void } | undefined>(undefined)
  const asked = JSON.stringify([app, queryOf(filter)])

  const setPaused = (value: boolean): void => {
    isPaused.current = value
    setState((before) => (before === 'live' || before === 'paused' ? (value ? 'paused' : 'live') : before))
    if (!value) setTail(resumed)
  }
  /** The list then has the held events too: no button would show them later. */
  const stop = (as: TailState = 'stopped'): void => {
    stream.current?.end()
    stream.current = undefined
    setPaused(false)
    setState(as)
  }

  useEffect(() => {
    let retry: ReturnType<typeof setTimeout> | undefined
    let hiding: ReturnType<typeof setTimeout> | undefined
    let pause = RETRY_FIRST_MS
    let full = 0
    let usedAt = Date.now()
    /** None while the tab is hidden for a longer time. */
    let own: AbortController | undefined
    let interruption: Interruption | undefined

    const open = async (): Promise<void> => {
      const mine = new AbortController()
      own = mine
      setState((before) => (before === 'broken' ? 'broken' : 'connecting'))
      let problem: unknown
      try {
        await follow(filter, mine.signal, (text) => {
          const why = interruption
          interruption = undefined
          pause = RETRY_FIRST_MS
          full = 0
          setError(undefined)
          setState(isPaused.current ? 'paused' : 'live')
          setTail((before) => received(before, text, isPaused.current, why))
        })
      } catch (caught) {
        problem = caught
      }
      if (mine.signal.aborted) return
      interruption ??= 'disconnected'
      setError(problem)
      const status = problem instanceof ApiError ? problem.problem.status : 500
      if (status < 500 && status !== 429 && !(status === 409 && full++ < FULL_MAX)) return stop('refused')
      setState('broken')
      retry = setTimeout(() => void open(), pause)
      pause = Math.min(pause * 2, RETRY_MAX_MS)
    }
    const close = (): void => {
      clearTimeout(retry)
      own?.abort()
      own = undefined
    }
    const hide = (): void => {
      close()
      interruption = 'hidden'
      setError(undefined)
      setState('hidden')
    }
    const turned = (): void => {
      clearTimeout(hiding)
      if (document.visibilityState === 'hidden') {
        hiding = setTimeout(hide, HIDDEN_MS)
      } else if (own === undefined) {
        usedAt = Date.now()
        void open()
      }
    }
    const watch = setInterval(() => {
      if (own === undefined || attended()) usedAt = Date.now()
      else if (Date.now() - usedAt >= UNATTENDED_MS) stop('unattended')
    }, 30_000)
    const end = (): void => {
      document.removeEventListener('visibilitychange', turned)
      clearTimeout(hiding)
      clearInterval(watch)
      close()
    }
    isPaused.current = false
    setTail(EMPTY)
    setError(undefined)
    stream.current = { end }
    document.addEventListener('visibilitychange', turned)
    void open()
    // A page that opens in a tab of the background.
    turned()
    return end
  }, [asked, round])

  return {
    tail,
    state,
    error,
    start: () => { setState('connecting'); setRound((before) => before + 1) },
    stop: () => stop(),
    pause: () => setPaused(true),
    resume: () => setPaused(false),
    clear: () => setTail(cleared),
  }
}
