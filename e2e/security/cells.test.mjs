/** Two tenants of a front over cells with the same device ids. */

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { api } from '../lib/api.mjs'
import { Device } from '../lib/device.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const SECRET = 'a-secret-that-both-tenants-sign-with'
let cell, front, victim, attacker

const operatorOf = (node) => {
  const token = readFileSync(join(node.data, 'operator.token'), 'utf8').trim()
  return api(`http://127.0.0.1:${node.adminPort}`, token)
}

/** An app of the front with a key of all scopes, as an API client. */
async function tenant(name) {
  const operator = operatorOf(front)
  await operator.call('POST', '/v1/apps', { body: { name, jwt_secret: SECRET }, status: 201 })
  const scopes = ['publish', 'devices', 'read']
  const { key } = await operator.call('POST', `/v1/apps/${name}/keys`, { body: { name: 'all', scopes }, status: 201 })
  await until(`the cell to know ${name}`, async () => {
    const answer = await operatorOf(cell).raw('GET', `/v1/apps/${name}/keys`)
    return answer.status === 200 && answer.body.keys.some((one) => one.name === 'all')
  })
  return api(front.http, key)
}

before(async () => {
  cell = await Node.start()
  const path = join(cell.data, 'cells.toml')
  const token = readFileSync(join(cell.data, 'operator.token'), 'utf8').trim()
  const text = `[[cell]]\nname = "a"\nurls = ["${cell.http}"]\n` +
    `admin_url = "http://127.0.0.1:${cell.adminPort}"\noperator_token = "${token}"\n`
  writeFileSync(path, text, { mode: 0o600 })
  front = await Node.start({ args: ['--role', 'front'], env: { NOROSHI__FRONT__CELLS_FILE: path } })
  victim = await tenant('a-victim')
  attacker = await tenant('b-attacker')
})
after(async () => {
  await front?.stop()
  await cell?.stop()
})

test('a tenant that deletes its device does not delete another tenant\'s device of the same id', async () => {
  const { token } = await victim.register({ device: 'phone', user: 'u1' })
  const own = await attacker.register({ device: 'phone', user: 'u1' })
  await until('the front to know the owners of the tokens', async () => {
    const answers = [token, own.token].map((token) => front.api.raw('GET', '/v1/me', { token }))
    return (await Promise.all(answers)).every(({ status }) => status === 200)
  })
  await attacker.me(own.token).remove()
  const device = await Device.connect(cell.ws, token)
  const { id } = await victim.publish({ to: { devices: ['phone'] }, data: 'kept' })
  assert.equal((await victim.notification(id)).unknown ?? 0, 0, 'the device still has its place')
  assert.equal((await device.msg()).data, 'kept')
  assert.equal((await front.api.raw('GET', '/v1/me', { token: own.token })).status, 401)
  await device.leave()
})

test('an app JWT registers its device in the app for which the front verified it', async () => {
  const jwt = hs256(SECRET, { sub: 'u2', device: 'tablet', exp: now() + 600, iat: now() })
  const answer = await front.api.raw('POST', '/v1/devices?app=b-attacker', { token: jwt, body: {} })
  assert.equal(answer.status, 201, answer.text)
  assert.equal((await attacker.raw('GET', '/v1/devices/tablet')).status, 200)
  assert.equal((await victim.raw('GET', '/v1/devices/tablet')).status, 404)
  const me = await front.api.raw('GET', '/v1/me?app=b-attacker', { token: jwt })
  assert.deepEqual([me.status, me.body.user], [200, 'u2'])
})
