import assert from 'node:assert/strict'
import { test } from 'vitest'

import type { NoroshiError } from '../src/error.js'
import { Http } from '../src/http.js'
import { Outbox, type ReportStorage } from '../src/outbox.js'
import { Tokens } from '../src/token.js'
import { Clock, settle } from './vectors/clock.js'

class MemoryStorage implements ReportStorage {
  readonly entries = new Map<string, string>()
  isFull = false
  getItem = (key: string) => this.entries.get(key) ?? null
  setItem(key: string, value: string) {
    if (this.isFull) throw new DOMException('full', 'QuotaExceededError')
    this.entries.set(key, value)
  }
  removeItem = (key: string) => void this.entries.delete(key)
}

function outbox(storage: ReportStorage, answer: () => Promise<Response>, max = 10) {
  const clock = new Clock(Array(20).fill(0))
  const sent: string[][] = []
  const errors: string[] = []
  const runtime = {
    ...clock.runtime,
    WebSocket: undefined,
    fetch: (async (_url: unknown, init: RequestInit) => {
      sent.push(JSON.parse(init.body as string).ids)
      return answer()
    }) as typeof fetch,
  }
  const http = new Http('http://service.test', undefined, new Tokens(() => 't', runtime), runtime)
  const failed = ({ code }: NoroshiError) => errors.push(code)
  const box = new Outbox(http, runtime, failed, { path: '/v1/me/opened', field: 'ids', batch: 1_000, max, storage, key: 'k' })
  return { box, sent, errors, clock }
}

const ok = async () => new Response('{}')
const away = async (): Promise<Response> => {
  throw new TypeError('fetch failed')
}

test('O6: reports survive the end of the process', async () => {
  const storage = new MemoryStorage()
  const first = outbox(storage, away)
  first.box.add(['a', 'b'])
  await settle()
  first.box.close()
  assert.deepEqual(JSON.parse(storage.entries.get('k')!), ['a', 'b'])
  const second = outbox(storage, ok)
  await settle()
  assert.deepEqual(second.sent, [['a', 'b']])
  assert.equal(storage.entries.size, 0)
})

test('O6: tabs keep their reports in the same place', async () => {
  const storage = new MemoryStorage()
  const one = outbox(storage, away)
  const two = outbox(storage, ok)
  one.box.add(['a'])
  await settle()
  two.box.add(['b'])
  await settle()
  assert.deepEqual(two.sent, [['b']])
  assert.deepEqual(JSON.parse(storage.entries.get('k')!), ['a'])
  one.box.close()
})

test('a storage with foreign content is ignored', async () => {
  for (const content of ['{', '7', '{"a":1}', '[1, null, "a"]']) {
    const storage = new MemoryStorage()
    storage.entries.set('k', content)
    const { sent } = outbox(storage, ok)
    await settle()
    assert.deepEqual(sent, content.startsWith('[') ? [['a']] : [])
  }
})

test('a full storage is reported, and the report is sent', async () => {
  const storage = new MemoryStorage()
  storage.isFull = true
  const { box, sent, errors } = outbox(storage, ok)
  box.add(['a'])
  await settle()
  assert.deepEqual([errors, sent], [['queue_full'], [['a']]])
})

test('what is stored is bounded', async () => {
  const storage = new MemoryStorage()
  const { box, errors } = outbox(storage, away, 3)
  box.add(['a', 'b', 'c', 'd'])
  await settle()
  assert.deepEqual(errors, ['queue_full'])
  assert.equal(JSON.parse(storage.entries.get('k')!).length, 3)
  box.close()
})

test('a closed outbox sends nothing more', async () => {
  const { box, sent, clock } = outbox(new MemoryStorage(), away)
  box.add(['a'])
  await settle()
  box.close()
  await clock.advance(600_000)
  assert.equal(sent.length, 1)
})
