/** The list behind the bell: items page by page, kept current, changed at once and rolled back if the service refuses. */

import type { Item, ItemsChange, Noroshi, NoroshiError, Page, State, Which } from '@noroshi/client'

import { Observable, quiet } from './observable.js'

export interface InboxOptions {
  /** Default: all items that are not archived. */
  state?: 'unread' | 'read' | 'archived' | 'all' | undefined
  /** Only items of this category. */
  category?: string | undefined
  /** Items of a page: 1 to 1,000. Default 20. */
  limit?: number | undefined
}

/** What a view shows. The object, its lists and its items are the same until one of them changes. */
export interface InboxSnapshot {
  /** `error`: the last attempt to list the items failed. `items` may have earlier ones. */
  readonly status: 'idle' | 'loading' | 'ready' | 'error'
  readonly items: readonly Item[]
  /** The service has older items. */
  readonly hasMore: boolean
  readonly isLoadingMore: boolean
  /** Why the last request to list or change items failed; removed by the next one that succeeds. */
  readonly error: NoroshiError | undefined
  /** Unread items of the user, of all categories; `undefined` until the service has reported them. */
  readonly unread: number | undefined
  readonly categories: Readonly<Record<string, number>>
}

export const INITIAL: InboxSnapshot = { status: 'idle', items: [], hasMore: false, isLoadingMore: false, error: undefined, unread: undefined, categories: {} }

type Action = 'read' | 'unread' | 'archive' | 'unarchive'

interface Change {
  action: Action | 'delete'
  which: Which
}

/** `up_to` and `ids` have the meaning of docs/items.md: an item in another state stays as it is. */
const AFTER: Record<Change['action'], Partial<Record<Item['state'], Item['state']>>> = {
  read: { unread: 'read' },
  unread: { read: 'unread' },
  archive: { unread: 'archived', read: 'archived' },
  unarchive: { archived: 'read' },
  delete: {},
}
const ACTION: Record<string, Change['action']> = { read: 'read', unread: 'unread', archived: 'archive', unarchived: 'unarchive', deleted: 'delete' }

const PAGE = 20
/** A user has at most as many items, so one page can hold all. */
const PAGE_MAX = 1_000
/** Between two lists that the service's reports cause. */
const RELOAD_MS = 1_000

const isUpTo = (which: Which): which is { upTo: string; category?: string } => typeof which === 'object' && 'upTo' in which

function covers(which: Which, { id, category }: Item): boolean {
  // Ids sort by the time when their notifications were accepted.
  if (isUpTo(which)) return id <= which.upTo && (which.category === undefined || which.category === category)
  return typeof which === 'string' ? which === id : which.includes(id)
}

export class InboxStore extends Observable<InboxSnapshot> {
  readonly #client: Noroshi<any>
  readonly #options: InboxOptions
  #off: (() => void)[] = []
  #stopping: ReturnType<typeof setTimeout> | undefined
  /** As the service knows them. */
  #base: readonly Item[] = []
  #next: string | null = null
  #pending: readonly Change[] = []
  #status: InboxSnapshot['status'] = 'idle'
  #error: NoroshiError | undefined
  #isLoadingMore = false
  /** Views that show the list now. */
  #shown = 0
  /** The service may have changed the list. */
  #isStale = true
  #loading: Promise<void> | undefined
  #loadedAt = 0
  #timer: ReturnType<typeof setTimeout> | undefined
  /** For each list that is requested: what changed since, because the answer may be older. */
  readonly #journals = new Set<Change[]>()
  /** Counts lists that replaced the earlier one. */
  #generation = 0
  readonly #changed = new WeakMap<Item, Map<Item['state'], Item>>()

  constructor(client: Noroshi<any>, options: InboxOptions = {}) {
    super(INITIAL)
    this.#client = client
    this.#options = options
  }

  /** The list is visible: loads it, and keeps it current until the returned function is called. */
  show = (): (() => void) => {
    this.#shown++
    this.#reload()
    let isShown = true
    return () => {
      if (isShown) this.#shown--
      isShown = false
    }
  }

  /** Lists the items again. */
  refresh = (): Promise<void> => quiet(this.#load())

  loadMore = (): Promise<void> => quiet(this.#more())
  markRead = (which: Which): Promise<void> => quiet(this.#change('read', which))
  markUnread = (which: Which): Promise<void> => quiet(this.#change('unread', which))
  archive = (which: Which): Promise<void> => quiet(this.#change('archive', which))
  unarchive = (which: Which): Promise<void> => quiet(this.#change('unarchive', which))

  /** @internal */
  protected override observed(): void {
    clearTimeout(this.#stopping)
    if (this.#off.length) return
    const client = this.#client
    this.#off = [
      client.on('items', (change: ItemsChange) => this.#reported(change)),
      client.on('state', ({ state }: State) => {
        // Reports may have been lost while there was no connection.
        if (state === 'connected') this.#stale()
      }),
      // The client reports counts before the answer that has them resolves its promise: shows both at once.
      client.on('unread', () => setTimeout(() => this.#publish())),
    ]
    this.#publish()
  }

  /** @internal */
  protected override unobserved(): void {
    // A view that is mounted again at once keeps what it has.
    this.#stopping = setTimeout(() => {
      for (const off of this.#off) off()
      this.#off = []
      clearTimeout(this.#timer)
      this.#timer = undefined
      this.#isStale = true
    })
  }

  #stale(): void {
    this.#isStale = true
    this.#reload()
  }

  /** Lists the items if somebody sees them, not too often. */
  #reload(): void {
    if (!this.#shown || !this.#isStale || this.#timer !== undefined || this.#loading) return
    const wait = this.#loadedAt + RELOAD_MS - Date.now()
    const load = () => {
      this.#timer = undefined
      if (this.#shown) void quiet(this.#load())
    }
    if (wait > 0 && wait <= RELOAD_MS) this.#timer = setTimeout(load, wait)
    else load()
  }

  #load(): Promise<void> {
    return (this.#loading ??= this.#list().finally(() => {
      this.#loading = undefined
      this.#loadedAt = Date.now()
      if (this.#status === 'ready') this.#reload()
    }))
  }

  async #list(): Promise<void> {
    if (this.#status === 'idle' || this.#status === 'error') this.#status = 'loading'
    this.#publish()
    this.#isStale = false
    const { limit = PAGE } = this.#options
    try {
      const page = await this.#page(Math.min(Math.max(limit, this.#base.length), PAGE_MAX))
      const known = new Map(this.#base.map((item) => [item.id, item]))
      this.#base = page.items.map((item) => {
        const old = known.get(item.id)
        return old?.state === item.state && old.changed_at === item.changed_at ? old : item
      })
      this.#next = page.next
      this.#generation++
      this.#status = 'ready'
      this.#error = undefined
    } catch (error) {
      this.#isStale = true
      this.#status = 'error'
      this.#error = error as NoroshiError
      throw error
    } finally {
      this.#publish()
    }
  }

  async #page(limit: number, after?: string): Promise<Page> {
    const { state, category } = this.#options
    const journal: Change[] = []
    this.#journals.add(journal)
    try {
      const { items, next } = await this.#client.inbox.list({ ...(state && { state }), ...(category && { category }), ...(after && { after }), limit })
      return { items: journal.reduce((items, change) => this.#after(items, change), items), next }
    } finally {
      this.#journals.delete(journal)
    }
  }

  async #more(): Promise<void> {
    const after = this.#next
    if (after === null || this.#isLoadingMore) return
    this.#isLoadingMore = true
    this.#publish()
    const generation = this.#generation
    try {
      const page = await this.#page(this.#options.limit ?? PAGE, after)
      if (generation === this.#generation) {
        const known = new Set(this.#base.map(({ id }) => id))
        this.#base = [...this.#base, ...page.items.filter(({ id }) => !known.has(id))]
        this.#next = page.next
      }
      this.#error = undefined
    } catch (error) {
      this.#error = error as NoroshiError
      throw error
    } finally {
      this.#isLoadingMore = false
      this.#publish()
    }
  }

  async #change(action: Action, which: Which): Promise<void> {
    const pending: Change = { action, which }
    this.#pending = [...this.#pending, pending]
    this.#error = undefined
    this.#publish()
    const { inbox } = this.#client
    const send = { read: inbox.markRead, unread: inbox.markUnread, archive: inbox.archive, unarchive: inbox.unarchive }[action]
    try {
      await send.call(inbox, which)
      this.#apply(pending)
      if (this.#mayAdd(action)) this.#isStale = true
    } catch (error) {
      this.#error = error as NoroshiError
      throw error
    } finally {
      this.#pending = this.#pending.filter((one) => one !== pending)
      this.#publish()
      this.#reload()
    }
  }

  #reported({ event, ids, more }: ItemsChange): void {
    const action = ACTION[event]
    if (action) this.#apply({ action, which: ids })
    if (more || !action || this.#mayAdd(action)) this.#isStale = true
    this.#publish()
    this.#reload()
  }

  #apply(change: Change): void {
    this.#base = this.#after(this.#base, change)
    for (const journal of this.#journals) journal.push(change)
  }

  #after(items: readonly Item[], { action, which }: Change): Item[] {
    const changed = items.map((item) => (covers(which, item) ? this.#as(item, AFTER[action][item.state]) : item))
    return changed.filter((item) => this.#has(item) && !(action === 'delete' && covers(which, item)))
  }

  /** The change may bring items into the list that it does not have. */
  #mayAdd(action: Change['action']): boolean {
    const { state } = this.#options
    const to = { read: 'read', unread: 'unread', archive: 'archived', unarchive: 'read', delete: '' }[action]
    if (state === 'all') return false
    return state === undefined ? action === 'unarchive' : state === to
  }

  #has({ state }: Item): boolean {
    const { state: wanted } = this.#options
    return wanted === 'all' || (wanted === undefined ? state !== 'archived' : state === wanted)
  }

  /** The item in another state: the same object each time. */
  #as(item: Item, state: Item['state'] | undefined): Item {
    if (state === undefined || state === item.state) return item
    let all = this.#changed.get(item)
    if (!all) this.#changed.set(item, (all = new Map()))
    let changed = all.get(state)
    if (!changed) all.set(state, (changed = { ...item, state }))
    return changed
  }

  /** The counts after the pending changes, as far as the list knows the items that they change. */
  #counts(items: readonly Item[]): Pick<InboxSnapshot, 'unread' | 'categories'> {
    const { unread, categories } = this.#client.inbox
    if (unread === undefined || !this.#pending.length) return { unread, categories }
    const after = { unread, categories: { ...categories } }
    this.#base.forEach((item, index) => {
      const change = Number(items[index]!.state === 'unread') - Number(item.state === 'unread')
      after.unread += change
      if (change && item.category !== undefined) after.categories[item.category] = Math.max((after.categories[item.category] ?? 0) + change, 0)
    })
    const { state, category } = this.#options
    const isWhole = category === undefined && state !== 'read' && state !== 'archived'
    for (const { action, which } of this.#pending) {
      if (!isUpTo(which) || (action !== 'read' && action !== 'archive')) continue
      // Also items that are not loaded become read: those of the list that are newer are left.
      if (which.category !== undefined) after.categories[which.category] = 0
      else if (isWhole) after.unread = items.filter((item) => item.state === 'unread' && item.id > which.upTo).length
    }
    after.unread = Math.max(after.unread, 0)
    return after
  }

  #publish(): void {
    const all = this.#pending.length
      ? this.#base.map((item) => this.#pending.reduce((item, { action, which }) => (covers(which, item) ? this.#as(item, AFTER[action][item.state]) : item), item))
      : this.#base
    const counts = this.#counts(all)
    const old = this.getSnapshot()
    const items = all.filter((item) => this.#has(item))
    const isSameList = items.length === old.items.length && items.every((item, index) => item === old.items[index])
    const isSameMap = JSON.stringify(counts.categories) === JSON.stringify(old.categories)
    this.publish({
      status: this.#status,
      items: isSameList ? old.items : items,
      hasMore: this.#next !== null,
      isLoadingMore: this.#isLoadingMore,
      error: this.#error,
      unread: counts.unread,
      categories: isSameMap ? old.categories : counts.categories,
    })
  }
}
