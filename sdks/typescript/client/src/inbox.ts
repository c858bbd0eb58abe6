/** The notification centre of the device's user: docs/items.md. */

import type { Http, RequestOptions } from './http.js'
import type { Counts, Notification } from './protocol.js'

export interface Item<Data = unknown> {
  id: string
  state: 'unread' | 'read' | 'archived'
  category?: string
  /** RFC 3339, as the other times. */
  created_at: string
  changed_at: string
  expires_at: string
  notification?: Notification
  data?: Data
}

export interface ListOptions extends RequestOptions {
  /** Default: all that are not archived. */
  state?: 'unread' | 'read' | 'archived' | 'all'
  category?: string
  /** 1 to 1,000 items of a page. Default 100. */
  limit?: number
  /** `next` of the previous page. */
  after?: string
}

export interface Page {
  items: Item[]
  /** `after` of the next page; `null` on the last one. */
  next: string | null
}

/** Items by their ids, or an item and all older ones, optionally of a category. */
export type Which = string | readonly string[] | { upTo: string; category?: string }

export interface Changed extends Counts {
  /** How many items were in another state before. */
  changed: number
}

/** A request has at most as many ids. */
const IDS_MAX = 100

export class Inbox {
  /** Unread items; `undefined` until the service has reported them. */
  unread: number | undefined
  /** Unread items by category. */
  categories: Record<string, number> = {}
  readonly #http: Http
  readonly #changed: (counts: Counts) => void
  #version = 0

  /** @internal */
  constructor(http: Http, changed: (counts: Counts) => void) {
    this.#http = http
    this.#changed = changed
  }

  /** A page of items, newest first. */
  list({ state, category, limit, after, signal }: ListOptions = {}): Promise<Page> {
    return this.#http.json('GET', '/v1/me/items', { query: { state, category, after, limit: limit?.toString() }, signal })
  }

  /** All items, newest first, page by page. */
  async *items(options: Omit<ListOptions, 'after'> = {}): AsyncGenerator<Item, void, void> {
    let after: string | null | undefined
    do {
      const page: Page = await this.list(after ? { ...options, after } : options)
      yield* page.items
      after = page.next
    } while (after)
  }

  markRead(which: Which, options?: RequestOptions): Promise<Changed> {
    return this.#change('read', which, options)
  }

  markUnread(which: Which, options?: RequestOptions): Promise<Changed> {
    return this.#change('unread', which, options)
  }

  archive(which: Which, options?: RequestOptions): Promise<Changed> {
    return this.#change('archive', which, options)
  }

  unarchive(which: Which, options?: RequestOptions): Promise<Changed> {
    return this.#change('unarchive', which, options)
  }

  /** Reads the counts; every new connection does so if there is a listener for `unread`. */
  async refresh({ signal }: RequestOptions = {}): Promise<Counts> {
    const version = this.#version
    const counts = await this.#http.json<Counts>('GET', '/v1/me/items/counts', { signal })
    // U2: a report that arrived meanwhile is newer.
    if (version === this.#version) this.update(counts)
    return counts
  }

  /** @internal */
  update({ unread, categories = {} }: Counts): void {
    this.#version++
    const isSame = unread === this.unread && JSON.stringify(categories) === JSON.stringify(this.categories)
    this.unread = unread
    this.categories = categories
    if (!isSame) this.#changed({ unread, categories })
  }

  async #change(action: string, which: Which, { signal }: RequestOptions = {}): Promise<Changed> {
    const patch = async (body: object): Promise<Changed> => {
      const version = this.#version
      // A click on an item may leave the page.
      const answer = await this.#http.json<Changed>('PATCH', '/v1/me/items', { body: { action, ...body }, signal, keepalive: true })
      if (version === this.#version) this.update(answer)
      return answer
    }
    if (typeof which === 'object' && 'upTo' in which) {
      const { upTo, category } = which
      return patch(category === undefined ? { up_to: upTo } : { up_to: upTo, category })
    }
    const ids = typeof which === 'string' ? [which] : which
    let last = await patch({ ids: ids.slice(0, IDS_MAX) })
    let changed = last.changed
    for (let from = IDS_MAX; from < ids.length; from += IDS_MAX) {
      last = await patch({ ids: ids.slice(from, from + IDS_MAX) })
      changed += last.changed
    }
    return { ...last, changed }
  }
}
