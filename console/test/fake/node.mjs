/** A real node with fakes of the push services (`noroshi dev-push`), on free ports, with a temporary data folder. */

import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const BIN = process.env.NOROSHI_BIN ?? fileURLToPath(new URL('../../../target/debug/noroshi', import.meta.url))
const KEY = 'console-test-key-with-all-scopes'
const DEADLINE_MS = 60_000

async function freePort() {
  const probe = createServer()
  await new Promise((resolve) => probe.listen(0, '127.0.0.1', resolve))
  const { port } = probe.address()
  await new Promise((resolve) => probe.close(resolve))
  return port
}

export async function until(what, holds) {
  const end = Date.now() + DEADLINE_MS
  for (;;) {
    const value = await holds()
    if (value) return value
    if (Date.now() > end) throw new Error(`never: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

function start(args, log, env = {}) {
  const out = openSync(log, 'a')
  return spawn(BIN, args, { stdio: ['ignore', out, out], env: { ...process.env, ...env } })
}

async function ended(child) {
  if (child.exitCode !== null || child.signalCode !== null) return
  const exit = new Promise((resolve) => child.once('exit', resolve))
  child.kill('SIGTERM')
  await exit
}

/** `{http, admin, operator, keys, push, stop}`; `push` has the credentials for the fakes. */
export async function startNode() {
  if (!existsSync(BIN)) throw new Error(`${BIN} is not there: cargo build -p noroshi, or set NOROSHI_BIN`)
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-console-'))
  const data = join(folder, 'data')
  const pushLog = join(folder, 'push.log')
  const names = ['apns', 'apns-sandbox', 'apns-channels', 'apns-sandbox-channels', 'fcm', 'oauth', 'webpush', 'webhook', 'hms', 'wns', 'wns-login', 'control']
  const ports = await Promise.all(names.map(freePort))
  const push = start(['dev-push', '--json', '--quiet', '--folder', join(folder, 'push'), ...names.flatMap((name, index) => [`--${name}`, String(ports[index])])], pushLog)
  const info = await until('the push services are ready', () => {
    const line = readFileSync(pushLog, 'utf8').split('\n')[0]
    try {
      return JSON.parse(line)
    } catch {
      return undefined
    }
  })
  const [http, admin] = [await freePort(), await freePort()]
  const child = start(['serve', '--dev', '--data', data, '--http', `127.0.0.1:${http}`, '--admin', `127.0.0.1:${admin}`, '--set', `egress.ca_file=${info.ca_file}`], join(folder, 'node.log'), { NOROSHI_DEV_KEY: KEY })
  const node = { http: `http://127.0.0.1:${http}`, admin: `http://127.0.0.1:${admin}` }
  await until('the node is ready', async () => {
    if (child.exitCode !== null) throw new Error(readFileSync(join(folder, 'node.log'), 'utf8'))
    return (await fetch(`${node.admin}/readyz`).catch(() => undefined))?.status === 200
  })
  return {
    ...node,
    operator: readFileSync(join(data, 'operator.token'), 'utf8').trim(),
    keys: { dev: KEY },
    push: info,
    async stop() {
      await ended(child)
      await ended(push)
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
