/** Fails if the first view needs more than 120 KB: `index.html`, what it loads, and the page that it shows. */

import { readFile, rm } from 'node:fs/promises'
import { gzipSync } from 'node:zlib'

const LIMIT_KB = 120
const dist = new URL('../dist/', import.meta.url)
const manifest = JSON.parse(await readFile(new URL('.vite/manifest.json', dist), 'utf8'))
// The manifest is for this script only; the binary embeds everything that stays in dist.
await rm(new URL('.vite', dist), { recursive: true })

/** Files of a chunk and of everything that it imports at once. */
function filesOf(name, found = new Set()) {
  const chunk = manifest[name]
  if (!chunk || found.has(chunk.file)) return found
  found.add(chunk.file)
  for (const style of chunk.css ?? []) found.add(style)
  for (const other of chunk.imports ?? []) filesOf(other, found)
  return found
}

/** The overview is the first view after a log-in; Japanese is the larger language. */
const FIRST = ['index.html', 'src/pages/overview.tsx', 'src/i18n/ja.ts']
const files = new Set(['index.html', ...FIRST.flatMap((name) => [...filesOf(name)])])
let sum = 0
for (const file of files) {
  const bytes = gzipSync(await readFile(new URL(file, dist)), { level: 9 }).length
  sum += bytes
  console.log(`${String((bytes / 1000).toFixed(1)).padStart(7)} KB  ${file}`)
}
console.log(`${(sum / 1000).toFixed(1).padStart(7)} KB  first view, limit ${LIMIT_KB} KB`)
if (sum > LIMIT_KB * 1000) process.exit(1)
