/** What a page downloads in addition to React and @noroshi/client: minified by esbuild, compressed by gzip. */

import assert from 'node:assert/strict'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { fileURLToPath } from 'node:url'
import { test } from 'vitest'

// @ts-expect-error JavaScript without types
import { raw } from '../../scripts/raw.mjs'

async function gzipped(contents: string): Promise<number> {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: fileURLToPath(new URL('../src', import.meta.url)), loader: 'ts' },
    bundle: true,
    plugins: [raw],
    minify: true,
    format: 'esm',
    target: 'es2022',
    external: ['react', '@noroshi/client'],
    write: false,
  })
  return gzipSync(outputFiles[0]!.contents, { level: 9 }).length
}

test('the bell has at most 8 KB, everything at most 10 KB', async () => {
  const all = await gzipped(`export * from './index.js'`)
  const bell = await gzipped(`export { InboxBell, NoroshiProvider } from './index.js'`)
  const inbox = await gzipped(`export { useInbox, NoroshiProvider } from './index.js'`)
  console.log(`gzip: everything ${all}, InboxBell ${bell}, useInbox ${inbox} bytes`)
  assert.ok(bell <= 8_000, `${bell} bytes`)
  assert.ok(all <= 10_000, `${all} bytes`)
})
