/** Programs of ../java, which need Java 17 and, the first time, mvn. */

import { execFileSync, spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const RUN = fileURLToPath(new URL('../java/run', import.meta.url))

/** The reason if they cannot run here; fetches and compiles them the first time. */
export function unavailable() {
  try {
    execFileSync(RUN, ['prepare'], { stdio: ['ignore', 'ignore', 'pipe'] })
    return false
  } catch (error) {
    if (error.status === 77) return 'Java 17 and mvn are missing'
    throw error
  }
}

/** A running program: its output is in `stdout` and `stderr`; `exited` resolves when it ends. */
export function start(name, ...args) {
  const child = spawn(RUN, [name, ...args.map(String)])
  const program = { child, stdout: '', stderr: '' }
  child.stdout.on('data', (chunk) => (program.stdout += chunk))
  child.stderr.on('data', (chunk) => (program.stderr += chunk))
  program.exited = new Promise((resolve) => child.once('close', resolve))
  return program
}
