import assert from 'node:assert/strict'
import { describe, expect, test } from 'vitest'

import { NoroshiError, ProblemError, type LineResult } from '../src/index.js'
import { problem, quick, Service, type Answer, type Got } from './service.js'

const line = (n: number) => ({ to: { users: [`u${n}`] }, data: n })
const numbers = (count: number, from = 0) => Array.from({ length: count }, (_, n) => from + n)

/** Accepts each line, once for each idempotency key and position, as the service does. */
function accepting(): { answer: Answer; accepted: number[]; requests: Got[] } {
  const known = new Map<string, string>()
  const accepted: number[] = []
  const requests: Got[] = []
  const answer: Answer = (got, response) => {
    requests.push(got)
    assert.equal(got.headers['content-type'], 'application/x-ndjson')
    const lines = got.text.trimEnd().split('\n')
    const results = lines.map((text, n) => {
      const key = `${got.headers['idempotency-key']}\n${n}`
      if (!known.has(key)) {
        accepted.push(JSON.parse(text).data)
        known.set(key, JSON.stringify({ id: `id-${accepted.length}`, targets: 1 }))
      }
      return `${known.get(key)}\n`
    })
    response.writeHead(200, { 'content-type': 'application/x-ndjson' })
    response.end(results.join(''))
  }
  return { answer, accepted, requests }
}

async function collect<Line, Value>(results: AsyncIterable<LineResult<Line, Value>>): Promise<LineResult<Line, Value>[]> {
  const all = []
  for await (const result of results) all.push(result)
  return all
}

describe('a batch', () => {
  test('is divided into requests, and each line has its result in order', async () => {
    const { answer, accepted, requests } = accepting()
    const service = await Service.start(answer)
    const results = await collect(service.client().publishBatch(numbers(25).map(line), { linesPerRequest: 10 }))
    assert.deepEqual(requests.map(({ text }) => text.trimEnd().split('\n').length), [10, 10, 5])
    assert.deepEqual(accepted, numbers(25))
    assert.deepEqual(results.map(({ index, line, ok }) => [index, line.data, ok]), numbers(25).map((n) => [n, n, true]))
    assert.equal(new Set(results.map((result) => result.ok && result.value.id)).size, 25)
    const keys = requests.map(({ headers }) => headers['idempotency-key'] as string)
    assert.deepEqual(keys.map((key) => key.slice(-2)), ['-0', '-1', '-2'])
    assert.equal(new Set(keys.map((key) => key.slice(0, -2))).size, 1)
  })

  test('is divided by bytes, whatever the characters', async () => {
    const { answer, requests } = accepting()
    const service = await Service.start(answer)
    const lines = numbers(10).map((n) => ({ to: { users: ['u'] }, data: n, notification: { title: '烽火'.repeat(20) } }))
    await collect(service.client().publishBatch(lines, { bytesPerRequest: 500 }))
    assert.ok(requests.length >= 4)
    for (const { text } of requests) assert.ok(Buffer.byteLength(text) <= 500, `${Buffer.byteLength(text)} bytes`)
  })

  test('takes no more lines than it sends', async () => {
    const { answer } = accepting()
    const service = await Service.start(answer)
    let taken = 0
    async function* source() {
      for (; taken < 1_000_000; taken++) yield line(taken)
    }
    const results = service.client().publishBatch(source(), { linesPerRequest: 10 })
    await results.next()
    assert.ok(taken <= 11, `${taken} lines`)
    for (let n = 0; n < 20; n++) await results.next()
    assert.ok(taken <= 31, `${taken} lines`)
    await results.return()
  })

  test('ends its source if the loop ends', async () => {
    const { answer } = accepting()
    const service = await Service.start(answer)
    let isEnded = false
    async function* source() {
      try {
        for (let n = 0; ; n++) yield line(n)
      } finally {
        isEnded = true
      }
    }
    for await (const { ok } of service.client().publishBatch(source(), { linesPerRequest: 3 })) {
      assert.ok(ok)
      break
    }
    assert.ok(isEnded)
  })

  test('sends lines that come slowly', async () => {
    const { answer, requests } = accepting()
    const service = await Service.start(answer)
    let isSent = () => {}
    const sent = new Promise<void>((resolve) => (isSent = resolve))
    async function* source() {
      yield line(0)
      yield line(1)
      await sent
      yield line(2)
    }
    const results = service.client().publishBatch(source(), { flushAfterMs: 20 })
    assert.equal((await results.next()).value?.index, 0)
    assert.equal((await results.next()).value?.index, 1)
    isSent()
    assert.equal((await results.next()).value?.index, 2)
    assert.equal((await results.next()).done, true)
    assert.equal(requests.length, 2)
  })

  test('is the same again with the same key, however slowly lines come', async () => {
    const { answer, accepted } = accepting()
    const service = await Service.start(answer)
    async function* source(ms: number) {
      for (const n of numbers(10)) {
        if (ms) await new Promise((resolve) => setTimeout(resolve, ms))
        yield line(n)
      }
    }
    const options = { idempotencyKey: 'import-7', linesPerRequest: 4, flushAfterMs: 1 }
    const first = await collect(service.client().publishBatch(source(0), options))
    const second = await collect(service.client().publishBatch(source(5), options))
    assert.deepEqual(second, first)
    assert.deepEqual(accepted, numbers(10))
    assert.throws(() => service.client().publishBatch([], { idempotencyKey: 'k'.repeat(241) }), /240/)
  })

  test('of nothing sends nothing', async () => {
    const service = await Service.start('reset')
    assert.deepEqual(await collect(service.client().publishBatch([])), [])
    assert.equal(service.got.length, 0)
  })

  test('fails with the error of its source, after the results of earlier requests', async () => {
    const { answer } = accepting()
    const service = await Service.start(answer)
    async function* source() {
      yield* numbers(4).map(line)
      throw new Error('the database is gone')
    }
    const results: number[] = []
    await expect(
      (async () => {
        for await (const { index } of service.client().publishBatch(source(), { linesPerRequest: 2 })) results.push(index)
      })(),
    ).rejects.toThrow('the database is gone')
    assert.deepEqual(results, [0, 1, 2, 3])
  })

  test('has bounds', async () => {
    const service = await Service.start('reset')
    for (const bounds of [{ linesPerRequest: 0 }, { linesPerRequest: 10_001 }, { bytesPerRequest: 0 }, { flushAfterMs: -1 }, { linesPerRequest: Number.NaN }]) {
      assert.throws(() => service.client().publishBatch([line(0)], bounds), RangeError)
    }
  })
})

describe('results', () => {
  const ok = (n: number) => JSON.stringify({ id: `id-${n}`, targets: 1 })
  const rejected = (status: number, code: string) => JSON.stringify({ error: { type: `/docs#${code}`, title: 'T', status, code, detail: 'D', field: 'to' } })
  const lines = (...texts: string[]): Answer => ({ text: texts.map((text) => `${text}\n`).join('') })

  test('of single lines may be errors', async () => {
    const service = await Service.start(lines(ok(0), rejected(400, 'invalid_field'), ok(2)))
    const results = await collect(service.client().publishBatch(numbers(3).map(line)))
    assert.deepEqual(results.map(({ ok }) => ok), [true, false, true])
    const [, failed] = results
    assert.ok(!failed!.ok && failed!.error instanceof ProblemError)
    assert.deepEqual([failed!.error.code, failed!.error.status, failed!.error.field, failed!.line.data], ['invalid_field', 400, 'to', 1])
    assert.equal(service.got.length, 1)
  })

  test('that are errors for now are requested again, with the same key', async () => {
    const service = await Service.start(
      lines(ok(0), rejected(503, 'overloaded'), rejected(400, 'invalid_field'), rejected(429, 'quota_exceeded')),
      lines(ok(0), ok(1), rejected(400, 'unknown_field'), rejected(429, 'quota_exceeded')),
      lines(ok(0), rejected(409, 'idempotency_conflict'), rejected(400, 'unknown_field'), ok(3)),
    )
    const clock = quick()
    const results = await collect(service.client(clock).publishBatch(numbers(4).map(line)))
    assert.deepEqual(results.map((result) => (result.ok ? result.value.id : result.error.code)), ['id-0', 'id-1', 'invalid_field', 'id-3'])
    assert.equal(new Set(service.got.map(({ headers }) => headers['idempotency-key'])).size, 1)
    assert.equal(new Set(service.got.map(({ text }) => text)).size, 1)
    assert.equal(service.got.length, 3)
  })

  test('stay errors if the attempts are used up', async () => {
    const service = await Service.start(lines(ok(0), rejected(429, 'quota_exceeded')))
    const results = await collect(service.client({ ...quick(), attempts: 3 }).publishBatch(numbers(2).map(line)))
    assert.deepEqual(results.map(({ ok }) => ok), [true, false])
    assert.equal(service.got.length, 3)
  })

  test('of lines that are not JSON are local', async () => {
    const { answer, accepted } = accepting()
    const service = await Service.start(answer)
    const cyclic: Record<string, unknown> = {}
    cyclic['self'] = cyclic
    const wrong = [line(0), { ...line(1), data: 7n }, { ...line(2), data: cyclic }, line(3), undefined as never]
    const results = await collect(service.client().publishBatch(wrong))
    assert.deepEqual(results.map((result) => (result.ok ? 'ok' : result.error.code)), ['ok', 'invalid_line', 'invalid_line', 'ok', 'invalid_line'])
    assert.deepEqual(accepted, [0, 3])
  })

  test('of a line that is too large for a request', async () => {
    const { answer } = accepting()
    const service = await Service.start((got, response) => {
      if (got.text.length < 1_000 && typeof answer === 'function') return answer(got, response)
      response.writeHead(413, { 'content-type': 'application/problem+json' })
      response.end(JSON.stringify({ type: '', title: 'T', status: 413, code: 'body_too_large', detail: 'D' }))
    })
    const results = await collect(service.client().publishBatch([line(0), { ...line(1), data: 'x'.repeat(2_000) as never }, line(2)], { bytesPerRequest: 500 }))
    assert.deepEqual(results.map((result) => (result.ok ? 'ok' : result.error.code)), ['ok', 'body_too_large', 'ok'])
  })

  test.each([
    ['too few lines', lines(ok(0)), 'bad_answer'],
    ['too many lines', lines(ok(0), ok(1), ok(2)), 'bad_answer'],
    ['half a line', { text: `${ok(0)}\n{"id":` }, 'bad_answer'],
    ['a page', { text: '<html>' }, 'bad_answer'],
    ['other JSON', lines('7', 'null'), 'bad_answer'],
    ['nothing', { text: '' }, 'bad_answer'],
    ['a problem', problem(403, 'forbidden'), 'forbidden'],
  ] as [string, Answer, string][])('an answer with %s fails the batch', async (_, answer, code) => {
    const service = await Service.start(answer)
    await expect(collect(service.client().publishBatch(numbers(2).map(line)))).rejects.toThrow(expect.objectContaining({ code, request: 'POST /v1/notifications/batch' }))
    assert.equal(service.got.length, 1)
  })

  test('that break off are requested again, and no line is accepted twice', async () => {
    const { answer, accepted } = accepting()
    let breaks = 3
    const service = await Service.start((got, response) => {
      if (breaks-- <= 0) return typeof answer === 'function' ? answer(got, response) : undefined
      // Accepts all lines, and loses the answer in its middle.
      const end = response.end.bind(response)
      response.end = ((text: string) => response.write(text.slice(0, text.length / 2), () => response.socket?.destroy())) as never
      if (typeof answer === 'function') answer(got, response)
      response.end = end as never
    })
    const results = await collect(service.client(quick()).publishBatch(numbers(50).map(line), { linesPerRequest: 20 }))
    assert.ok(results.every(({ ok }) => ok))
    assert.deepEqual(accepted, numbers(50))
    assert.equal(service.got.length, 6)
  })

  test('come with the last line without a line break, and across chunks', async () => {
    const text = `${JSON.stringify({ id: '烽火', targets: 1 })}\n${ok(1)}`
    const service = await Service.start((_, response) => {
      response.writeHead(200)
      const bytes = Buffer.from(text)
      let at = 0
      const next = () => (at < bytes.length ? response.write(bytes.subarray(at, ++at), () => setImmediate(next)) : response.end())
      next()
    })
    const results = await collect(service.client().publishBatch(numbers(2).map(line)))
    assert.deepEqual(results.map((result) => result.ok && result.value.id), ['烽火', 'id-1'])
  })

  test('end with an abort, also while lines are awaited', async () => {
    const { answer } = accepting()
    const service = await Service.start(answer)
    const abort = new AbortController()
    async function* source() {
      yield line(0)
      await new Promise(() => {})
    }
    const results = service.client().publishBatch(source(), { signal: abort.signal, flushAfterMs: 10 })
    assert.ok((await results.next()).value?.ok)
    setTimeout(() => abort.abort(new Error('shutting down')), 20)
    await expect(results.next()).rejects.toThrow('shutting down')
  })
})

test('devices without an id get one, so that a repetition creates none', async () => {
  const answers: Answer[] = ['reset', (got, response) => response.end(got.text.replace(/"device":"(\w+)".*/g, '"device":"$1","token":"t"}'))]
  const service = await Service.start(...answers)
  const results = await collect(service.client(quick()).devices.registerBatch([{ user: 'u1' }, { device: 'mine', user: 'u2' }]))
  assert.equal(service.got[0]!.text, service.got[1]!.text)
  const [drawn, named] = results
  assert.ok(drawn!.ok && /^[0-9a-f]{32}$/.test(drawn!.value.device) && drawn!.line.device === drawn!.value.device)
  assert.ok(named!.ok && named!.value.device === 'mine')
})

test('errors of a batch are errors of the library', () => {
  assert.ok(new ProblemError(500, undefined) instanceof NoroshiError)
})
