/** What a browser downloads: minified by esbuild, compressed by gzip. */

import assert from 'node:assert/strict'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { fileURLToPath } from 'node:url'
import { test } from 'vitest'

async function gzipped(contents: string): Promise<number> {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: fileURLToPath(new URL('../src', import.meta.url)), loader: 'ts' },
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    write: false,
  })
  return gzipSync(outputFiles[0]!.contents, { level: 9 }).length
}

test('the worker has at most 4 KB, the page at most 2.5 KB', async () => {
  const worker = await gzipped(`export * from './worker.js'`)
  const page = await gzipped(`export * from './index.js'`)
  console.log(`gzip: worker ${worker}, page ${page} bytes`)
  assert.ok(worker <= 4_000, `${worker} bytes`)
  assert.ok(page <= 2_500, `${page} bytes`)
})
