/**
 * Private push services: `noroshi dev-push`, the strict fakes, on free ports with keys in a temporary
 * folder, controlled and queried over their control port.
 *
 * The fakes outlive a killed node, so that a test can count over restarts.
 */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'

import { BIN, Node, freePort } from './node.mjs'
import { until, within } from './until.mjs'

const running = new Set()
process.on('exit', () => {
  for (const push of running) push.child?.kill('SIGKILL')
})

export class DevPush {
  static async start({ args = [] } = {}) {
    const push = new DevPush()
    push.folder = mkdtempSync(join(tmpdir(), 'noroshi-push-'))
    push.port = await freePort()
    const flags = ['dev-push', '--folder', push.folder, '--control', String(push.port), '--quiet', '--known-tokens-only']
    const names = ['apns', 'apns-sandbox', 'apns-channels', 'apns-sandbox-channels', 'fcm', 'oauth', 'webpush', 'webhook', 'hms', 'wns', 'wns-login']
    for (const name of names) flags.push(`--${name}`, '0')
    push.child = spawn(BIN, [...flags, ...args], { stdio: ['ignore', 'ignore', 'pipe'] })
    running.add(push)
    push.stderr = ''
    push.child.stderr.on('data', (chunk) => (push.stderr += chunk))
    push.exited = new Promise((resolve) => push.child.once('exit', (code, signal) => resolve({ code, signal })))
    push.info = await until('the fakes to answer', async () => {
      assert.equal(push.child.exitCode, null, `dev-push ended at once: ${push.stderr}`)
      return push.get('/info').catch(() => undefined)
    })
    return push
  }

  async call(method, path, body) {
    const response = await fetch(`http://127.0.0.1:${this.port}${path}`, {
      method,
      body: body === undefined ? undefined : JSON.stringify(body),
    })
    const text = await response.text()
    assert.ok(response.ok, `${method} ${path} -> ${response.status} ${text}`)
    return text === '' ? undefined : JSON.parse(text)
  }

  get(path) {
    return this.call('GET', path)
  }

  /** The pushes that a service received, oldest first. */
  async received(service, token) {
    const query = `service=${service}` + (token === undefined ? '' : `&token=${encodeURIComponent(token)}`)
    return (await this.get(`/received?${query}`)).received
  }

  async accepted(service, token) {
    return (await this.received(service, token)).filter((one) => one.status >= 200 && one.status < 300)
  }

  counts() {
    return this.get('/counts')
  }

  behave(change) {
    return this.call('POST', '/behave', change)
  }

  /** Push tokens in the format of the API. */
  async tokens(service, count = 1, options = {}) {
    return (await this.call('POST', '/tokens', { service, count, ...options })).push_tokens
  }

  /** A development node that trusts the fakes and has their credentials. */
  async node({ services = ['apns', 'fcm', 'webpush'], args = [], ...options } = {}) {
    const node = await Node.start({ ...options, args: ['--set', `egress.ca_file=${this.info.ca_file}`, ...args] })
    for (const service of services) await addCredential(node, this.info.credentials[service])
    return node
  }

  async stop() {
    running.delete(this)
    this.child.kill('SIGTERM')
    const exit = await within('dev-push to end', this.exited)
    rmSync(this.folder, { recursive: true, force: true })
    assert.equal(exit.code, 0, this.stderr)
  }
}

/** The admin API, with the operator's token from the data folder. */
export async function addCredential(node, credential, status = 201) {
  const response = await fetch(`http://127.0.0.1:${node.adminPort}/v1/apps/dev/push`, {
    method: 'POST',
    headers: { authorization: `Bearer ${operatorToken(node)}`, 'content-type': 'application/json' },
    body: JSON.stringify(credential),
  })
  const text = await response.text()
  assert.equal(response.status, status, text)
  return JSON.parse(text)
}

export function operatorToken(node) {
  return readFileSync(join(node.data, 'operator.token'), 'utf8').trim()
}

/** A unique name. */
export const unique = (prefix) => `${prefix}-${randomBytes(6).toString('hex')}`
