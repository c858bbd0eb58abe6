/**
 * The packages as npm would publish them, for tests and checks.
 *
 *   node scripts/pack.mjs FOLDER      packs all of them; with this folder in NOROSHI_PACKED, `pack` uses them
 */

import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

import { packages, ROOT } from './packages.mjs'

/** Packs into the folder, unless that was done; returns the path and the files of each package by its name. */
export function pack(names, folder) {
  const packed = process.env.NOROSHI_PACKED
  if (packed) return JSON.parse(readFileSync(join(packed, 'packed.json'), 'utf8'))
  const workspaces = names.flatMap((name) => ['--workspace', name])
  const output = execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder, ...workspaces], { cwd: ROOT, encoding: 'utf8' })
  const all = JSON.parse(output).map(({ name, filename, files }) => [name.split('/').at(-1), { path: join(folder, filename), files: files.map(({ path }) => path) }])
  return Object.fromEntries(all)
}

/** Installs packages into `node_modules` of the folder. */
export function install(names, folder) {
  const packed = pack(names, folder)
  for (const name of names) {
    const installed = join(folder, 'node_modules', '@noroshi', name)
    mkdirSync(installed, { recursive: true })
    execFileSync('tar', ['-xzf', packed[name].path, '-C', installed, '--strip-components=1'])
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = resolve(process.argv[2])
  writeFileSync(join(folder, 'packed.json'), JSON.stringify(pack(packages, folder)))
}
