/** Reads answers with a limit, as a text or as lines. */

import { networkError, NoroshiError } from './error.js'

type Body = Response['body']

async function* chunks(body: Body, bytesMax: number): AsyncGenerator<string> {
  if (!body) return
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let bytes = 0
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => {
        throw networkError(error)
      })
      if (done) break
      bytes += value.length
      if (bytes > bytesMax) throw new NoroshiError('bad_answer', `the answer has more than ${bytesMax} bytes`)
      yield decoder.decode(value, { stream: true })
    }
    yield decoder.decode()
  } finally {
    // Frees the connection if not everything was read; no effect otherwise.
    void reader.cancel().catch(() => {})
  }
}

/** @internal */
export async function readText(body: Body, bytesMax: number): Promise<string> {
  let text = ''
  for await (const chunk of chunks(body, bytesMax)) text += chunk
  return text
}

/** Each line without its line break. @internal */
export async function* readLines(body: Body, bytesMax: number): AsyncGenerator<string> {
  let rest = ''
  for await (const chunk of chunks(body, bytesMax)) {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop()!
    yield* lines
  }
  if (rest) yield rest
}
