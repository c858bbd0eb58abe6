/** A service in this process: items of one user, a WebSocket, and answers that tests can hold back or fail. */

import { Noroshi, type Item, type NoroshiOptions } from '@noroshi/client'

export const settle = async () => {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setTimeout(resolve))
}

export const id = (n: number) => `01a00000-0000-7000-8000-${String(n).padStart(12, '0')}`

type Routes = Record<string, (body: any, url: URL) => unknown>

export class Service {
  items: Item[] = []
  /** Method and path of each request. */
  requests: string[] = []
  /** Answers wait until `release`. */
  isHeld = false
  /** Statuses of the next answers. */
  failures: number[] = []
  routes: Routes = {}
  me: any = { device: 'd1', user: 'u1', experiments: {} }
  #held: (() => void)[] = []
  #sockets = new Set<any>()

  client(options: Partial<NoroshiOptions> = {}): Noroshi {
    const service = this
    class Socket {
      onopen: any = null
      onmessage: any = null
      onclose: any = null
      onerror: any = null
      constructor() {
        setTimeout(() => this.onopen?.({}))
      }
      send(text: string): void {
        const frame = JSON.parse(text)
        service.requests.push(`frame ${frame.t}${frame.topics ? ` ${frame.topics}` : ''}${frame.ids ? ` ${frame.ids}` : ''}`)
        if (frame.t !== 'connect') return
        service.#sockets.add(this)
        this.receive({ t: 'ready', device: 'd1', session: 's', ping_s: 240 })
      }
      receive(frame: object): void {
        this.onmessage?.({ data: JSON.stringify(frame) })
      }
      close(): void {
        service.#sockets.delete(this)
      }
    }
    const runtime = { WebSocket: Socket, fetch: this.#fetch as typeof fetch }
    return new Noroshi({ url: 'http://service.test', getToken: () => 'token', runtime, ...options })
  }

  /** The last one is the newest. */
  add(count: number, more: Partial<Item> = {}): void {
    for (let n = 0; n < count; n++) {
      const number = this.items.length + 1
      const time = '2026-01-15T09:30:00.000Z'
      this.items.push({ id: id(number), state: 'unread', created_at: time, changed_at: time, expires_at: time, notification: { title: `Title ${number}` }, ...more })
    }
  }

  counts() {
    const categories: Record<string, number> = {}
    const unread = this.items.filter(({ state }) => state === 'unread')
    for (const { category } of unread) if (category) categories[category] = (categories[category] ?? 0) + 1
    return { unread: unread.length, categories }
  }

  send(frame: object): void {
    for (const socket of this.#sockets) socket.receive(frame)
  }

  /** Reports a change of items as the service does. */
  report(event: string, ids: string[], more = {}): void {
    this.send({ t: 'items', event, ids, ...this.counts(), ...more })
  }

  /** Ends all connections without a reason. */
  lose(): void {
    for (const socket of [...this.#sockets]) {
      this.#sockets.delete(socket)
      socket.onclose?.({ code: 1006 })
    }
  }

  async release(): Promise<void> {
    this.isHeld = false
    for (const one of this.#held.splice(0)) one()
    await settle()
  }

  #fetch = async (input: string, init: RequestInit = {}): Promise<Response> => {
    const url = new URL(input)
    const method = init.method ?? 'GET'
    this.requests.push(`${method} ${url.pathname}${url.search}`)
    if (this.isHeld) await new Promise<void>((resolve) => this.#held.push(resolve))
    const status = this.failures.shift()
    if (status === 0) throw new TypeError('fetch failed')
    if (status) return json({ code: 'unavailable', title: 'unavailable' }, status)
    const body = init.body ? JSON.parse(String(init.body)) : undefined
    const own = this.routes[`${method} ${url.pathname}`]
    if (own) {
      const answer = own(body, url)
      return answer === undefined ? new Response(null, { status: 204 }) : json(answer)
    }
    return json(this.#answer(`${method} ${url.pathname}`, body, url.searchParams))
  }

  #answer(route: string, body: any, query: URLSearchParams): unknown {
    switch (route) {
      case 'GET /v1/me/items': {
        const state = query.get('state')
        const after = query.get('after')
        const limit = Number(query.get('limit') ?? 100)
        const all = [...this.items]
          .reverse()
          .filter((item) => state === 'all' || (state ? item.state === state : item.state !== 'archived'))
          .filter((item) => !query.has('category') || item.category === query.get('category'))
          .filter((item) => !after || item.id < after)
        const items = all.slice(0, limit).map((item) => ({ ...item }))
        return { items, next: all.length > limit ? items.at(-1)!.id : null }
      }
      case 'PATCH /v1/me/items': {
        const to = ({ read: 'read', unread: 'unread', archive: 'archived', unarchive: 'read' } as const)[body.action as 'read']
        const from = ({ read: 'unread', unread: 'read', archive: 'unread read', unarchive: 'archived' } as const)[body.action as 'read']
        let changed = 0
        for (const item of this.items) {
          const isMeant = body.ids ? body.ids.includes(item.id) : item.id <= body.up_to && (!body.category || item.category === body.category)
          if (!isMeant || !from.includes(item.state)) continue
          item.state = to
          changed++
        }
        return { changed, ...this.counts() }
      }
      case 'GET /v1/me/items/counts':
        return this.counts()
      case 'GET /v1/me':
        return this.me
      default:
        return {}
    }
  }
}

const json = (body: unknown, status = 200) => new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } })
