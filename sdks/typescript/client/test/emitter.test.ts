import assert from 'node:assert/strict'
import { test } from 'vitest'

import { Emitter, LEFT, UNHANDLED } from '../src/emitter.js'
import { settle } from './vectors/clock.js'

type Events = { message: number; state: string }

test('a listener is removed by its function, by off, and by a signal', () => {
  const emitter = new Emitter<Events>()
  const seen: string[] = []
  const abort = new AbortController()
  const off = emitter.on('state', (state) => seen.push(`a ${state}`))
  const second = (state: string) => seen.push(`b ${state}`)
  emitter.on('state', second)
  emitter.on('state', (state) => seen.push(`c ${state}`), { signal: abort.signal })
  emitter.emit('state', '1')
  off()
  emitter.off('state', second)
  abort.abort()
  emitter.on('state', second, { signal: abort.signal })
  emitter.emit('state', '2')
  assert.deepEqual(seen, ['a 1', 'b 1', 'c 1'])
  assert.equal(emitter.has('state'), false)
})

test('ask collects results: none, values, promises and failures', async () => {
  const emitter = new Emitter<Events>()
  assert.equal(emitter.ask('message', 1), UNHANDLED)
  emitter.on('message', () => UNHANDLED)
  assert.equal(emitter.ask('message', 1), UNHANDLED)
  emitter.on('message', () => 7)
  assert.equal(emitter.ask('message', 1), undefined)
  const called: number[] = []
  emitter.on('message', () => Promise.reject(new Error('no')))
  emitter.on('message', (n) => called.push(n))
  await assert.rejects(emitter.ask('message', 5) as Promise<unknown>, /no/)
  assert.deepEqual(called, [5])
})

test('a promise of UNHANDLED is not handled', async () => {
  const emitter = new Emitter<Events>()
  emitter.on('message', async () => UNHANDLED)
  assert.equal(await emitter.ask('message', 1), UNHANDLED)
})

test('an iterator resolves an event after the body of the loop, and leaves what waits', async () => {
  const emitter = new Emitter<Events>()
  const results: string[] = []
  const events = emitter.events('message')
  const first = events.next()
  await settle()
  for (const n of [1, 2, 3]) {
    ;(emitter.ask('message', n) as Promise<unknown>).then(
      (value) => results.push(value === UNHANDLED ? `${n} left` : `${n} handled`),
      (error) => results.push(error === LEFT ? `${n} failed` : `${n} ${error}`),
    )
  }
  assert.deepEqual(await first, { value: 1, done: false })
  await settle()
  assert.deepEqual(results, [])
  assert.deepEqual(await events.next(), { value: 2, done: false })
  await settle()
  assert.deepEqual(results, ['1 handled'])
  await events.return()
  await settle()
  assert.deepEqual(results, ['1 handled', '2 failed', '3 left'])
  assert.equal(emitter.has('message'), false)
})

test('an iterator ends with its signal, also while it waits', async () => {
  const emitter = new Emitter<Events>()
  const abort = new AbortController()
  const events = emitter.events('state', { signal: abort.signal })
  const next = events.next()
  await settle()
  abort.abort()
  assert.deepEqual(await next, { value: undefined, done: true })
})

test('an iterator of other events keeps the newest 1,000', async () => {
  const emitter = new Emitter<Events>()
  const events = emitter.events('state')
  const first = events.next()
  await settle()
  for (let n = 0; n < 1_500; n++) emitter.emit('state', String(n))
  await settle()
  await first
  let count = 1
  const abort = setTimeout(() => events.return(), 50)
  while (count < 1_000 && !(await events.next()).done) count++
  clearTimeout(abort)
  assert.equal(count, 1_000)
})

test('a signal that outlives its listeners keeps none of them', () => {
  const emitter = new Emitter<Events>()
  const abort = new AbortController()
  let count = 0
  const { addEventListener, removeEventListener } = abort.signal
  abort.signal.addEventListener = (...args: any) => (count++, (addEventListener as any).apply(abort.signal, args))
  abort.signal.removeEventListener = (...args: any) => (count--, (removeEventListener as any).apply(abort.signal, args))
  const listener = () => {}
  const { signal } = abort
  emitter.on('state', listener, { signal })()
  emitter.on('state', listener, { signal })
  emitter.off('state', listener)
  emitter.off('state', listener)
  emitter.on('state', listener, { signal })
  emitter.on('state', listener, { signal })
  assert.equal(count, 1)
  emitter.on('state', listener)
  assert.equal(count, 0, 'added again without the signal')
  abort.abort()
  assert.equal(emitter.has('state'), true)
})

test('a loop whose body throws has not handled its message, also if another listener has', async () => {
  const emitter = new Emitter<Events>()
  emitter.on('message', () => {})
  const loop = (async () => {
    for await (const n of emitter.events('message')) throw new Error(`no ${n}`)
  })().catch(({ message }) => message)
  await settle()
  const result = (emitter.ask('message', 1) as Promise<unknown>).catch((error: unknown) => error)
  assert.equal(await loop, 'no 1')
  assert.equal(await result, LEFT)
})

test('a loop over other events that ends early rejects nothing', async () => {
  const emitter = new Emitter<Events>()
  const loop = (async () => {
    for await (const state of emitter.events('state')) return state
    return undefined
  })()
  await settle()
  emitter.emit('state', '1')
  emitter.emit('state', '2')
  assert.equal(await loop, '1')
  await settle()
})

test('iterators end after what waits: by close without an error, else with its reason', async () => {
  for (const reason of ['closed', 'signed_out', 'unauthorized']) {
    const emitter = new Emitter<Events>()
    const taken: string[] = []
    const loop = (async () => {
      for await (const state of emitter.events('state')) taken.push(state)
    })().then(() => 'ended', ({ code }) => code)
    await settle()
    emitter.emit('state', 'a')
    emitter.emit('state', 'b')
    emitter.finish(reason)
    assert.equal(await loop, reason === 'unauthorized' ? reason : 'ended')
    assert.deepEqual(taken, ['a', 'b'])
    assert.equal(emitter.has('state'), false)
  }
})
