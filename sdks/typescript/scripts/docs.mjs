/** Generates the API references with TypeDoc. `--check`: compares them with those in the repository instead. */

import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Application } from 'typedoc'

const root = fileURLToPath(new URL('..', import.meta.url))
// `tsc` checks the types.
const isCheck = process.argv.includes('--check')
const folder = mkdtempSync(join(tmpdir(), 'noroshi-docs-'))
let failed = false
for (const name of ['client', 'inbox', 'react', 'web-push']) {
  process.chdir(join(root, name))
  const app = await Application.bootstrapWithPlugins({ options: 'typedoc.json', logLevel: 'Warn', skipErrorChecking: true })
  const project = await app.convert()
  if (project) app.validate(project)
  if (!project || app.logger.hasErrors() || app.logger.hasWarnings()) {
    failed = true
    continue
  }
  const out = isCheck ? join(folder, name) : 'docs'
  app.options.setValue('out', out)
  await app.generateOutputs(project)
  if (!isCheck) continue
  try {
    execFileSync('diff', ['-r', 'docs', out], { stdio: 'inherit' })
  } catch {
    console.error(`${name}/docs is not current: npm run docs`)
    failed = true
  }
}
if (existsSync(folder)) rmSync(folder, { recursive: true })
process.exit(failed ? 1 : 0)
