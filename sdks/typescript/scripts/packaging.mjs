/** Checks each package as npm would publish it: its files, publint, and attw ("are the types wrong"). */

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core'
import { problemKindInfo } from '@arethetypeswrong/core/problems'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'

const root = fileURLToPath(new URL('..', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'noroshi-pack-'))
const problems = []
try {
  for (const name of ['client', 'inbox', 'react', 'web-push']) {
    const at = join(root, name)
    const manifest = JSON.parse(readFileSync(join(at, 'package.json'), 'utf8'))
    const [{ filename, files }] = JSON.parse(execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder], { cwd: at, encoding: 'utf8' }))
    const paths = files.map(({ path }) => path)
    const wanted = ['CHANGELOG.md', 'LICENSE', 'README.md', 'package.json']
    assert.deepEqual(paths.filter((path) => !path.startsWith('dist/')).sort(), wanted, name)
    const { messages } = await publint({ pkgDir: at, level: 'suggestion', strict: true })
    for (const message of messages) problems.push(`${name}: ${formatMessage(message, manifest)}`)
    const analysis = await checkPackage(createPackageFromTarballData(readFileSync(join(folder, filename))))
    for (const problem of analysis.problems ?? [{ kind: 'no types' }]) {
      // The resolution of Node.js 10 knows no `exports`: TypeScript's `moduleResolution: node10`.
      if (problem.resolutionKind === 'node10' && problem.entrypoint !== '.') continue
      problems.push(`${name}: ${problemKindInfo[problem.kind]?.title ?? problem.kind} ${JSON.stringify(problem)}`)
    }
  }
} finally {
  rmSync(folder, { recursive: true })
}
for (const problem of problems) console.error(problem)
process.exit(problems.length ? 1 : 0)
