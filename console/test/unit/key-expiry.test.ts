import { beforeEach, describe, expect, test } from 'vitest'

import { utc } from '../../src/app/format'
import { expiryOf, expiryState } from '../../src/pages/key-expiry'

const NOW = Date.parse('2026-11-01T12:00:00Z')

beforeEach(() => { utc.value = true })

describe('the expiry of a new key', () => {
  test.each([
    ['never', '2026-12-24T18:00', undefined],
    ['days30', '', '2026-12-01T12:00:00.000Z'],
    ['days90', '', '2027-01-30T12:00:00.000Z'],
    ['year', '', '2027-11-01T12:00:00.000Z'],
    ['date', '2026-12-24T18:00', '2026-12-24T18:00:00.000Z'],
    ['date', '', undefined],
  ] as const)('%s %s', (lifetime, date, expected) => {
    expect(expiryOf(lifetime, date, NOW)).toBe(expected)
  })
})

describe('the state of a key', () => {
  test.each([
    [null, undefined],
    [undefined, undefined],
    ['2026-11-01T11:59:59Z', 'expired'],
    ['2026-11-01T12:00:00Z', 'expired'],
    ['2026-11-01T12:00:01Z', 'expires_soon'],
    ['2026-11-15T12:00:00Z', 'expires_soon'],
    ['2026-11-15T12:00:01Z', undefined],
  ])('%s', (expiresAt, expected) => {
    expect(expiryState(expiresAt, NOW)).toBe(expected)
  })
})
