/** Live figures: an event stream that is open only while the page is visible. */

import { useEffect, useState } from 'preact/hooks'

import { ApiError } from '../api/error'
import { session as api, type SessionSchemas } from '../api/client'

export type LiveFigures = SessionSchemas['LiveFigures']

export interface Live {
  figures: LiveFigures | undefined
  /** `paused`: the page is hidden. */
  state: 'connecting' | 'live' | 'paused' | 'broken'
  error: unknown
}

const RETRY_FIRST_MS = 1000
const RETRY_MAX_MS = 30_000

/** The data of the events in a stream of bytes. A text without its end is kept for the next call. */
export function eventReader(): (bytes: Uint8Array) => string[] {
  const decoder = new TextDecoder()
  let rest = ''
  return (bytes) => {
    const events = (rest + decoder.decode(bytes, { stream: true })).split('\n\n')
    rest = events.pop() ?? ''
    return events.flatMap((event) => event.split('\n').filter((line) => line.startsWith('data:')).map((line) => line.slice(5).trim()))
  }
}

async function follow(app: string | undefined, signal: AbortSignal, show: (figures: LiveFigures) => void): Promise<void> {
  const { data } = await (app === undefined
    ? api.GET('/v1/live', { parseAs: 'stream', signal })
    : api.GET('/v1/apps/{app}/live', { params: { path: { app } }, parseAs: 'stream', signal }))
  const reader = (data as ReadableStream<Uint8Array> | null | undefined)?.getReader()
  const read = eventReader()
  while (reader) {
    const { done, value } = await reader.read()
    if (done) return
    for (const data of read(value)) show(JSON.parse(data) as LiveFigures)
  }
}

/** The figures of an app, or of all. Opens the stream again when it ends. */
export function useLive(app: string | undefined): Live {
  const [live, setLive] = useState<Live>({ figures: undefined, state: 'connecting', error: undefined })

  useEffect(() => {
    let stream: AbortController | undefined
    let timer: ReturnType<typeof setTimeout> | undefined
    let pause = RETRY_FIRST_MS

    const open = async (): Promise<void> => {
      const own = new AbortController()
      stream = own
      setLive((before) => ({ ...before, state: before.state === 'broken' ? 'broken' : 'connecting' }))
      let error: unknown
      try {
        await follow(app, own.signal, (figures) => {
          pause = RETRY_FIRST_MS
          setLive({ figures, state: 'live', error: undefined })
        })
      } catch (caught) {
        error = caught
      }
      if (own.signal.aborted) return
      setLive({ figures: undefined, state: 'broken', error })
      // A refusal stays one: the person's role, or the session.
      if (error instanceof ApiError && error.problem.status < 500 && error.problem.status !== 429) return
      timer = setTimeout(() => void open(), pause)
      pause = Math.min(pause * 2, RETRY_MAX_MS)
    }
    const close = (): void => {
      clearTimeout(timer)
      stream?.abort()
      stream = undefined
    }
    const changed = (): void => {
      close()
      if (document.visibilityState === 'visible') void open()
      else setLive((before) => ({ ...before, state: 'paused' }))
    }
    setLive({ figures: undefined, state: 'connecting', error: undefined })
    changed()
    document.addEventListener('visibilitychange', changed)
    return () => {
      document.removeEventListener('visibilitychange', changed)
      close()
    }
  }, [app])

  return live
}
