import { describe, expect, it } from 'vitest'

import { seek } from '../../src/app/seek'

/** Numbers from 0 on of which a page reads `size` at a time and keeps those that `fits` selects. */
function list(end: number, size: number, fits: (n: number) => boolean) {
  const calls: number[] = []
  const read = async (after: string | undefined, limit: number) => {
    calls.push(limit)
    const rows: number[] = []
    let n = after === undefined ? 0 : Number(after) + 1
    for (const stop = n + size; n < end && n < stop && rows.length < limit; n += 1) if (fits(n)) rows.push(n)
    return { rows, next: n < end ? String(n - 1) : null }
  }
  return { read, calls }
}

describe('seek', () => {
  it('fills a page from short parts', async () => {
    const { read, calls } = list(100, 4, (n) => n % 3 === 0)
    const { rows, next } = await seek(read, undefined, 5)
    expect(rows).toEqual([0, 3, 6, 9, 12])
    expect(next).toBe('12')
    expect(calls).toEqual([5, 3, 2, 1])
    expect((await seek(read, next ?? undefined, 2)).rows).toEqual([15, 18])
  })
  it('ends with the list', async () => {
    const { read } = list(10, 4, (n) => n === 9)
    expect(await seek(read, undefined, 5)).toMatchObject({ rows: [9], next: null })
  })
  it('asks a bounded number of times', async () => {
    const { read, calls } = list(1000, 4, () => false)
    const { rows, next } = await seek(read, undefined, 5)
    expect(rows).toEqual([])
    expect(calls).toHaveLength(20)
    expect(next).toBe('79')
  })
})
