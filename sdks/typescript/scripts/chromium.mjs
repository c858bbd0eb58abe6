/**
 * Runs a command whose tests share one Chromium.
 *
 *   node scripts/chromium.mjs COMMAND ARGUMENT…
 */

import { spawn } from 'node:child_process'
import { chromium } from 'playwright-core'

import { options, skip } from '../test/chromium.mjs'

const server = skip ? undefined : await chromium.launchServer(options)
const [command, ...args] = process.argv.slice(2)
const env = server ? { ...process.env, NOROSHI_CHROMIUM: server.wsEndpoint() } : process.env
const child = spawn(command, args, { env, stdio: 'inherit' })
child.on('exit', async (code) => {
  await server?.close()
  process.exit(code ?? 1)
})
