/** The service's part of a vector: in this process, or by the scripted server over real sockets. */

import assert from 'node:assert/strict'
import { WebSocket } from 'ws'

import type { Runtime, WebSocketLike } from '../../src/runtime.js'
// @ts-expect-error JavaScript without types
import { byKind, event, frame, request } from '../../../../scripted-server/normal.mjs'
import { settle } from './clock.js'

export interface Wire {
  readonly url: string
  readonly runtime: Pick<Runtime, 'WebSocket' | 'fetch'>
  step(step: Record<string, any>): Promise<void>
  /** Fails unless exactly this was observed since the last call. */
  expect(observations: object[]): Promise<void>
}

interface Reply {
  status?: number
  headers?: Record<string, string>
  body?: unknown
}

export class LocalWire implements Wire {
  readonly url = 'http://service.test'
  readonly runtime: Wire['runtime']
  #observed: object[] = []
  #dialled: { accept(): void; refuse(reply: Reply): void }[] = []
  #requests: { resolve(response: Response): void; reject(error: Error): void }[] = []
  #send!: (value: any) => void
  #end!: (code?: number) => void

  constructor() {
    const wire = this
    class FakeSocket implements WebSocketLike {
      onopen: WebSocketLike['onopen'] = null
      onmessage: WebSocketLike['onmessage'] = null
      onclose: WebSocketLike['onclose'] = null
      onerror: WebSocketLike['onerror'] = null
      #state: 'dialled' | 'open' | 'closed' = 'dialled'

      constructor(url: string, protocol: string) {
        assert.equal(protocol, 'noroshi.v1')
        assert.equal(new URL(url).pathname, '/v1/connect')
        wire.#observed.push({ open: 'websocket', ...Object.fromEntries(new URL(url).searchParams) })
        wire.#dialled.push({
          accept: () => {
            if (this.#state === 'closed') return
            this.#state = 'open'
            wire.#send = (value) =>
              this.onmessage?.({ data: typeof value.raw === 'string' ? value.raw : value.binary ? new ArrayBuffer(1) : JSON.stringify(value) })
            wire.#end = (code = 1006) => this.#closed(code)
            this.onopen?.({})
          },
          refuse: () => this.#closed(1006),
        })
      }

      #closed(code: number): void {
        if (this.#state === 'closed') return
        this.#state = 'closed'
        this.onerror?.({})
        this.onclose?.({ code })
      }

      send(text: string): void {
        assert.equal(this.#state, 'open', 'sent on a socket that is not open')
        wire.#observed.push(frame(text))
      }

      close(code?: number): void {
        if (this.#state === 'closed') return
        wire.#observed.push({ close: this.#state === 'open' ? code : null })
        this.#state = 'closed'
      }
    }
    const fetch: Runtime['fetch'] = (input, init = {}) => {
      const headers = Object.fromEntries(new Headers(init.headers))
      const seen = request(init.method ?? 'GET', String(input), headers, init.body as string | undefined)
      wire.#observed.push(seen)
      return new Promise<Response>((resolve, reject) => {
        let stream: ReadableStreamDefaultController<Uint8Array> | undefined
        let isOver = false
        init.signal?.addEventListener('abort', () => {
          const error = new DOMException('aborted', 'AbortError')
          if (isOver) return
          isOver = true
          if (seen.open) wire.#observed.push({ close: null })
          reject(error)
          stream?.error(error)
        })
        if (!seen.open) return wire.#requests.push({ resolve, reject })
        wire.#dialled.push({
          accept: () => {
            const body = new ReadableStream<Uint8Array>({ start: (controller) => void (stream = controller) })
            wire.#send = (value) => stream!.enqueue(new TextEncoder().encode(event(value)))
            wire.#end = () => {
              isOver = true
              stream!.close()
            }
            resolve(new Response(body, { headers: { 'content-type': 'text/event-stream' } }))
          },
          refuse: (reply) => {
            isOver = true
            resolve(response(reply))
          },
        })
      })
    }
    this.runtime = { WebSocket: FakeSocket, fetch }
  }

  async step(step: Record<string, any>): Promise<void> {
    const [[name, value]] = Object.entries(step) as [[string, any]]
    if (name === 'accept' || name === 'refuse') {
      const dialled = this.#dialled.shift()
      assert.ok(dialled, 'no connection waits')
      if (name === 'accept') dialled.accept()
      else dialled.refuse(value)
    } else if (name === 'send') this.#send(value)
    else if (name === 'send_many') {
      const text = JSON.stringify(value.frame)
      for (let n = 1; n <= value.count; n++) this.#send(JSON.parse(text.replaceAll('#', String(n))))
    }
    else if (name === 'end') this.#end(value.code)
    else {
      const waiting = this.#requests.shift()
      assert.ok(waiting, 'no request waits')
      if (value.status === 0) waiting.reject(new TypeError('fetch failed'))
      else waiting.resolve(response(value))
    }
    await settle()
  }

  async expect(observations: object[]): Promise<void> {
    const observed = this.#observed
    this.#observed = []
    assert.deepEqual(byKind(observed), byKind(observations))
  }
}

const response = ({ status = 200, headers = {}, body }: Reply) =>
  new Response(body === undefined ? null : JSON.stringify(body), { status, headers: { 'content-type': 'application/json', ...headers } })

/** ../../../../scripted-server/server.mjs */
export class RemoteWire implements Wire {
  readonly runtime: Wire['runtime'] = { WebSocket: WebSocket as unknown as NonNullable<Runtime['WebSocket']>, fetch }

  constructor(readonly url: string) {}

  async #control(path: string, body: unknown): Promise<void> {
    const answer = await fetch(`${this.url}/control/${path}`, { method: 'POST', body: JSON.stringify(body) })
    if (answer.status === 409) {
      const { observed, expected } = (await answer.json()) as { observed: object[]; expected: object[] }
      assert.deepEqual(byKind(observed), byKind(expected))
    }
    assert.equal(answer.status, 200, await answer.clone().text())
  }

  reset = () => this.#control('reset', {})

  async step(step: Record<string, any>): Promise<void> {
    await this.#control('step', step)
    await settle()
  }

  expect = (observations: object[]) => this.#control('expect', observations)
}
