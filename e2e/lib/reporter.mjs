/** A reporter for `node --test`: one line per file, and the details of failed and skipped tests. */

import { basename } from 'node:path'

function* failure(data) {
  yield `FAILED ${basename(data.file ?? '')}: ${data.name}\n`
  const error = data.details?.error
  const cause = error?.cause ?? error
  const text = cause?.stack ?? String(cause)
  yield text
    .split('\n')
    .filter((line) => !line.includes('node:internal'))
    .slice(0, 40)
    .map((line) => `    ${line}\n`)
    .join('')
}

export default async function* report(source) {
  const files = new Map()
  const started = Date.now()
  for await (const { type, data } of source) {
    if (type !== 'test:pass' && type !== 'test:fail') continue
    if (data.details?.type === 'suite') continue
    const name = basename(data.file ?? data.name)
    const file = files.get(name) ?? { passed: 0, failed: 0, skipped: 0, ms: 0 }
    files.set(name, file)
    file.ms += data.details?.duration_ms ?? 0
    if (data.skip !== undefined) {
      file.skipped++
      yield `SKIPPED ${name}: ${data.name}: ${data.skip}\n`
    } else if (type === 'test:pass') file.passed++
    else {
      file.failed++
      yield* failure(data)
    }
  }
  for (const [name, { passed, failed, skipped, ms }] of [...files].sort()) {
    yield `${name}: ${passed} passed, ${failed} failed, ${skipped} skipped (${Math.round(ms / 100) / 10} s)\n`
  }
  yield `${files.size} files in ${Math.round((Date.now() - started) / 1_000)} s\n`
}
