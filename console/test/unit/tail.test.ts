import { expect, test } from 'vitest'

import { en } from '../../src/i18n/en'
import { cleared, EMPTY, json, OMISSIONS_MAX, received, resumed, ROWS_MAX, type TailEvent, type TailText } from '../../src/pages/tail'
import { filterOf, GROUP_NAMES, GROUPS, queryOf, valuesOf } from '../../src/pages/tail-filter'
import { omissionText, second, summary, time, tone } from '../../src/pages/tail-text'

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

const at = (seconds: number): string => new Date(Date.UTC(2026, 10, 27) + seconds * 1000).toISOString()

test('what the list lacks has times, and reports soon after each other are one', () => {
  const first = received(EMPTY, text([], { at: at(0), omitted: { written: 5 }, gaps: ['lost'], nodes_missing: 2, missing: ['b', 'c'] }), false)
  const second = received(first, text([], { at: at(4), omitted: { written: 2, acked: 1 }, gaps: ['unresolved'] }), false)
  const third = received(second, text([], { at: at(60), omitted: { acked: 1 }, gaps: ['lost'] }), false)
  expect(third.omissions).toEqual([
    { kind: 'lost', from: at(60), until: at(60), counts: {} },
    { kind: 'omitted', from: at(60), until: at(60), counts: { acked: 1 } },
    { kind: 'omitted', from: at(0), until: at(4), counts: { written: 7, acked: 1 } },
    { kind: 'unresolved', from: at(4), until: at(4), counts: {} },
    { kind: 'lost', from: at(0), until: at(0), counts: {} },
  ])
  expect([third.nodesMissing, third.missing]).toEqual([0, []])
  expect(omissionText(third.omissions[2] as (typeof third.omissions)[number])).toBe('The server left out 8 events: Written 7, Acknowledged 1.')
})

test('an interruption lasts from the last text to the next one', () => {
  expect(received(EMPTY, text([], { at: at(9) }), false, 'disconnected').omissions).toEqual([])
  const before = received(EMPTY, text([event(1)], { at: at(10) }), false)
  const after = received(before, text([event(2)], { at: at(700) }), false, 'hidden')
  expect(after.omissions).toEqual([{ kind: 'hidden', from: at(10), until: at(700), counts: {} }])
  expect(ids(after.rows)).toEqual(['n2', 'n1'])
  expect([cleared(after).rows, cleared(after).omissions, cleared(after).at]).toEqual([[], [], at(700)])
})

test('the list of omissions is bounded and loses no count', () => {
  let tail = EMPTY
  for (let n = 0; n < OMISSIONS_MAX + 3; n += 1) tail = received(tail, text([], { at: at(n * 60), omitted: { written: 1 } }), false)
  expect(tail.omissions.length).toBe(OMISSIONS_MAX)
  expect(tail.omissions.reduce((sum, { counts }) => sum + (counts['written'] ?? 0), 0)).toBe(OMISSIONS_MAX + 3)
  expect([tail.omissions.at(-1)?.from, tail.omissions.at(-1)?.until]).toEqual([at(0), at(180)])
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
  expect(second('2026-11-27T01:02:03.045Z')).toMatch(/\d{2}:\d{2}:03$/)
})
