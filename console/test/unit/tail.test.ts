import { expect, test } from 'vitest'

import { EMPTY, filterOf, GROUP_NAMES, GROUPS, json, queryOf, received, resumed, ROWS_MAX, type TailEvent, type TailText, valuesOf } from '../../src/app/tail'
import { en } from '../../src/i18n/en'
import { summary, time, tone } from '../../src/pages/tail-text'

const event = (n: number, more: Partial<TailEvent> = {}): TailEvent => ({ at: new Date(1_800_000_000_000 + n).toISOString(), event: 'written', id: `n${n}`, ...more })
const text = (events: TailEvent[], more: Partial<TailText> = {}): TailText => ({ at: '2026-11-27T00:00:00.000Z', events, omitted: {}, gaps: [], nodes_missing: 0, ...more })
const ids = (rows: readonly { event: TailEvent }[]): (string | undefined)[] => rows.map(({ event: { id } }) => id)

test('the newest event is first, and every row has its own key', () => {
  const tail = received(received(EMPTY, text([event(1), event(2)]), false), text([event(3)]), false)
  expect(ids(tail.rows)).toEqual(['n3', 'n2', 'n1'])
  expect(new Set(tail.rows.map(({ key }) => key)).size).toBe(3)
  expect(JSON.parse(json(tail.rows)).map(({ id }: TailEvent) => id)).toEqual(['n1', 'n2', 'n3'])
})

test('a paused list holds new events, and shows them later', () => {
  const still = received(received(EMPTY, text([event(1)]), false), text([event(2), event(3)]), true)
  expect([ids(still.rows), ids(still.held)]).toEqual([['n1'], ['n3', 'n2']])
  const on = resumed(still)
  expect([ids(on.rows), on.held]).toEqual([['n3', 'n2', 'n1'], []])
})

test('the page keeps a bounded number of rows and states the rest', () => {
  let tail = EMPTY
  for (let n = 0; n < ROWS_MAX + 100; n += 25) tail = received(tail, text(Array.from({ length: 25 }, (_, i) => event(n + i))), false)
  expect([tail.rows.length, tail.dropped]).toEqual([ROWS_MAX, 100])
  for (let n = 0; n < ROWS_MAX + 100; n += 25) tail = received(tail, text(Array.from({ length: 25 }, (_, i) => event(n + i))), true)
  expect([tail.held.length, tail.dropped]).toEqual([ROWS_MAX, 200])
  tail = resumed(tail)
  expect([tail.rows.length, tail.dropped]).toEqual([ROWS_MAX, 200 + ROWS_MAX])
})

test('what the server leaves out adds up', () => {
  const first = received(EMPTY, text([], { omitted: { written: 5 }, gaps: ['lost'], nodes_missing: 2, missing: ['b', 'c'] }), false)
  const second = received(first, text([], { omitted: { written: 2, acked: 1 }, gaps: ['unresolved', 'lost'] }), false)
  expect([...second.omitted]).toEqual([['written', 7], ['acked', 1]])
  expect([[...second.gaps], second.nodesMissing, second.missing]).toEqual([['lost', 'unresolved'], 0, []])
})

test('a filter survives the address', () => {
  const query = new URLSearchParams({ app: 'dev', user: ' ann ', topic: '', show: 'rejected,push,newer' })
  const filter = filterOf(query)
  expect(filter).toEqual({ user: 'ann', groups: ['push', 'rejected'] })
  expect(valuesOf(filter)).toEqual({ user: 'ann', device: undefined, topic: undefined, notification: undefined, campaign: undefined, show: 'push,rejected' })
  expect(queryOf(filter)).toEqual({ user: 'ann', kinds: [...GROUPS.push, ...GROUPS.rejected].join(',') })
  const all = filterOf(new URLSearchParams({ show: 'nothing' }))
  expect([all.groups, valuesOf(all).show, queryOf(all)]).toEqual([GROUP_NAMES, undefined, {}])
})

test('every kind of event has its line', () => {
  const devices = [{ id: 'a', user: 'ann' }, { id: 'b' }, { id: 'c' }, { id: 'd' }]
  expect(summary(event(1, { devices, count: 30 }))).toBe('a (ann), b, c and 27 others')
  expect(summary(event(1, { count: 3, devices: [] }))).toBe('3 devices')
  expect(summary(event(1, { event: 'dropped', devices: devices.slice(0, 1), count: 1, why: 'slow' }))).toBe('Too slow · a (ann)')
  expect(summary(event(1, { event: 'accepted', target: 'users', users: ['ann', 'bob'], targets: 2, when: 'stored' }))).toMatch(/ann, bob/)
  expect(summary(event(1, { event: 'accepted', target: 'topic', topic: 'news', when: 'stored' }))).toMatch(/news/)
  expect(summary(event(1, { event: 'closed', device: 'a', user: 'ann', reason: 'drain' }))).toBe('a (ann) · drain')
  expect(summary(event(1, { event: 'rejected', reason: 'expired', protocol: 'mqtt', network: '192.0.2.1' }))).toBe('Expired token · mqtt · 192.0.2.1')
  expect(summary(event(1, { event: 'push_answered', service: 'apns', result: 'push_token_gone', reason: 'Unregistered', devices: [], count: 1 }))).toMatch(/Unregistered/)
  for (const kind of Object.values(GROUPS).flat()) expect(en[`event.${kind}`]).toBeTruthy()
  expect([tone(event(1, { event: 'push_answered', result: 'pushed' })), tone(event(1, { event: 'push_answered', result: 'push_refused' }))]).toEqual(['good', 'bad'])
  expect(time('2026-11-27T01:02:03.045Z')).toMatch(/\d{2}:\d{2}:03[.,]045/)
})
