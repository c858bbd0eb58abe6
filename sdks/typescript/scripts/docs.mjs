/** Generates the API references of all packages with TypeDoc. `--check`: compares them with those in the repository instead. */

import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { Application } from 'typedoc'
import ts from 'typescript'

import { folderOf, PACKAGES, ROOT } from './packages.mjs'

const isCheck = process.argv.includes('--check')
const folder = mkdtempSync(join(tmpdir(), 'noroshi-docs-'))
let failed = false

const config = ts.readConfigFile(join(ROOT, 'tsconfig.json'), ts.sys.readFile).config
const { options } = ts.parseJsonConfigFileContent({ ...config, include: [], files: ['inbox/src/raw.d.ts'] }, ts.sys, ROOT)
/** Parses each file once: most of them are the types of Node.js and browsers. */
const host = ts.createCompilerHost(options)
const parse = host.getSourceFile
const parsed = new Map()
host.getSourceFile = (path, ...more) => parsed.get(path) ?? parsed.set(path, parse(path, ...more)).get(path)

try {
  for (const name of PACKAGES) {
    process.chdir(folderOf(name))
    const app = await Application.bootstrapWithPlugins({ options: 'typedoc.json', logLevel: 'Warn' })
    const paths = app.options.getValue('entryPoints').map((path) => resolve(path))
    const program = ts.createProgram([...paths, join(ROOT, 'inbox/src/raw.d.ts')], options, host)
    const project = app.converter.convert(
      paths.map((path) => ({ displayName: basename(path, '.ts'), program, sourceFile: program.getSourceFile(path) })),
    )
    app.validate(project)
    const out = isCheck ? join(folder, name) : 'docs'
    app.options.setValue('out', out)
    await app.generateOutputs(project)
    failed ||= app.logger.hasErrors() || app.logger.hasWarnings()
    if (!isCheck) continue
    try {
      execFileSync('diff', ['-r', 'docs', out], { stdio: 'inherit' })
    } catch {
      console.error(`${name}/docs is not current: npm run docs`)
      failed = true
    }
  }
} finally {
  rmSync(folder, { recursive: true })
}
process.exit(failed ? 1 : 0)
