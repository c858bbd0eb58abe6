/**
 * A private Noroshi node: the built binary on free ports with its data in a temporary folder.
 *
 * Every test file starts one and stops it with SIGTERM; a node that does not exit with code 0
 * fails the file. Nothing of it survives the test process.
 */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { fileURLToPath } from 'node:url'

import { api } from './api.mjs'
import { until, within } from './until.mjs'

const HERE = fileURLToPath(new URL('.', import.meta.url))
export const CACHE = join(HERE, '..', '.cache')
export const BIN = process.env.NOROSHI_BIN ?? join(HERE, '..', '..', 'target', 'debug', 'noroshi')
export const KEY = 'e2e-key-with-all-scopes'
export const JWT_SECRET = 'e2e-secret-of-at-least-thirty-two-bytes'

const running = new Set()
if (process.env.NODE_TEST_CONTEXT) {
  // Open handles of a failed test (streams that reconnect) must not keep the file from ending.
  after(() => setTimeout(() => process.exit(), 60_000).unref())
}
/** Files that reserve ports for this process. */
const claims = new Set()
process.on('exit', () => {
  for (const node of running) node.child?.kill('SIGKILL')
  for (const path of claims) rmSync(path, { force: true })
})

const isAlive = (pid) => {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

/** False if another test process has reserved it: seconds pass until a server listens. */
function claim(port) {
  const path = join(tmpdir(), `noroshi-e2e-port-${port}`)
  try {
    const owner = existsSync(path) ? Number(readFileSync(path, 'utf8')) : undefined
    if (owner && !isAlive(owner)) rmSync(path, { force: true })
    writeFileSync(path, String(process.pid), { flag: 'wx' })
  } catch {
    return false
  }
  claims.add(path)
  return true
}

/** A free, reserved port: below 32768, where the ephemeral range starts, and above 10080, which `fetch` refuses. */
export async function freePort() {
  for (;;) {
    const port = randomInt(11_000, 32_000)
    if (!claim(port)) continue
    const free = await new Promise((resolve) => {
      const probe = createServer()
      probe.once('error', () => resolve(false))
      probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)))
    })
    if (free) return port
  }
}

export class Node {
  /**
   * `args` are additional flags of `serve`, `env` additional variables; `data` an existing data folder (kept at
   * the end), otherwise a temporary one (removed); `descriptors` the limit of open files.
   */
  static async start({ args = [], env = {}, data, dev = true, descriptors } = {}) {
    assert.ok(existsSync(BIN), `${BIN} is not there: cargo build -p noroshi, or set NOROSHI_BIN`)
    const node = new this()
    node.args = args
    node.env = env
    node.dev = dev
    node.descriptors = descriptors
    node.ownsData = data === undefined
    node.data = data ?? mkdtempSync(join(tmpdir(), 'noroshi-e2e-'))
    mkdirSync(join(CACHE, 'logs'), { recursive: true })
    node.logPath = join(CACHE, 'logs', `node-${process.pid}-${randomInt(1e6)}.log`)
    node.httpPort = await freePort()
    node.adminPort = await freePort()
    await node.spawn()
    return node
  }

  /** Starts the process on the same ports and data folder; used again after a kill. */
  async spawn() {
    const log = openSync(this.logPath, 'a')
    const args = ['serve', ...(this.dev ? ['--dev'] : [])]
    args.push('--data', this.data, '--http', `127.0.0.1:${this.httpPort}`, '--admin', `127.0.0.1:${this.adminPort}`)
    const command = [BIN, ...args, ...this.args]
    // prlimit executes the node in the same process.
    if (this.descriptors) command.unshift('prlimit', `--nofile=${this.descriptors}:${this.descriptors}`)
    this.child = spawn(command[0], command.slice(1), {
      stdio: ['ignore', log, log],
      env: { ...process.env, NOROSHI_DEV_KEY: KEY, NOROSHI_DEV_JWT_SECRET: JWT_SECRET, ...this.env },
    })
    closeSync(log)
    // A failed test must not wait for its node.
    this.child.unref()
    running.add(this)
    this.exit = undefined
    this.terminated = false
    this.exited = new Promise((resolve) => {
      const ended = (exit) => {
        running.delete(this)
        this.exit = exit
        resolve(exit)
      }
      this.child.once('exit', (code, signal) => ended({ code, signal }))
      this.child.once('error', (error) => ended({ error: error.message }))
    })
    await until('the node to be ready', async () => {
      assert.equal(this.exit, undefined, `the node ended at once: ${JSON.stringify(this.exit)}\n${this.log()}`)
      return (await this.admin('/readyz').catch(() => undefined))?.status === 200
    })
  }

  get http() {
    return `http://127.0.0.1:${this.httpPort}`
  }

  get ws() {
    return `ws://127.0.0.1:${this.httpPort}`
  }

  admin(path) {
    return fetch(`http://127.0.0.1:${this.adminPort}${path}`)
  }

  /** The provider and consumer API of this node, with the development key. */
  get api() {
    return api(this.http, KEY)
  }

  /** The last lines of its log that match. */
  log(count = 40, pattern = /./) {
    const lines = readFileSync(this.logPath, 'utf8').split('\n').filter((line) => pattern.test(line))
    return lines.slice(-count).join('\n')
  }

  /** Sends SIGTERM once: a second one would stop without draining. */
  terminate() {
    if (!this.exit && !this.terminated) this.child.kill('SIGTERM')
    this.terminated = true
  }

  /** SIGTERM, and checks the exit code; the data stays. */
  async drain() {
    this.terminate()
    const exit = await within('the node to drain after SIGTERM', this.exited, 60_000)
    assert.deepEqual(exit, { code: 0, signal: null }, this.log())
  }

  /** Drains at the end of a test, and removes the data if it belongs to the test. */
  async stop() {
    try {
      await this.drain()
    } finally {
      this.removeData()
    }
  }

  /** SIGKILL: nothing more is written. */
  async kill() {
    this.child.kill('SIGKILL')
    await within('the killed node to be gone', this.exited)
  }

  removeData() {
    if (this.ownsData) rmSync(this.data, { recursive: true, force: true })
  }

  /** Runs the command line tool against this node, found by its data folder; `{code, stdout, stderr}`. */
  cli(...args) {
    return cli(args, { NOROSHI_DATA: this.data, NOROSHI_KEY: KEY })
  }
}

export function cli(args, env = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(BIN, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } })
    let [stdout, stderr] = ['', '']
    child.stdout.on('data', (chunk) => (stdout += chunk))
    child.stderr.on('data', (chunk) => (stderr += chunk))
    child.once('error', reject)
    child.once('close', (code) => resolve({ code, stdout, stderr }))
  })
}
