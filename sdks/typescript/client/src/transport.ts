/** A transport carries frames: a WebSocket here, server-sent events in sse.ts. */

import type { Runtime } from './runtime.js'

/** @internal */
export interface Dial {
  url: string
  app?: string | undefined
  token: string
  /** Session subscriptions, separated by commas, for transports that need them at the start. */
  topics: string
  /** The last handled stored message, for transports that resume behind it. */
  lastId?: string | undefined
  runtime: Runtime
}

/** Why a transport ended. @internal */
export interface End {
  code?: number
  status?: number
  /** The code of a problem document. */
  problem?: string
  retryAfterMs?: number
}

/** @internal */
export interface TransportEvents {
  /** The handshake is complete. */
  opened(): void
  /** Bytes arrived. */
  heard(): void
  frame(text: unknown): void
  /** At most once. */
  ended(end: End): void
}

/** @internal */
export interface Link {
  send(frame: object): void
  /** No event follows. */
  close(): void
}

/** A way to connect. @internal */
export interface Transport {
  readonly name: 'websocket' | 'sse'
  /** Its topics and its token are part of the request, so that a change needs another one. */
  readonly oneWay: boolean
  open(dial: Dial, events: TransportEvents): Link
}

/** @internal */
export const address = (url: string, path: string, query: Record<string, string | undefined>): string => {
  const result = new URL(url.replace(/\/+$/, '') + path)
  for (const [name, value] of Object.entries(query)) if (value) result.searchParams.set(name, value)
  return result.href
}

/** The native protocol over a WebSocket. */
export const websocket: Transport = {
  name: 'websocket',
  oneWay: false,
  open({ url, app, token, runtime }, events) {
    const socket = new runtime.WebSocket!(address(url, '/v1/connect', { app }).replace(/^http/, 'ws'), 'noroshi.v1')
    const silence = () => {
      socket.onopen = socket.onmessage = socket.onclose = null
      // An error event follows when a socket is closed before it is open; `ws` throws it if nobody listens.
      socket.onerror = () => {}
    }
    const send = (frame: object) => socket.send(JSON.stringify(frame))
    socket.onopen = () => {
      events.opened()
      send({ t: 'connect', token })
    }
    socket.onmessage = ({ data }) => {
      events.heard()
      events.frame(data)
    }
    socket.onerror = () => {}
    socket.onclose = ({ code }) => {
      silence()
      events.ended({ code })
    }
    return {
      send,
      close() {
        silence()
        socket.close(1000)
      },
    }
  },
}
