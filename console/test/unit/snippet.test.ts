/** The snippets are programs: each must send exactly the request of the call, whatever its texts contain. */

import { expect, test } from 'vitest'

import { type Call, encode, wellFormed } from '../../src/reference/call'
import { dense, goBody, goText, pythonText, shell, snippet, typescriptText } from '../../src/reference/snippet'

/** Repeats the same values in each run. */
function random(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

const PIECES = [
  "'", '"', '`', '\\', '$', '${x}', '$(id)', '!', '#', '%', '%2F', '/', '//', '?', '&', '=', '+', ' ', '\n', '\r', '\t', '\0', '\b', '\f', '\u007f', '\u0085',
  '\u2028', '\u2029', '\ufeff', '\ud800', '\udc00', '😀', 'é', '日本', '@', '{', '}', '[', ']', '*', '~', '</script>', '__proto__', "'''", '"""', '\\n', '\\u0041', '\\x', 'a', 'Z', '0',
]
function word(next: () => number): string {
  return Array.from({ length: Math.floor(next() * 8) }, () => PIECES[Math.floor(next() * PIECES.length)]).join('')
}
function value(next: () => number, depth = 0): unknown {
  const kind = Math.floor(next() * (depth > 3 ? 5 : 7))
  if (kind === 0) return null
  if (kind === 1) return next() < 0.5
  if (kind === 2) return Math.floor(next() * 1e6) - 5e5
  if (kind === 3) return next() * 10 ** Math.floor(next() * 40 - 20)
  if (kind === 4) return word(next)
  if (kind === 5) return Array.from({ length: Math.floor(next() * 4) }, () => value(next, depth + 1))
  return Object.fromEntries(Array.from({ length: Math.floor(next() * 4) }, () => [word(next), value(next, depth + 1)]))
}

const call = (body: string | undefined, part = 'a', json = true): Call => ({
  method: 'POST', url: `https://push.example.com/v1/topics/${encode(part)}?q=${encode(part)}`,
  headers: [['Authorization', { before: 'Bearer ', variable: 'NOROSHI_KEY' }], ['Content-Type', 'application/json'], ['Idempotency-Key', `it's "$HOME" \`x\` \\`]],
  body: body === undefined ? undefined : wellFormed(body), json,
})

interface Sent { url: string; method: string; headers: Record<string, string>; body?: string }

/** Runs a TypeScript snippet. It has no types, so it is JavaScript too. */
async function run(source: string): Promise<Sent> {
  let sent: Sent | undefined
  const fetch = async (url: string, init: Omit<Sent, 'url'>): Promise<Response> => {
    sent = { url, ...init }
    return new Response('{}')
  }
  const AsyncFunction = (async () => undefined).constructor as new (...parts: string[]) => (...values: unknown[]) => Promise<void>
  await new AsyncFunction('fetch', 'process', 'console', source)(fetch, { env: { NOROSHI_KEY: 'secret' } }, { log: () => undefined })
  return sent as Sent
}

/** Splits a command as a POSIX shell does, for the quotes that snippets use. */
function words(command: string, variables: Record<string, string>): string[] {
  const found: string[] = []
  let current: string | undefined
  for (let at = 0; at < command.length; at++) {
    const letter = command[at] as string
    if (letter === "'") {
      const end = command.indexOf("'", at + 1)
      current = (current ?? '') + command.slice(at + 1, end)
      at = end
    } else if (letter === '"') {
      const end = command.indexOf('"', at + 1)
      current = (current ?? '') + command.slice(at + 1, end).replace(/\$(\w+)/g, (_, name: string) => variables[name] ?? '')
      at = end
    } else if (letter === '\\') {
      at += 1
      if (command[at] !== '\n') current = (current ?? '') + command[at]
    } else if (letter === ' ') {
      if (current !== undefined) found.push(current)
      current = undefined
    } else current = (current ?? '') + letter
  }
  return current === undefined ? found : [...found, current]
}

const cases = Array.from({ length: 400 }, (_, seed) => ({ seed, json: JSON.stringify(value(random(seed)), null, seed % 3 === 0 ? 2 : 0), part: wellFormed(word(random(seed + 1000))) }))

test('TypeScript sends the URL, the headers and the JSON', async () => {
  for (const { json, part } of cases) {
    const wanted = call(json, part)
    const sent = await run(snippet('typescript', wanted))
    expect(sent.url).toBe(wanted.url)
    expect(decodeURIComponent(/topics\/([^?]*)/.exec(sent.url)?.[1] ?? '')).toBe(part)
    expect(sent.headers).toEqual({ Authorization: 'Bearer secret', 'Content-Type': 'application/json', 'Idempotency-Key': `it's "$HOME" \`x\` \\` })
    expect(JSON.parse(sent.body ?? '')).toEqual(JSON.parse(wellFormed(json)))
  }
})

test('curl gets each argument as it is', () => {
  for (const { json, part } of cases) {
    const wanted = call(json, part)
    const argv = words(snippet('curl', wanted), { NOROSHI_KEY: 'secret' })
    expect(argv.slice(0, 5)).toEqual(['curl', '-sS', '-X', 'POST', wanted.url])
    expect(argv.slice(5, 11)).toEqual(['-H', 'Authorization: Bearer secret', '-H', 'Content-Type: application/json', '-H', `Idempotency-Key: it's "$HOME" \`x\` \\`])
    expect(argv[11]).toBe('--data-raw')
    expect(JSON.parse(argv[12] ?? '')).toEqual(JSON.parse(wellFormed(json)))
  }
})

test('a body that a literal would change is sent as it is', async () => {
  for (const text of ['{"id": 12345678901234567890}', '{"a": 1, "a": 2}', '{"__proto__": {"x": 1}}', '[1.0, -0, 1e400]', '{"2": 0, "1": 0}', 'not JSON', '@file', '']) {
    expect((await run(snippet('typescript', call(text)))).body, text).toSatisfy((body: string) => body === text || JSON.stringify(JSON.parse(body)) === dense(text))
    expect(words(snippet('curl', call(text)), {}).at(-1)).toSatisfy((body: string) => body === text || dense(body) === dense(text))
  }
  expect(Object.keys(JSON.parse((await run(snippet('typescript', call('{"__proto__": {"x": 1}}')))).body ?? ''))).toEqual(['__proto__'])
})

test('lines of JSON stay lines', async () => {
  const lines = '{"a":1}\n{"b":"it\'s"}\n'
  expect((await run(snippet('typescript', call(lines, 'a', false)))).body).toBe(lines)
  expect(words(snippet('curl', call(lines, 'a', false)), {}).at(-1)).toBe(lines)
})

test('texts of Python and Go have no escapes that the languages read differently', () => {
  for (const { seed } of cases) {
    const text = wellFormed(word(random(seed)))
    // Both read the escapes of JSON, except those of surrogates in Go.
    for (const written of [pythonText(text), goText(text)]) {
      expect(JSON.parse(written)).toBe(text)
      expect(written).not.toMatch(/[\n\r\0]/)
    }
    expect(goText(text)).not.toMatch(/\\ud[89a-f]|\ufeff/i)
    const body = goBody(text)
    if (body.startsWith('`')) {
      expect(body.slice(1, -1)).toBe(text)
      expect(body.slice(1, -1)).not.toMatch(/[`\r\0\ufeff]/)
    } else expect(JSON.parse(body)).toBe(text)
    expect(shell(text).replaceAll(`'\\''`, '')).toMatch(/^'[^']*'$/)
    expect((0, eval)(typescriptText(text))).toBe(text)
  }
})

test('no snippet has a secret or an unused import', () => {
  const bare: Call = { method: 'GET', url: 'https://push.example.com/livez', headers: [], json: false }
  expect(snippet('curl', bare)).toBe("curl -sS 'https://push.example.com/livez'")
  expect(snippet('go', bare)).not.toMatch(/"os"|"strings"/)
  expect(snippet('python', bare)).not.toMatch(/import (os|json)/)
  for (const language of ['curl', 'typescript', 'python', 'go'] as const) expect(snippet(language, call('{}'))).toContain('NOROSHI_KEY')
})
