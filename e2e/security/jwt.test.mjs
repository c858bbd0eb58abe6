/**
 * An app JWT belongs to one app: another tenant does not get its users by listing the same keys, and a token that
 * the identity provider issued for another service grants no access.
 */

import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { after, before, test } from 'node:test'

import { hs256, keyPair, now } from '../lib/jwt.mjs'
import { JWT_SECRET, Node, freePort } from '../lib/node.mjs'
import { ALL, letIn, logIns } from '../lib/log-ins.mjs'
import { operator } from '../lib/operator.mjs'

const ISSUER = 'https://id.victim.example'
const AUDIENCE = 'victim-api'

let node, admin, keys, keyServer
before(async () => {
  keys = { direct: keyPair('ES256', 'direct'), fetched: keyPair('RS256', 'fetched') }
  keyServer = createServer((_, answer) => answer.end(JSON.stringify({ keys: [keys.fetched.jwk] })))
  await new Promise((resolve) => keyServer.listen(0, '127.0.0.1', resolve))
  const ports = { mqtt: await freePort(), xmpp: await freePort() }
  const args = ['--mqtt', `127.0.0.1:${ports.mqtt}`, '--xmpp', `127.0.0.1:${ports.xmpp}`]
  node = Object.assign(await Node.start({ args }), { ports })
  admin = operator(node)
})
after(async () => {
  keyServer?.close()
  await node?.stop()
})

const claims = (device, more = {}) => ({ sub: 'u1', device, iat: now(), exp: now() + 600, ...more })
const shared = 'a secret that two apps have by mistake'

/** Two apps with the same keys; the thief is the older one. */
const sets = {
  'a public JWK set': [() => ({ jwks: { keys: [keys.direct.jwk] } }), (c) => keys.direct.sign(c)],
  jwks_url: [() => ({ jwks_url: `http://127.0.0.1:${keyServer.address().port}/` }), (c) => keys.fetched.sign(c)],
  'the same secret': [() => ({ jwt_secret: shared }), (c) => hs256(shared, c)],
}

for (const [i, [what, [signing, sign]]] of Object.entries(sets).entries()) {
  const [thiefs, victims] = [`thief-${i}`, `victim-${i}`]
  test(`an app that has another one's keys by ${what} gets none of its users`, async () => {
    try {
      await steal(thiefs, victims, signing(), sign)
    } finally {
      for (const app of [thiefs, victims]) await admin.raw('DELETE', `/v1/apps/${app}`)
    }
  })
}

async function steal(thiefs, victims, signing, sign) {
  const thief = await admin.app(thiefs, signing)
  const owner = await admin.app(victims, signing)
  const device = 'same-device'
  /** Whether the token admits its device, and whether the owner and the thief then have the device. */
  const tried = async (token, as = {}) => {
    const isIn = await logIns['POST /v1/devices']({ node, token, ...as })
    const found = await Promise.all([owner, thief].map((app) => app.api.raw('GET', `/v1/devices/${device}`)))
    return [isIn, ...found.map((answer) => answer.status === 200)]
  }
  const nobody = [false, false, false]
  assert.deepEqual(await tried(sign(claims(device))), nobody, 'no aud, no iss')
  const named = sign(claims(device, { iss: ISSUER, aud: AUDIENCE }))
  assert.deepEqual(await tried(named), nobody, 'an undeclared issuer and audience')
  await admin.change(victims, { issuer: ISSUER, audience: AUDIENCE })
  assert.deepEqual(await tried(named, { query: `?app=${thiefs}` }), nobody, 'the name does not override aud')
  assert.deepEqual(await tried(named, { headers: { 'noroshi-app': thiefs } }), nobody, 'nor does a header')
  const unnamed = await fetch(`${node.http}/v1/me`, { headers: { authorization: `Bearer ${sign(claims(device))}` } })
  assert.match((await unnamed.json()).detail, /names no app.*Noroshi-App/, 'the error names a remedy')
  assert.deepEqual(await tried(named), [true, true, false])
  // The owner's declaration is taken, and a tenant cannot declare any.
  const declared = { issuer: ISSUER, audience: AUDIENCE }
  assert.equal((await admin.raw('PATCH', `/v1/apps/${thiefs}`, declared)).status, 409)
  assert.equal((await thief.api.raw('PATCH', `/v1/apps/${thiefs}`, { body: declared })).status, 403)
}

test('a token for an unrelated service is rejected over every protocol', async () => {
  const unrelated = (device) => hs256(JWT_SECRET, claims(device, { aud: 'billing' }))
  assert.deepEqual(await letIn(node, 'unrelated', unrelated), [], 'the only app that signs')
  const named = { query: '?app=dev', app: '?app=dev', auth: { app: 'dev' } }
  assert.deepEqual(await letIn(node, 'overridden', unrelated, named), [], '?app= does not override aud')
  const ours = (device) => hs256(JWT_SECRET, claims(device, { aud: ['billing', 'dev'] }))
  assert.deepEqual(await letIn(node, 'ours', ours), ALL)
})

test('with several signing apps, every protocol can name the app', async () => {
  const secret = 'the secret of the second app, 32 bytes'
  const second = await admin.app('second', { jwt_secret: secret })
  const plain = (device) => hs256(secret, claims(device))
  assert.deepEqual(await letIn(node, 'nameless', plain), [], 'a key selects no app')
  // Socket.IO in its auth, MQTT and XMPP in the user name, the others in the URL.
  const named = { query: '?app=second', app: '?app=second', auth: { app: 'second' } }
  assert.deepEqual(await letIn(node, 'named', plain, named), ALL)
  assert.deepEqual(await letIn(node, 'by-aud', (device) => hs256(secret, claims(device, { aud: 'second' }))), ALL)
  assert.equal((await second.api.raw('GET', '/v1/devices/by-aud-xmpp')).status, 200)
  await admin.change('second', { issuer: 'https://id.second', audience: 'second-api' })
  const declared = (device) => hs256(secret, claims(device, { iss: 'https://id.second', aud: 'second-api' }))
  assert.deepEqual(await letIn(node, 'declared', declared), ALL)
  const wrong = (device) => hs256(secret, claims(device, { iss: 'https://id.other', aud: 'second-api' }))
  assert.deepEqual(await letIn(node, 'other-issuer', wrong, named), [], 'an issuer that is not the declared one')
  assert.deepEqual(await letIn(node, 'no-claims', plain, named), [], 'neither issuer nor audience')
  await admin.raw('DELETE', '/v1/apps/second')
  assert.deepEqual(await letIn(node, 'only', (device) => hs256(JWT_SECRET, claims(device))), ALL, 'one app again')
})
