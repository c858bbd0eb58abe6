/** What a page downloads in addition to @noroshi/client: minified by esbuild, compressed by gzip. */

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
    external: ['@noroshi/client'],
    write: false,
  })
  return gzipSync(outputFiles[0]!.contents, { level: 9 }).length
}

test('the element has at most 8 KB, the store alone at most 3 KB', async () => {
  const element = await gzipped(`import '../dist/define.js'`)
  const store = await gzipped(`export { InboxStore } from './index.js'`)
  console.log(`gzip: element ${element}, InboxStore ${store} bytes`)
  assert.ok(element <= 8_000, `${element} bytes`)
  assert.ok(store <= 3_000, `${store} bytes`)
})
