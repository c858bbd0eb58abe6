/** Builds dist/: one ES module, one CommonJS module, and their types. */

import { build } from 'esbuild'
import { copyFileSync, rmSync, writeFileSync } from 'node:fs'
import { rollup } from 'rollup'
import { dts } from 'rollup-plugin-dts'

process.chdir(new URL('..', import.meta.url).pathname)
rmSync('dist', { recursive: true, force: true })
const common = { entryPoints: ['src/index.ts'], bundle: true, target: 'es2022', legalComments: 'none', logLevel: 'warning' }
await build({ ...common, format: 'esm', outfile: 'dist/index.js' })
await build({ ...common, format: 'cjs', outfile: 'dist/index.cjs' })

const bundle = await rollup({
  input: 'src/index.ts',
  plugins: [dts({ tsconfig: 'tsconfig.json', compilerOptions: { stripInternal: true, noEmit: false } })],
})
const { output } = await bundle.generate({ format: 'es' })
writeFileSync('dist/index.d.ts', output[0].code)
copyFileSync('dist/index.d.ts', 'dist/index.d.cts')
