import { expect, test } from 'vitest'

import { eventReader } from '../../src/app/live'
import { cores, gauge, isEmpty, isSpan, milliseconds, rate, type Series } from '../../src/pages/series'

const series = (name: Series['series'][number]['name'], points: (number | null)[], covered_s: number[]): Series => ({
  from: '2026-11-27T09:00:00.000Z', until: '2026-11-27T09:00:30.000Z', step_s: 10, covered_s, nodes: [], nodes_count: 1, missing: [],
  series: [{ name, unit: '', kind: 'count', points }],
})

test('a count becomes a rate of what was measured, and a gap stays one', () => {
  expect(rate(series('publishes', [120, 30, null, 0], [60, 10, 0, 60]), 'publishes')).toEqual([2, 3, null, 0])
  expect(cores(series('cpu', [15_000, null], [10, 0]))).toEqual([1.5, null])
})

test('gauges stay, times are in milliseconds', () => {
  expect(gauge(series('connections', [5, null], [10, 0]), 'connections')).toEqual([5, null])
  expect(milliseconds(series('delivery_p99', [0.25, null], [10, 10]), 'delivery_p99')).toEqual([250, null])
  expect(gauge(series('connections', [5], [10]), 'memory')).toEqual([])
})

test('nothing measured is empty', () => {
  expect(isEmpty(series('publishes', [null, null], [0, 0]))).toBe(true)
  expect(isEmpty(series('publishes', [0, null], [10, 0]))).toBe(false)
  expect([isSpan('7d'), isSpan('2h'), isSpan(null), isSpan('toString')]).toEqual([true, false, false, false])
})

test('events are read however the stream is cut', () => {
  const text = new TextEncoder().encode('event: figures\ndata: {"a":"日本"}\n\n: comment\n\nevent: figures\ndata: {"a":2}\n\nevent: fig')
  for (let cut = 0; cut <= text.length; cut += 1) {
    const read = eventReader()
    expect([...read(text.slice(0, cut)), ...read(text.slice(cut))]).toEqual(['{"a":"日本"}', '{"a":2}'])
  }
})
