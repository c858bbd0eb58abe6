import { afterEach, expect, test, vi } from 'vitest'

import { attended, ATTENDED_MS, watchInput } from '../../src/app/attendance'

afterEach(() => void vi.useRealTimers())

test('input keeps the page attended for some minutes', () => {
  vi.useFakeTimers()
  const target = new EventTarget()
  watchInput(target)
  target.dispatchEvent(new Event('keydown'))
  expect(attended()).toBe(true)
  vi.advanceTimersByTime(ATTENDED_MS - 1)
  expect(attended()).toBe(true)
  vi.advanceTimersByTime(1)
  expect(attended()).toBe(false)
  target.dispatchEvent(new Event('pointermove'))
  expect(attended()).toBe(true)
})
