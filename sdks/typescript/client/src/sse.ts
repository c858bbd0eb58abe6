/**
 * Server-sent events by `fetch`, for networks that block WebSockets: the token is in a header, not in the address. What the
 * device sends goes through the HTTP API.
 */

import type { Http } from './http.js'
import type { NoroshiError } from './error.js'
import { Outbox } from './outbox.js'
import { retryAfter, type Runtime } from './runtime.js'
import { address, type Transport } from './transport.js'

/** An event larger than this is not from the service. */
const EVENT_UNITS_MAX = 16 << 20

/** @internal */
export function sse(http: Http, runtime: Runtime, failed: (error: NoroshiError) => void): Transport & { outboxes: Outbox[] } {
  const acks = new Outbox(http, runtime, failed, { path: '/v1/me/inbox/ack', field: 'ids', batch: 1_000, max: 10_000 })
  const presence = new Outbox(http, runtime, failed, { path: '/v1/me/presence', field: 'state', isState: true, batch: 1, max: 1 })
  return {
    name: 'sse',
    oneWay: true,
    outboxes: [acks, presence],
    open({ url, app, token, topics, lastId, runtime }, events) {
      const abort = new AbortController()
      presence.clear() // P2
      const read = async () => {
        const headers: Record<string, string> = { accept: 'text/event-stream', authorization: `Bearer ${token}` }
        if (lastId !== undefined) headers['last-event-id'] = lastId
        const href = address(url, '/v1/events', { topics, app })
        const response = await runtime.fetch(href, { headers, signal: abort.signal, cache: 'no-store' })
        if (!response.ok || !response.body) {
          const { code } = await response.json().catch(() => ({}))
          const retryAfterMs = retryAfter(response.headers.get('retry-after'), runtime.now())
          return { status: response.status, problem: code, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) }
        }
        events.opened()
        const reader = response.body.getReader()
        const decoder = new TextDecoder()
        let text = ''
        for (;;) {
          const { done, value } = await reader.read()
          if (done) return {}
          events.heard()
          text += decoder.decode(value, { stream: true })
          let end: number
          // The service ends lines with a line feed.
          while ((end = text.indexOf('\n\n')) >= 0) {
            const data = text.slice(0, end).split('\n').filter((line) => line.startsWith('data:'))
            text = text.slice(end + 2)
            if (data.length) events.frame(data.map((line) => line.slice(5).replace(/^ /, '')).join('\n'))
          }
          if (text.length > EVENT_UNITS_MAX) return {}
        }
      }
      read().then(
        (end) => abort.signal.aborted || (abort.abort(), events.ended(end)),
        () => abort.signal.aborted || events.ended({}),
      )
      return {
        send(frame) {
          const { t, ids, state } = frame as { t: string; ids: string[]; state: string }
          if (t === 'ack') acks.add(ids)
          else if (t === 'presence') presence.add([state])
        },
        close() {
          abort.abort()
          presence.clear()
        },
      }
    },
  }
}
