/** The size in a Worker: minified by esbuild, compressed by gzip. */

import assert from 'node:assert/strict'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { test } from 'vitest'

async function gzipped(contents: string): Promise<number> {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: fileURLToPath(new URL('../src', import.meta.url)), loader: 'ts' },
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    // Nothing of Node.js: it would not run in Workers.
    platform: 'browser',
    write: false,
  })
  return gzipSync(outputFiles[0]!.contents, { level: 9 }).length
}

test('everything has at most 10 KB, webhooks alone at most 3 KB', async () => {
  const all = await gzipped(`export * from './index.js'`)
  const webhooks = await gzipped(`export { webhookFetchHandler } from './index.js'`)
  console.log(`gzip: everything ${all}, webhooks ${webhooks} bytes`)
  assert.ok(all <= 10_000, `${all} bytes`)
  assert.ok(webhooks <= 3_000, `${webhooks} bytes`)
})
