/** The operator's interface: health, metrics, configuration errors, apps and tenants. */

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { api } from '../lib/api.mjs'
import { Device } from '../lib/device.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { JWT_SECRET, KEY, Node, cli } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

const metrics = async () => (await node.admin('/metrics')).text()

test('/healthz and /readyz answer 200', async () => {
  assert.equal((await node.admin('/healthz')).status, 200)
  assert.equal((await node.admin('/readyz')).status, 200)
})

test('/metrics counts events in the Prometheus text format', async () => {
  const { token } = await node.api.register({ user: 'metered' })
  const device = await Device.connect(node.ws, token)
  const { id } = await node.api.publish({ to: { users: ['metered'] }, data: 1 })
  device.ack((await device.msg()).id)
  assert.ok(id)
  const text = await until('the acknowledgement to be counted', async () => {
    const text = await metrics()
    return /^noroshi_\w*outcomes\w*\{outcome="acked"\} 1$/m.test(text) && text
  })
  assert.match(text, /^noroshi_\w*accepted\w*\{[^}]*target="users"[^}]*\} 1$/m)
  assert.match(text, /^noroshi_\w*acked_seconds_count(\{[^}]*\})? 1$/m)
  assert.match(text, /^noroshi_\w*connections\w*(\{[^}]*\})? 1$/m)
  await device.leave()
})

test('promtool finds nothing wrong with /metrics', async (t) => {
  if (spawnSync('promtool', ['--version']).error) return t.skip('no promtool (Debian package prometheus)')
  const checked = spawnSync('promtool', ['check', 'metrics'], { input: await metrics(), encoding: 'utf8' })
  assert.equal(checked.status, 0, checked.stdout + checked.stderr)
})

test('/metrics and the admin API are not on the public address', async () => {
  assert.equal((await fetch(`${node.http}/metrics`)).status, 404)
})

test('the API page and the OpenAPI document load nothing from outside', async () => {
  const page = await fetch(`${node.http}/docs`)
  assert.equal(page.status, 200)
  const html = await page.text()
  assert.doesNotMatch(html, /(src|href)=["']https?:\/\/(?!127\.0\.0\.1)[^"']+\.(js|css)/)
  const document = await (await fetch(`${node.http}/openapi.json`)).json()
  assert.match(document.openapi, /^3\./)
  for (const path of ['/v1/notifications', '/v1/devices', '/v1/me', '/v1/presence', '/v1/me/inbox']) {
    assert.ok(path in document.paths, path)
  }
})

test('a wrong configuration lists all problems and exits 64 before anything is opened', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-config-'))
  const file = join(folder, 'noroshi.toml')
  writeFileSync(file, '[gateway]\nping_interval = "soon"\nfames_per_second = 3\n[limits]\nbody = "1 parsec"\n')
  const data = join(folder, 'data')
  const { code, stdout, stderr } = await cli(['serve', '--config', file, '--data', data])
  rmSync(folder, { recursive: true })
  assert.equal(code, 64, stderr)
  for (const key of ['ping_interval', 'fames_per_second', 'body']) assert.match(stdout + stderr, new RegExp(key))
  assert.equal(existsSync(data), false, 'nothing was created')
})

test('wrong flags exit with 2 or 64', async () => {
  const { code } = await cli(['serve', '--no-such-flag'])
  assert.ok([2, 64].includes(code), String(code))
})

test('a port in use and a locked data folder are reported in one clear line', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-second-'))
  const port = await cli(['serve', '--dev', '--data', folder, '--http', `127.0.0.1:${node.httpPort}`, '--admin', '127.0.0.1:0'])
  assert.notEqual(port.code, 0)
  assert.match(port.stderr, new RegExp(String(node.httpPort)))
  const locked = await cli(['serve', '--dev', '--data', node.data, '--http', '127.0.0.1:0', '--admin', '127.0.0.1:0'])
  assert.notEqual(locked.code, 0)
  assert.ok(locked.stderr.includes(node.data), locked.stderr)
  assert.doesNotMatch(port.stderr + locked.stderr, /panicked/)
  rmSync(folder, { recursive: true })
})

test('only the owner can read the development key in the data folder', async () => {
  const own = await Node.start({ env: { NOROSHI_DEV_KEY: undefined, NOROSHI_DEV_JWT_SECRET: undefined } })
  const listed = execFileSync('find', [own.data, '-type', 'f', '-perm', '/077'], { encoding: 'utf8' })
  assert.equal(listed, '', 'files readable by other users')
  const key = readFileSync(join(own.data, 'dev.key'), 'utf8').trim()
  assert.equal((await api(own.http, key).publish({ to: { users: ['u'] }, data: 1 })).targets, 1)
  await own.stop()
})

test('tenants cannot see each other', async () => {
  const secret = join(node.data, 'other-secret')
  writeFileSync(secret, 'the secret of the other app, 32 bytes', { mode: 0o600 })
  const made = await node.cli('apps', 'create', 'other', '--jwt-secret-file', secret, '--json')
  assert.equal(made.code, 0, made.stdout + made.stderr)
  const created = await node.cli('keys', 'create', 'backend', '--app', 'other', '--json')
  assert.equal(created.code, 0, created.stdout + created.stderr)
  const { key } = JSON.parse(created.stdout)
  const other = api(node.http, key)

  const mine = await node.api.register({ device: 'same-id', user: 'same', topics: ['same'] })
  const theirs = await other.register({ device: 'same-id', user: 'same', topics: ['same'] })
  const my = await Device.connect(node.ws, mine.token)
  const their = await Device.connect(node.ws, theirs.token)

  const sent = await other.publish({ to: { users: ['same'] }, data: 'for the other' })
  await other.publish({ to: { topic: 'same' }, data: 'other topic', retain: true })
  await other.publish({ to: { everyone: true }, data: 'other everyone' })
  await node.api.publish({ to: { devices: ['same-id'] }, when: 'connected', data: 'mine' })
  assert.equal((await my.msg()).data, 'mine')
  assert.deepEqual((await their.msgs(3)).map((msg) => msg.data), ['for the other', 'other topic', 'other everyone'])

  await my.leave()
  assert.equal((await node.api.presence('same')).same.presence, 'offline')
  assert.equal((await other.presence('same')).same.presence, 'active')
  for (const [method, path] of [
    ['GET', `/v1/notifications/${sent.id}`],
    ['GET', `/v1/notifications/${sent.id}/devices/same-id`],
    ['DELETE', `/v1/notifications/${sent.id}`],
    ['GET', '/v1/topics/same/retained'],
  ]) {
    assert.equal((await node.api.raw(method, path)).status, 404, `${method} ${path}`)
  }
  const foreign = hs256(JWT_SECRET, { sub: 'same', device: 'same-id', aud: 'other', exp: now() + 60 })
  assert.equal((await node.api.raw('GET', '/v1/me', { token: foreign })).status, 401, "one app's secret opens no other app")
  await their.leave()
})

test('a key is limited to its scopes', async () => {
  const created = await node.cli('keys', 'create', 'dashboard', '--scopes', 'read', '--json')
  assert.equal(created.code, 0, created.stdout + created.stderr)
  const { key } = JSON.parse(created.stdout)
  const reader = api(node.http, key)
  assert.equal((await reader.raw('POST', '/v1/presence', { body: { users: ['u'] } })).status, 200)
  for (const [method, path, body] of [
    ['POST', '/v1/notifications', { to: { users: ['u'] }, data: 1 }],
    ['POST', '/v1/devices', {}],
  ]) {
    const answer = await reader.raw(method, path, { body })
    assert.equal(answer.status, 403, `${method} ${path} ${answer.text}`)
    assert.equal(answer.type, 'application/problem+json')
  }
})

test('a revoked key and a revoked device lose access at once', async () => {
  const created = await node.cli('keys', 'create', 'short-lived', '--json')
  const { id, key } = JSON.parse(created.stdout)
  const backend = api(node.http, key)
  const { device: name, token } = await backend.register({ user: 'revoked' })
  const device = await Device.connect(node.ws, token)
  assert.equal((await node.cli('keys', 'revoke', String(id))).code, 0)
  assert.equal((await backend.raw('POST', '/v1/presence', { body: { users: ['u'] } })).status, 401)
  assert.equal((await node.cli('devices', 'revoke', name)).code, 0)
  assert.equal((await device.ended()).reason, 'revoked')
  assert.equal((await node.api.raw('GET', '/v1/me', { token })).status, 401)
})

test('secrets are not in the log', async () => {
  const { token } = await node.api.register({ user: 'secretive' })
  const device = await Device.connect(node.ws, token, { via: 'query' })
  await device.leave()
  const log = readFileSync(node.logPath, 'utf8')
  for (const secret of [token, KEY, JWT_SECRET]) assert.ok(!log.includes(secret), 'a secret in the log')
})
