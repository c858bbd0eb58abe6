/** A strict HTTP server: it answers as scripted, and records every request byte by byte. */

import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { onTestFinished } from 'vitest'

import { Noroshi, type NoroshiOptions } from '../src/index.js'

export interface Got {
  method: string
  url: string
  headers: IncomingHttpHeaders
  text: string
}

/** An answer, or what to do with the connection. The last one repeats. */
export type Answer =
  | { status?: number; headers?: Record<string, string>; json?: unknown; text?: string }
  /** Closes the connection without an answer. */
  | 'reset'
  /** Never answers. */
  | 'silent'
  /** Announces more than it sends, and closes. */
  | 'truncated'
  /** Sends the head, and no body. */
  | 'stalled'
  | ((got: Got, response: ServerResponse) => void)

export class Service {
  readonly got: Got[] = []
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #answers: Answer[]

  private constructor(answers: Answer[]) {
    this.#answers = answers
    this.#server = createServer((request, response) => {
      const parts: Buffer[] = []
      request.on('data', (part: Buffer) => parts.push(part))
      request.on('end', () => {
        const got = { method: request.method!, url: request.url!, headers: request.headers, text: Buffer.concat(parts).toString() }
        this.got.push(got)
        this.#answer(got, response)
      })
    })
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket)
      socket.on('close', () => this.#sockets.delete(socket))
    })
  }

  static async start(...answers: Answer[]): Promise<Service> {
    const service = new Service(answers)
    await new Promise<void>((resolve) => service.#server.listen(0, '127.0.0.1', resolve))
    service.url = `http://127.0.0.1:${(service.#server.address() as AddressInfo).port}`
    onTestFinished(() => service.stop())
    return service
  }

  url = ''

  client(options: Partial<NoroshiOptions> = {}): Noroshi {
    return new Noroshi({ url: this.url, key: 'secret-key', ...options })
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  #answer(got: Got, response: ServerResponse): void {
    const answer = this.#answers.length > 1 ? this.#answers.shift()! : this.#answers[0]!
    if (typeof answer === 'function') return answer(got, response)
    if (answer === 'silent') return
    if (answer === 'reset') return void response.socket!.destroy()
    if (answer === 'stalled') return void response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders()
    if (answer === 'truncated') {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': '1000' })
      response.write('{"id":', () => response.socket!.destroy())
      return
    }
    const { status = 200, headers = {}, json, text = json === undefined ? '' : JSON.stringify(json) } = answer
    response.writeHead(status, { ...(json !== undefined && { 'content-type': 'application/json' }), ...headers })
    response.end(text)
  }
}

export const receipt = { status: 202, json: { id: '0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10', targets: 1 } }

export const problem = (status: number, code: string, headers: Record<string, string> = {}): Answer => ({
  status,
  headers: { ...headers, 'content-type': 'application/problem+json' },
  text: JSON.stringify({ type: `/docs#${code}`, title: `Title of ${code}`, status, code, detail: `Detail of ${code}` }),
})

/** A clock whose timers fire at once, except those of attempts, and which records how long each wait was. */
export function quick() {
  const waits: number[] = []
  let offset = 0
  return {
    waits,
    runtime: {
      now: () => Date.now() + offset,
      random: () => 0.5,
      setTimeout: (callback: () => void, ms: number) => {
        // The waits between attempts are at most 20 s, time limits of attempts are longer here.
        if (ms >= 25_000) return setTimeout(callback, ms)
        waits.push(ms)
        offset += ms
        return setTimeout(callback, 0)
      },
    },
  }
}
