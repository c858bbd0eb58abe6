import { expect, test, vi } from 'vitest'

import { ApiError } from '../../src/api/error'
import { Autosave, type Saved } from '../../src/pages/autosave'
import { EMPTY, fill, fromDefinition, placeholders, stepOf, toDefinition, withoutNulls, wordsFor } from '../../src/pages/draft'
import { sampled, SAMPLES_MAX } from '../../src/pages/rate-samples'

test('empty fields are absent, and null in a change', () => {
  expect(withoutNulls(toDefinition({ ...EMPTY, title: 'Hello' }))).toEqual({
    audience: { everyone: true }, message: { notification: { title: 'Hello' } },
  })
  expect(toDefinition(EMPTY)).toMatchObject({ name: null, locales: null, start_at: null, quiet_hours: null, rate_per_second: null, message: {} })
})

test('audience, languages and schedule, there and back', () => {
  const draft = {
    ...EMPTY, name: 'Sale', whom: 'topic' as const, topic: 'news', platforms: ['ios' as const], title: 'Sale {{name}}', text: '20 %',
    translations: [{ locale: 'ja', title: 'セール', text: '' }], variables: { name: 'you' },
    localTime: '09:00', quiet: true, rate: '500',
  }
  const definition = withoutNulls(toDefinition(draft))
  expect(definition).toEqual({
    name: 'Sale',
    audience: { topic: 'news', devices: { platforms: ['ios'] } },
    message: { notification: { title: 'Sale {{name}}', body: '20 %' } },
    locales: { ja: { notification: { title: 'セール' } } },
    variables: { name: 'you' },
    local_time: '09:00', quiet_hours: { from: '22:00', to: '08:00' }, rate_per_second: 500,
  })
  expect(fromDefinition(definition)).toEqual(draft)
})

test('what the composer does not show stays', () => {
  const base = {
    audience: { everyone: true, devices: { tags: { plan: ['pro'] }, platforms: ['web'] } },
    message: { notification: { title: 'a', sound: 'bell' }, data: { x: 1 }, urgency: 'high' },
  }
  expect(toDefinition({ ...fromDefinition(base), title: 'b', platforms: [] }, base)).toMatchObject({
    audience: { everyone: true, devices: { tags: { plan: ['pro'] } } },
    message: { notification: { title: 'b', sound: 'bell' }, data: { x: 1 }, urgency: 'high' },
  })
})

test('a person gets the language and the values of their own', () => {
  const draft = { ...EMPTY, title: 'Hi {{ name }}', text: 'x', translations: [{ locale: 'pt', title: 'Oi {{name}}', text: '' }] }
  expect(placeholders(draft)).toEqual(['name'])
  expect(wordsFor(draft, 'pt-BR')).toEqual({ title: 'Oi {{name}}', text: 'x' })
  expect(wordsFor(draft, 'fr')).toEqual({ title: 'Hi {{ name }}', text: 'x' })
  expect(fill('Hi {{ name }}', { name: 'Ann' }, { name: 'you' })).toBe('Hi Ann')
  expect(fill('Hi {{name}}', {}, { name: 'you' })).toBe('Hi you')
  expect(fill('Hi {{name}}', {}, {})).toBe('Hi {{name}}')
  // Names that every object has are no values.
  expect(fill('{{constructor}} {{toString}}', {}, {})).toBe('{{constructor}} {{toString}}')
  expect([stepOf('audience.topic'), stepOf('quiet_hours.from'), stepOf(null)]).toEqual(['audience', 'schedule', 'message'])
})

test('rates keep their times: steps without an answer are gaps', () => {
  const from = 1_000_000
  let samples = sampled({ from: 0, points: [] }, 1, from, 2000)
  samples = sampled(samples, 2, from + 2100, 2000)
  expect(samples).toEqual({ from, points: [1, 2] })
  samples = sampled(samples, 3, from + 8000, 2000)
  expect(samples).toEqual({ from, points: [1, 2, null, null, 3] })
  // An early answer is a step of its own.
  expect(sampled(samples, 4, from + 8100, 2000).points.slice(-2)).toEqual([3, 4])
  const late = sampled(samples, 5, from + 10_000_000, 2000)
  expect([late.points.length, late.points.at(-1), late.from + (SAMPLES_MAX - 1) * 2000]).toEqual([SAMPLES_MAX, 5, from + 10_000_000])
})

const conflict = () => new ApiError({ status: 409, code: 'revision_conflict', title: '', detail: '' })

test('saves one request at a time, the newest content last', async () => {
  const sent: unknown[] = []
  let release = (): void => undefined
  const save = async (id: string, revision: number, content: unknown): Promise<Saved> => {
    sent.push(content)
    await new Promise<void>((resolve) => (release = resolve))
    return { id, revision: revision + 1 }
  }
  const autosave = new Autosave<Saved>({ create: (content) => save('c', 0, content), change: save }, () => undefined, 0)
  autosave.write({ name: 'a' })
  const done = autosave.flush()
  autosave.write({ name: 'b' })
  autosave.write({ name: 'c' })
  await vi.waitFor(() => expect(sent).toEqual([{ name: 'a' }]))
  release()
  await vi.waitFor(() => expect(sent).toEqual([{ name: 'a' }, { name: 'c' }]))
  release()
  await done
  expect([autosave.state, autosave.saved]).toEqual(['saved', { id: 'c', revision: 2 }])
})

test('a conflict waits for the person', async () => {
  const change = vi.fn<(id: string, revision: number, content: unknown) => Promise<Saved>>()
  change.mockRejectedValueOnce(conflict()).mockResolvedValueOnce({ id: 'c', revision: 8 })
  const autosave = new Autosave<Saved>({ create: async () => ({ id: 'c', revision: 1 }), change }, () => undefined, 0)
  autosave.begin({ id: 'c', revision: 1 })
  autosave.write({ name: 'mine' })
  await autosave.flush()
  expect(autosave.state).toBe('conflict')
  autosave.write({ name: 'mine too' })
  await autosave.flush()
  expect(change).toHaveBeenCalledTimes(1)
  await autosave.overwrite(7)
  expect(change).toHaveBeenLastCalledWith('c', 7, { name: 'mine too' })
  expect(autosave.state).toBe('saved')
})

test('a failure keeps what was written', async () => {
  const create = vi.fn<() => Promise<Saved>>().mockRejectedValueOnce(new Error('offline')).mockResolvedValueOnce({ id: 'c', revision: 1 })
  const autosave = new Autosave<Saved>({ create, change: vi.fn() }, () => undefined, 0)
  autosave.write({ name: 'a' })
  await autosave.flush()
  expect(autosave.state).toBe('failed')
  await autosave.flush()
  expect([autosave.state, create.mock.calls.length]).toEqual(['saved', 2])
})
