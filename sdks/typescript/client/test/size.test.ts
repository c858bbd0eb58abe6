/** What a page downloads: minified by esbuild, compressed by gzip. */

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

test('everything has at most 12 KB, the connection alone at most 6 KB', async () => {
  const all = await gzipped(`export * from './index.js'`)
  const client = await gzipped(`export { Noroshi } from './index.js'`)
  const connection = await gzipped(`export { Connection } from './index.js'`)
  console.log(`gzip: everything ${all}, Noroshi ${client}, Connection ${connection} bytes`)
  assert.ok(all <= 12_288, `${all} bytes`)
  assert.ok(connection <= 6_144, `${connection} bytes`)
})
