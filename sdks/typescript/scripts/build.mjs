/**
 * Builds dist/ of the packages in this folder, or of the one in the current folder: for each entry point an ES module, a
 * CommonJS module, and their types.
 */

import { build } from 'esbuild'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { rollup } from 'rollup'
import { dts } from 'rollup-plugin-dts'

import { folderOf, packages, ROOT, tsc } from './packages.mjs'
import { raw } from './raw.mjs'

const types = mkdtempSync(join(tmpdir(), 'noroshi-types-'))
try {
  execFileSync(process.execPath, [tsc, '-p', join(ROOT, 'tsconfig.build.json'), '--outDir', types], { stdio: 'inherit' })
  for (const name of packages) await buildPackage(name)
} finally {
  rmSync(types, { recursive: true })
}

async function buildPackage(name) {
  const folder = folderOf(name)
  const dist = join(folder, 'dist')
  rmSync(dist, { recursive: true, force: true })
  const { exports, peerDependencies = {} } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const entries = Object.keys(exports)
    .filter((entry) => entry !== './package.json')
    .map((entry) => (entry === '.' ? 'index' : entry.slice(2)))
  const external = Object.keys(peerDependencies).flatMap((peer) => [peer, `${peer}/*`])
  const entryPoints = entries.map((entry) => join(folder, `src/${entry}.ts`))
  const common = { absWorkingDir: folder, entryPoints, bundle: true, plugins: [raw], external, target: 'es2022', legalComments: 'none', logLevel: 'warning', outdir: dist }
  await build({ ...common, format: 'esm', splitting: entries.length > 1, chunkNames: '[name]' })
  await build({ ...common, format: 'cjs', outExtension: { '.js': '.cjs' } })
  const bundle = await rollup({
    input: Object.fromEntries(entries.map((entry) => [entry, join(types, name, `src/${entry}.d.ts`)])),
    external: [/^@noroshi\//, /^react/],
    plugins: [dts()],
  })
  const { output } = await bundle.generate({ format: 'es', chunkFileNames: ({ name }) => `${name.replace(/\.d$/, '')}.d.ts`, entryFileNames: '[name].d.ts' })
  for (const { fileName, code } of output) {
    writeFileSync(join(dist, fileName), code)
    writeFileSync(join(dist, fileName.replace(/ts$/, 'cts')), code.replace(/from '(\.\/[^']*)\.js'/g, "from '$1.cjs'"))
  }
}
