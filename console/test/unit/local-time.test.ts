import { afterEach, expect, test } from 'vitest'

import { utc } from '../../src/app/format'
import { fromInput, toInput } from '../../src/app/local-time'

afterEach(() => void (utc.value = false))

test('a time survives the input, in UTC and in the zone of the browser', () => {
  for (const inUtc of [true, false]) {
    utc.value = inUtc
    expect(fromInput(toInput('2026-11-27T10:30:00Z'))).toBe('2026-11-27T10:30:00.000Z')
  }
  utc.value = true
  expect(toInput('2026-11-27T10:30:00Z')).toBe('2026-11-27T10:30')
})

test('an unreadable time is none: addresses may have any text, and people may type any year', () => {
  for (const inUtc of [true, false]) {
    utc.value = inUtc
    for (const text of ['', 'tomorrow', '12026-11-27T10:30', '275760-09-13T00:01']) expect(fromInput(text), text).toBeUndefined()
    for (const text of ['', null, undefined, 'tomorrow']) expect(toInput(text)).toBe('')
  }
})
