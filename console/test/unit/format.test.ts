import { afterEach, expect, test } from 'vitest'

import { agentText } from '../../src/app/agent'
import { bytes, date, dateTime, duration, number, percent, quantity, relative, relativeDay, utc } from '../../src/app/format'
import { fromInput, toInput } from '../../src/app/local-time'
import { speak } from '../../src/i18n'

const AT = Date.UTC(2026, 10, 27, 9, 5, 7, 42)

afterEach(async () => {
  utc.value = false
  await speak('en')
})

test('durations have at most two units', () => {
  expect([0, 12, 1200, 61_000, 3_600_000, 3_661_000, 187_200_000].map(duration))
    .toEqual(['0 ms', '12 ms', '1.2 s', '1 min 1 s', '1 h', '1 h 1 min', '2 d 4 h'])
})

test('durations in Japanese', async () => {
  await speak('ja')
  expect([12, 1200, 13_260_000, 187_200_000].map(duration)).toEqual(['12 ms', '1.2 秒', '3 時間 41 分', '2 日 4 時間'])
})

test('days are days in UTC, whatever the time of day', async () => {
  const late = Date.UTC(2026, 10, 27, 23, 59)
  expect(['2026-11-27', '2026-11-26', '2026-11-20', '2026-11-28'].map((day) => relativeDay(day, late)))
    .toEqual(['today', 'yesterday', '7 days ago', 'tomorrow'])
  expect(date('2026-11-07')).toBe('07 Nov 2026')
  await speak('ja')
  expect(relativeDay('2026-11-26', late)).toBe('昨日')
  expect(date('2026-11-07')).toBe('2026/11/07')
})

test('sizes are in powers of 1024', () => {
  expect([0, 1023, 1024, 1_572_864].map(bytes)).toEqual(['0 B', '1,023 B', '1 KiB', '1.5 MiB'])
})

test('quantities carry their unit', () => {
  expect(quantity(12_345, 'per_second')).toBe('12.3K/s')
  expect(quantity(0.42, 'per_second')).toBe('0.42/s')
  expect(quantity(0.0512, 'per_second')).toBe('0.051/s')
  expect(quantity(12.34, 'per_second')).toBe('12.3/s')
  expect(quantity(1500, 'milliseconds')).toBe('1.5 s')
  expect(quantity(15_591, 'count')).toBe('15.6K')
})

test('numbers and shares follow the language', async () => {
  expect(number(1_234_567)).toBe('1,234,567')
  expect(percent(0.4567)).toBe('45.7%')
  await speak('ja')
  expect(quantity(12_345, 'count')).toBe('1.2万')
})

test('times are in UTC if the person wants that', () => {
  utc.value = true
  expect(dateTime(AT)).toBe('27 Nov 2026, 09:05:07')
  expect(dateTime(AT, true)).toContain('07.042')
  expect(dateTime('2026-11-27T09:05:07.042Z')).toBe('27 Nov 2026, 09:05:07')
})

test('relative times look back and ahead', () => {
  expect(relative(AT - 180_000, AT)).toBe('3 min. ago')
  expect(relative(AT + 7_200_000, AT)).toBe('in 2 hr.')
  expect(relative(AT, AT)).toBe('now')
})

test.each([true, false])('a field for date and time gives back the moment that it shows (UTC: %s)', (inUtc) => {
  utc.value = inUtc
  expect(fromInput(toInput('2026-11-27T09:05:00.000Z'))).toBe('2026-11-27T09:05:00.000Z')
  expect(fromInput('')).toBeUndefined()
  expect(toInput(null)).toBe('')
})

test('a browser is named by its User-Agent', () => {
  expect(agentText('Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36')).toBe('Chrome · Linux')
  expect(agentText('curl/8')).toBe('curl/8')
  expect(agentText('')).toBe('–')
})
