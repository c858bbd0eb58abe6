/**
 * A revoked app JWT grants no access over any protocol: neither after the device was deleted, nor after its or
 * its user's tokens were revoked. A newer one does.
 */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { JWT_SECRET, Node, freePort } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'
import { ALL, devices, letIn } from '../lib/log-ins.mjs'

let node
before(async () => {
  const ports = { mqtt: await freePort(), xmpp: await freePort() }
  node = Object.assign(
    await Node.start({ args: ['--mqtt', `127.0.0.1:${ports.mqtt}`, '--xmpp', `127.0.0.1:${ports.xmpp}`] }),
    { ports },
  )
})
after(() => node?.stop())

const user = (device) => `user-of-${device}`
/** Issued some seconds ago. */
const issued = (secondsAgo, sub) => (device) =>
  hs256(JWT_SECRET, { sub: sub ?? user(device), device, iat: now() - secondsAgo, exp: now() + 600 })
const timeless = (device) => hs256(JWT_SECRET, { sub: user(device), device, exp: now() + 600 })
/** `iat` counts seconds: waits for the next one. */
const nextSecond = () => {
  const second = now()
  return until('the next second', () => now() > second)
}

for (const [what, revoke] of Object.entries({
  'DELETE /v1/me': (device) => node.api.call('DELETE', '/v1/me', { token: issued(5)(device), status: 204 }),
  'DELETE /v1/devices/{device}': (device) => node.api.call('DELETE', `/v1/devices/${device}`, { status: 204 }),
  'POST /v1/devices/{device}/revoke': (device) => node.api.call('POST', `/v1/devices/${device}/revoke`),
  'POST /v1/users/{user}/revoke': (device) => node.api.call('POST', `/v1/users/${user(device)}/revoke`),
})) {
  test(`after ${what} the same JWT is rejected and a newer one accepted`, async () => {
    const prefix = what.toLowerCase().replace(/[^a-z0-9]+/g, '')
    assert.deepEqual(await letIn(node, prefix, issued(5)), ALL, 'before')
    const all = devices(prefix)
    // Cached for the first call.
    await Promise.all(all.map((device) => node.api.call('GET', '/v1/me', { token: issued(5)(device) })))
    await Promise.all(all.map(revoke))
    const gone = what.startsWith('DELETE')
    assert.deepEqual(await letIn(node, prefix, issued(5)), [], 'the same')
    assert.deepEqual(await letIn(node, prefix, timeless), [], 'a token without iat')
    for (const device of gone ? all : []) {
      assert.equal((await node.api.raw('GET', `/v1/devices/${device}`)).status, 404, `${device} is still deleted`)
    }
    await nextSecond()
    assert.deepEqual(await letIn(node, prefix, issued(0)), ALL, 'a newer one')
    assert.deepEqual(await letIn(node, prefix, issued(5)), [], 'the old one, because the device exists again')
  })
}

test("revoking a user ends the sessions and the device tokens of the user's devices", async () => {
  const [mine, other] = [issued(5, 'ann')('ann-1'), issued(5, 'bob')('bob-1')]
  const [first, second] = [await Device.connect(node.ws, mine), await Device.connect(node.ws, other)]
  const { token } = await node.api.call('POST', '/v1/devices', { token: issued(5, 'ann')('ann-2'), body: {} })
  const third = await Device.connect(node.ws, token)
  assert.deepEqual(await node.api.call('POST', '/v1/users/ann/revoke'), { user: 'ann', devices: 2 })
  assert.deepEqual((await first.ended()).reason, 'revoked')
  assert.deepEqual((await third.ended()).reason, 'revoked')
  await second.settle()
  await second.leave()
  assert.equal((await node.api.raw('GET', '/v1/me', { token })).status, 401)
  assert.equal((await node.api.raw('GET', '/v1/me', { token: other })).status, 200)
  assert.deepEqual(await node.api.call('POST', '/v1/users/nobody/revoke'), { user: 'nobody', devices: 0 })
  assert.equal((await node.api.raw('GET', '/v1/me', { token: issued(5, 'nobody')('n-1') })).status, 401)
  const { code, stdout } = await node.cli('devices', 'revoke', '--user', 'bob', '--json')
  assert.deepEqual([code, JSON.parse(stdout || '{}')], [0, { user: 'bob', devices: 1 }])
  assert.equal((await node.api.raw('GET', '/v1/me', { token: other })).status, 401)
})

test('an open connection does not renew its token with a revoked one', async () => {
  await node.api.call('GET', '/v1/me', { token: issued(5)('renews') })
  await node.api.call('POST', '/v1/devices/renews/revoke')
  await nextSecond()
  const device = await Device.connect(node.ws, issued(0)('renews'))
  device.send({ t: 'token', token: issued(5)('renews') })
  const answer = await device.next()
  assert.equal(answer.t, 'error', JSON.stringify(answer))
  device.send({ t: 'token', token: issued(0)('renews') })
  await device.settle()
  await device.leave()
})

test('only a key with the scope devices revokes a user', async () => {
  const path = '/v1/users/carl/revoke'
  const { code, stdout } = await node.cli('keys', 'create', 'reader', '--app', 'dev', '--scopes', 'read', '--json')
  assert.equal(code, 0, stdout)
  const revoke = async (token) => (await node.api.raw('POST', path, { token })).status
  assert.equal(await revoke(JSON.parse(stdout).key), 403)
  assert.equal(await revoke(null), 401)
  assert.equal(await revoke(issued(5, 'carl')('carl-1')), 401, 'not even its own')
})
