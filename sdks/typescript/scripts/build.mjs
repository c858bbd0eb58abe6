/**
 * Builds dist/ of the packages in this folder, or of the one in the current folder: for each entry point an ES module, a
 * CommonJS module, and their types.
 */

import { build } from 'esbuild'
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { rollup } from 'rollup'
import { dts } from 'rollup-plugin-dts'

import { raw } from './raw.mjs'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** In the order of their dependencies. */
const PACKAGES = ['client', 'inbox', 'react', 'web-push']

async function buildPackage(folder) {
  process.chdir(folder)
  rmSync('dist', { recursive: true, force: true })
  const { exports, peerDependencies = {} } = JSON.parse(readFileSync('package.json', 'utf8'))
  const entries = Object.keys(exports)
    .filter((name) => name !== './package.json')
    .map((name) => (name === '.' ? 'index' : name.slice(2)))
  const entryPoints = Object.fromEntries(entries.map((entry) => [entry, `src/${entry}.ts`]))
  const packages = Object.keys(peerDependencies).flatMap((name) => [name, `${name}/*`])
  const common = { absWorkingDir: folder, entryPoints: Object.values(entryPoints), bundle: true, plugins: [raw], external: packages, target: 'es2022', legalComments: 'none', logLevel: 'warning', outdir: 'dist' }
  await build({ ...common, format: 'esm', splitting: entries.length > 1, chunkNames: '[name]' })
  await build({ ...common, format: 'cjs', outExtension: { '.js': '.cjs' } })
  const bundle = await rollup({
    input: entryPoints,
    external: [/^@noroshi\//, /^react/],
    plugins: [dts({ tsconfig: 'tsconfig.json', compilerOptions: { stripInternal: true, noEmit: false } })],
  })
  const { output } = await bundle.generate({ format: 'es', chunkFileNames: '[name].d.ts' })
  for (const { fileName, code } of output) {
    writeFileSync(join('dist', fileName), code)
    writeFileSync(join('dist', fileName.replace(/ts$/, 'cts')), code.replace(/from '(\.\/[^']*)\.js'/g, "from '$1.cjs'"))
  }
}

const here = process.cwd()
const own = PACKAGES.map((name) => join(ROOT, name)).filter((folder) => folder === here.replace(/\/$/, ''))
for (const folder of own.length ? own : PACKAGES.map((name) => join(ROOT, name))) {
  if (existsSync(join(folder, 'src/index.ts'))) await buildPackage(folder)
}
