import { expect, test } from 'vitest'

import { SEEN, seenQuery } from '../../src/pages/day-seen'

const NOW = Date.UTC(2026, 10, 27, 9, 0)

test('words become parameters of the API', () => {
  expect(seenQuery('1d', NOW)).toEqual({ seen_after: '2026-11-26T09:00:00.000Z' })
  expect(seenQuery('over90d', NOW)).toEqual({ seen_before: '2026-08-29T09:00:00.000Z' })
  expect(seenQuery('never', NOW)).toEqual({ seen: 'never' })
  expect(SEEN.map((word) => Object.keys(seenQuery(word, NOW)).length)).toEqual([1, 1, 1, 1, 1, 1])
})

test('anything else is no filter', () => {
  expect([undefined, '', 'over', '5d', 'NaN'].map((word) => seenQuery(word, NOW))).toEqual([{}, {}, {}, {}, {}])
})
