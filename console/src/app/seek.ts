/** Lists whose pages may be short although more follows: reads on until a page is full. */

export interface Part<T> { rows: T[]; next: string | null }

/** Requests for one page at most: about a second. The person decides whether to continue. */
const ROUNDS = 20

/**
 * Up to `wanted` rows from `after` on, and where to continue. `read` gets the number of rows that are missing. Answers the
 * last part too, which may say how far the search came.
 */
export async function seek<P extends Part<unknown>>(
  read: (after: string | undefined, limit: number) => Promise<P>,
  after: string | undefined,
  wanted: number,
): Promise<{ rows: P['rows']; next: string | null; last: P }> {
  const rows: P['rows'] = []
  for (let round = 1; ; round += 1) {
    const last = await read(after, wanted - rows.length)
    rows.push(...last.rows)
    if (last.next === null || rows.length >= wanted || round === ROUNDS) return { rows, next: last.next, last }
    after = last.next
  }
}
