/** Checks each package as npm would publish it: its files, publint, and attw ("are the types wrong"). */

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core'
import { problemKindInfo } from '@arethetypeswrong/core/problems'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'

import { pack } from './pack.mjs'
import { folderOf, packages } from './packages.mjs'

const folder = mkdtempSync(join(tmpdir(), 'noroshi-pack-'))
const problems = []
try {
  const packed = pack(packages, folder)
  for (const name of packages) {
    const at = folderOf(name)
    const manifest = JSON.parse(readFileSync(join(at, 'package.json'), 'utf8'))
    const { path, files } = packed[name]
    const wanted = ['CHANGELOG.md', 'LICENSE', 'README.md', 'package.json']
    for (const entry of Object.keys(manifest.exports)) {
      const base = `dist/${entry === '.' ? 'index' : entry.slice(2)}`
      if (entry !== './package.json') wanted.push(...['.js', '.cjs', '.d.ts', '.d.cts'].map((kind) => base + kind))
    }
    // Entry points of a package may share chunks.
    const isChunk = (file) => wanted.length > 8 && /^dist\/\w+\.(js|d\.ts|d\.cts)$/.test(file)
    assert.deepEqual(files.filter((file) => wanted.includes(file) || !isChunk(file)).sort(), wanted.sort(), name)
    const { messages } = await publint({ pkgDir: at, level: 'suggestion', strict: true })
    for (const message of messages) problems.push(`${name}: ${formatMessage(message, manifest)}`)
    const analysis = await checkPackage(createPackageFromTarballData(readFileSync(path)))
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
