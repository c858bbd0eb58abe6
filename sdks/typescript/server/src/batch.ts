/** Batches of newline-delimited JSON: bounded requests, one after the other, and a result for each line in order. */

import { readLines } from './body.js'
import { NoroshiError, ProblemError } from './error.js'
import { isTransient, retryDelay, type Http, type RequestOptions } from './http.js'
import { sleep, type Runtime } from './runtime.js'

/** Where lines come from: an array, a generator, a stream. */
export type Lines<Line> = Iterable<Line> | AsyncIterable<Line>

export interface BatchOptions extends RequestOptions {
  /** Lines of a request: 1 to 10,000. Default: 1,000. */
  linesPerRequest?: number | undefined
  /** Bytes of a request, unless a single line has more. The service accepts 16 MiB by default. Default: 4 MiB. */
  bytesPerRequest?: number | undefined
  /** How long lines wait for more lines, if they come slowly. Default: 1,000. */
  flushAfterMs?: number | undefined
}

/** Options of a batch whose lines the service accepts once, however often they are sent. */
export interface IdempotentBatchOptions extends BatchOptions {
  /**
   * 1 to 240 visible ASCII characters. If the same lines are sent again within 24 hours with the same key and the same
   * `linesPerRequest` and `bytesPerRequest`, the service accepts only those that it has not accepted yet. With a key,
   * `flushAfterMs` has no effect, because the division into requests must not depend on time. Default: a random key for
   * each batch, the same for all attempts.
   */
  idempotencyKey?: string | undefined
}

/** The result of one line. `index` is its position in the batch, from 0. */
export type LineResult<Line, Value> =
  | { ok: true; index: number; line: Line; value: Value }
  /** `error` is the service's, or `invalid_line`: the line is not JSON, and was not sent. */
  | { ok: false; index: number; line: Line; error: NoroshiError }

interface Entry<Line> {
  line: Line
  bytes?: Uint8Array<ArrayBuffer>
  error?: NoroshiError
}

type Answer<Value> = { value: Value } | NoroshiError

/** Sends a request and reads its answer. @internal */
export type SendLines<T> = (body: Uint8Array<ArrayBuffer>, request: number, options: RequestOptions, read: (body: Response['body']) => Promise<T>) => Promise<T>

const LINES_MAX = 10_000
const ANSWER_BYTES_MAX = 64 << 20

interface Bounds {
  linesPerRequest: number
  bytesPerRequest: number
  flushAfterMs: number
}

/** @internal */
export function batch<Line, Value>(http: Http, lines: Lines<Line>, options: BatchOptions, send: SendLines<Answer<Value>[]>): AsyncGenerator<LineResult<Line, Value>, void, void> {
  const { linesPerRequest = 1_000, bytesPerRequest = 4 << 20, flushAfterMs = 1_000, ...request } = options
  if (!(linesPerRequest >= 1 && linesPerRequest <= LINES_MAX)) throw new RangeError(`linesPerRequest must be 1 to ${LINES_MAX}`)
  if (!(bytesPerRequest >= 1)) throw new RangeError('bytesPerRequest must be at least 1')
  if (!(flushAfterMs >= 0)) throw new RangeError('flushAfterMs must be at least 0')
  return results(http, lines, { linesPerRequest, bytesPerRequest, flushAfterMs }, request, send)
}

async function* results<Line, Value>(http: Http, lines: Lines<Line>, bounds: Bounds, request: RequestOptions, send: SendLines<Answer<Value>[]>): AsyncGenerator<LineResult<Line, Value>, void, void> {
  let index = 0
  let requests = 0
  for await (const entries of group(http.runtime, lines, bounds, request.signal)) {
    const sent = entries.flatMap(({ bytes }) => bytes ?? [])
    const answers = sent.length === 0 ? [] : await exchange(http, sent, requests++, request, send)
    let next = 0
    for (const { line, error } of entries) {
      const answer = error ?? answers[next++]!
      yield answer instanceof NoroshiError ? { ok: false, index, line, error: answer } : { ok: true, index, line, value: answer.value }
      index++
    }
  }
}

/** One request. Sends it again while the service rejects lines for now: it accepts no line twice. */
async function exchange<Value>(http: Http, lines: Uint8Array[], request: number, options: RequestOptions, send: SendLines<Answer<Value>[]>): Promise<Answer<Value>[]> {
  const { attempts = http.attempts, signal } = options
  const body = concatenate(lines)
  let answers: Answer<Value>[] | undefined
  for (let attempt = 1; ; attempt++) {
    let read: Answer<Value>[]
    try {
      read = await send(body, request, options, (body) => parse<Value>(body, lines.length))
    } catch (error) {
      // A line that is too large for any request.
      if (lines.length === 1 && error instanceof ProblemError && error.status === 413) return [error]
      throw error
    }
    answers = answers?.map((answer, n) => (isTransient(answer) ? read[n]! : answer)) ?? read
    const rejected = answers.find((answer) => isTransient(answer))
    if (!rejected || attempt >= attempts) return answers
    await sleep(http.runtime, retryDelay(rejected, attempt, http.runtime.random()), signal)
  }
}

async function parse<Value>(body: Response['body'], count: number): Promise<Answer<Value>[]> {
  const answers: Answer<Value>[] = []
  for await (const text of readLines(body, ANSWER_BYTES_MAX)) {
    const number = answers.length + 1
    let value: unknown
    try {
      value = JSON.parse(text)
    } catch (cause) {
      throw new NoroshiError('bad_answer', `line ${number} of the answer is not JSON`, { cause })
    }
    if (typeof value !== 'object' || value === null) throw new NoroshiError('bad_answer', `line ${number} of the answer is not an object`)
    const { error } = value as { error?: { status?: unknown } }
    answers.push(error === undefined ? { value: value as Value } : new ProblemError(Number(error?.status) || 500, error))
  }
  if (answers.length !== count) throw new NoroshiError('bad_answer', `the answer has ${answers.length} lines instead of ${count}`)
  return answers
}

/** Groups of lines, each as large as a request may be. At most one group and one line are in memory. */
async function* group<Line>(runtime: Runtime, lines: Lines<Line>, { linesPerRequest, bytesPerRequest, flushAfterMs }: Bounds, signal: AbortSignal | undefined): AsyncGenerator<Entry<Line>[], void, void> {
  const source = Symbol.asyncIterator in lines ? lines[Symbol.asyncIterator]() : lines[Symbol.iterator]()
  let pending: Promise<IteratorResult<Line>> | undefined
  let entries: Entry<Line>[] = []
  let bytes = 0
  const take = () => {
    const full = entries
    entries = []
    bytes = 0
    return full
  }
  try {
    for (;;) {
      signal?.throwIfAborted()
      pending ??= Promise.resolve(source.next())
      const next = await within(runtime, pending, entries.length > 0 ? flushAfterMs : Infinity, signal)
      if (next === undefined) {
        yield take()
        continue
      }
      pending = undefined
      if (next.done) break
      const entry = encode(next.value)
      const size = entry.bytes?.length ?? 0
      if (entries.length > 0 && bytes + size > bytesPerRequest) yield take()
      entries.push(entry)
      bytes += size
      if (entries.length >= linesPerRequest) yield take()
    }
    if (entries.length > 0) yield take()
  } finally {
    pending?.catch(() => {})
    // Not awaited: a source that waits for its next line would never end. No effect on a source that has ended.
    void Promise.resolve(source.return?.()).catch(() => {})
  }
}

const encoder = new TextEncoder()

function encode<Line>(line: Line): Entry<Line> {
  try {
    const text = JSON.stringify(line)
    if (text === undefined) throw new TypeError(`${typeof line} has no JSON`)
    return { line, bytes: encoder.encode(`${text}\n`) }
  } catch (cause) {
    return { line, error: new NoroshiError('invalid_line', `the line is not JSON: ${(cause as Error).message}`, { cause }) }
  }
}

function concatenate(parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

/** The promise's value, or undefined after `ms`. */
async function within<T>(runtime: Runtime, promise: Promise<T>, ms: number, signal: AbortSignal | undefined): Promise<T | undefined> {
  const end = new AbortController()
  const stop = () => end.abort(signal!.reason)
  signal?.addEventListener('abort', stop)
  const waits = signal || ms !== Infinity ? sleep(runtime, Math.min(ms, 2 ** 31 - 1), end.signal) : undefined
  try {
    return (await (waits ? Promise.race([promise, waits]) : promise)) as T | undefined
  } finally {
    signal?.removeEventListener('abort', stop)
    waits?.catch(() => {})
    end.abort()
  }
}
