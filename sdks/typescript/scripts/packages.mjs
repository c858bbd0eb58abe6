/** The packages of this folder, in the order of their dependencies. */

import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = dirname(dirname(fileURLToPath(import.meta.url)))

export const PACKAGES = ['client', 'inbox', 'react', 'web-push', 'server']

/** The one in whose folder npm runs a script, or all of them. */
export const packages = PACKAGES.includes(process.cwd().slice(ROOT.length + 1)) ? [process.cwd().slice(ROOT.length + 1)] : PACKAGES

export const folderOf = (name) => join(ROOT, name)

/** The compiler. TypeDoc, Rollup's plugin and openapi-typescript use `typescript`, which still has an interface for programs. */
export const tsc = join(ROOT, 'node_modules/typescript-7/bin/tsc')
