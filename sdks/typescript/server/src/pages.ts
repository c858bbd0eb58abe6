/** Lists that the service returns in pages. */

import type { Http, Method, Query, RequestOptions, Result } from './http.js'
import type { paths } from './paths.js'

/**
 * A list that the service returns in pages. Iterate over its entries, over its pages, or request the first page alone:
 *
 * ```ts
 * for await (const device of noroshi.devices.list({ user: 'u1' })) …
 * for await (const { devices, next } of noroshi.devices.list().pages()) …
 * const { devices, next } = await noroshi.devices.list({ limit: 20 }).page()
 * ```
 *
 * `limit` is the size of a page. `after` is the `next` of an earlier page: the list continues behind it. Each iteration
 * requests the pages again, each page when the loop reaches it.
 */
export class Pages<Page extends { next: string | null }, Entry> implements AsyncIterable<Entry> {
  readonly #request: (after: string | undefined) => Promise<Page>
  readonly #entries: (page: Page) => Entry[]
  readonly #after: string | undefined

  /** @internal */
  constructor(request: (after: string | undefined) => Promise<Page>, entries: (page: Page) => Entry[], after?: string) {
    this.#request = request
    this.#entries = entries
    this.#after = after
  }

  /** The first page. */
  page(): Promise<Page> {
    return this.#request(this.#after)
  }

  async *pages(): AsyncGenerator<Page, void, void> {
    let after = this.#after
    do {
      const page = await this.#request(after)
      yield page
      if (page.next === after) return // A cursor that does not move would never end.
      after = page.next ?? undefined
    } while (after !== undefined)
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Entry, void, void> {
    for await (const page of this.pages()) yield* this.#entries(page)
  }

  /** The first `max` entries. */
  async take(max: number): Promise<Entry[]> {
    const entries: Entry[] = []
    if (max > 0) for await (const entry of this) if (entries.push(entry) >= max) break
    return entries
  }
}

/** Paths whose answer is a page. */
type ListPath = { [P in keyof paths]: Result<P, 'get' & Method<P>> extends { next: string | null } ? P : never }[keyof paths]
type PageOf<P extends ListPath> = Result<P, 'get' & Method<P>> & { next: string | null }

/** @internal */
export function list<P extends ListPath, Entry>(
  http: Http,
  path: P,
  values: Record<string, string>,
  options: Query<P, 'get' & Method<P>> & RequestOptions,
  entries: (page: PageOf<P>) => Entry[],
): Pages<PageOf<P>, Entry> {
  const { signal, timeoutMs, deadlineMs, attempts, trace, requestId, after, ...filter } = options as RequestOptions & { after?: string }
  const request = { signal, timeoutMs, deadlineMs, attempts, trace, requestId }
  const call = http.call.bind(http) as unknown as (method: 'get', path: P, input: object, options: RequestOptions) => Promise<PageOf<P>>
  return new Pages((after) => call('get', path, { path: values, query: { ...filter, after } }, request), entries, after)
}
