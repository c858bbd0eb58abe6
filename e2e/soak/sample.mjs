/** Memory, descriptors and threads of a process from /proc, and the size of a folder. */

import { readFileSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'

const MIB = 1 << 20

const kib = (text, name) => {
  const found = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text)
  return found ? (Number(found[1]) * 1024) / MIB : undefined
}

/** `undefined` if it has ended. */
export function processFigures(pid) {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    return {
      resident: kib(status, 'VmRSS'),
      // Without files that it maps, such as the executable and SQLite's shared memory.
      heap: kib(status, 'RssAnon'),
      proportional: kib(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'), 'Pss'),
      descriptors: readdirSync(`/proc/${pid}/fd`).length,
      threads: Number(/^Threads:\s+(\d+)/m.exec(status)[1]),
    }
  } catch {
    return undefined
  }
}

/** In MiB. Files may disappear meanwhile. */
export function folderMib(folder) {
  let bytes = 0
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    try {
      if (entry.isFile()) bytes += statSync(join(entry.parentPath ?? entry.path, entry.name)).size
    } catch {
      // It is gone.
    }
  }
  return bytes / MIB
}
