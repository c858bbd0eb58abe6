/**
 * Every route of both OpenAPI documents, called with credentials that must not open it: none, nonsense, an expired JWT,
 * the token of a revoked and of a deleted device, a revoked and an expired key, the wrong kind of credential, another app's credentials.
 *
 * The routes come from the documents, which the server's own tests compare with its routing tables. A new route is
 * therefore called here without being named here; a new path parameter fails until `victimOf` knows it.
 */

import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'

import { api } from '../lib/api.mjs'
import { fill, operations } from '../lib/contract.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const SCOPES = ['publish', 'devices', 'read', 'admin']
const SECRET = { victim: 'v'.repeat(40), attacker: 'a'.repeat(40) }
/** These routes connect a device; every-verb.test.mjs calls them with real clients. */
const CONNECTIONS = ['/v1/connect', '/v1/events']
/** The answers that a client without the required credential may receive. */
const REFUSED = [401, 403]

let node, operator, documents
const apps = {}

before(async () => {
  // Hundreds of log-ins fail from one address here; verification.test.mjs tests the limit on failures.
  node = await Node.start({ args: ['--set', 'auth.failures_per_client=1000000'] })
  const token = readFileSync(join(node.data, 'operator.token'), 'utf8').trim()
  operator = api(`http://127.0.0.1:${node.adminPort}`, token)
  for (const name of ['victim', 'attacker']) apps[name] = await makeApp(name)
  documents = {
    public: await (await fetch(`${node.http}/openapi.json`)).json(),
    admin: await (await node.admin('/openapi.json')).json(),
  }
})
after(() => node?.stop())

async function makeApp(name) {
  await operator.call('POST', '/v1/apps', { body: { name, jwt_secret: SECRET[name] }, status: 201 })
  const key = async (scopes) => (await operator.call('POST', `/v1/apps/${name}/keys`, { body: { name: 'k', scopes }, status: 201 }))
  const all = await key(SCOPES)
  const provider = api(node.http, all.key)
  const app = { name, key: all.key, keyId: all.id, provider, makeKey: key }
  app.register = (device = {}) => provider.register(device)
  app.jwt = (claims = {}) => hs256(SECRET[name], { sub: 'owner', device: `jwt-${randomUUID()}`, aud: name, iat: now() - 5, exp: now() + 600, ...claims })

  // One of each object that a path can name.
  const device = await provider.register({ device: 'shared-id', user: 'owner', topics: ['secret-topic'] })
  const me = { token: device.token }
  for (const path of ['controls', 'controls/lamp']) {
    await provider.call('PUT', `/v1/devices/shared-id/push-tokens/${path}`, { body: { token: Buffer.from(`token of ${name}`).toString('hex').padEnd(64, '0'), environment: 'production' } })
  }
  const notification = await provider.publish({ to: { devices: ['shared-id'] }, data: `data of ${name}` })
  await provider.publish({ to: { users: ['owner'] }, when: 'active', data: `item of ${name}`, item: {} })
  await provider.publish({ to: { topic: 'secret-topic' }, retain: true, data: `retained of ${name}` })
  const preferences = { muted_topics: [`topic of ${name}`] }
  await provider.call('PUT', '/v1/devices/shared-id/preferences', { body: preferences })
  await provider.call('PUT', '/v1/users/owner/preferences', { body: preferences })
  const campaign = await provider.call('POST', '/v1/campaigns', {
    body: { name: `campaign of ${name}`, audience: { everyone: true }, message: { data: `campaign of ${name}` }, start_at: '2036-01-01T00:00:00Z' },
    status: 201,
  })
  const activity = `activity-of-${name}`
  await provider.call('POST', '/v1/activities', {
    body: { id: activity, to: { devices: ['shared-id'] }, attributes_type: 'Match', content_state: { of: name }, alert: { title: `activity of ${name}` } },
    status: 201,
  })
  const endpoint = await provider.call('POST', '/v1/me/endpoints', { ...me, body: {}, status: 201 })
  const window = { starts_at: '2026-01-15T09:30:00Z', ends_at: '2036-01-15T09:30:00Z' }
  await provider.call('PUT', `/v1/apps/${name}/experiments/colour`, {
    body: { ...window, variants: [{ name: `x-${name}`, weight: 1 }, { name: 'other', weight: 1 }] },
  })
  await provider.call('PUT', `/v1/apps/${name}/notices/rest`, {
    body: { announced_at: window.starts_at, ...window, notification: { title: `notice of ${name}` } },
  })
  const credential = await provider.call('POST', `/v1/apps/${name}/push`, { body: webPushCredential(), status: 201 })
  Object.assign(app, { device, notification: notification.id, campaign: campaign.id, activity, endpoint, credential: credential.id })
  return app
}

/** A key whose time has passed; it worked before. */
async function expired({ name, provider }) {
  const body = { name: 'expired', scopes: SCOPES, expires_at: new Date(Date.now() + 10_000).toISOString() }
  const { key } = await operator.call('POST', `/v1/apps/${name}/keys`, { body, status: 201 })
  await until('the key to expire', async () => (await provider.raw('GET', '/v1/topics', { token: key })).status === 401)
  return key
}

/** A VAPID key in the format of `noroshi push add`. */
function webPushCredential() {
  return { service: 'webpush', private_key: Buffer.alloc(32, 7).toString('base64url'), subject: 'mailto:ops@example.com' }
}

/** The value of `{name}` in `path` for an app that has one of each object. */
const victimOf = (app) => (path, name) => {
  switch (name) {
    case 'app': return app.name
    case 'key': return app.keyId
    case 'device': return 'shared-id'
    case 'user': return 'owner'
    case 'cell': return 'no-cell'
    case 'topic': return 'secret-topic'
    case 'kind': return 'controls'
    case 'name':
      if (path.includes('/push-tokens/')) return 'lamp'
      // Only Apple makes channels and broadcasts: broadcast.test.mjs tries them with other apps' keys.
      if (path.includes('/channels/')) return 'final'
      return path.includes('/experiments/') ? 'colour' : 'rest'
    case 'token': return path.startsWith('/push/{') ? new URL(app.endpoint.endpoint).pathname.split('/').at(-1) : 'x'.repeat(43)
    case 'id':
      if (path.includes('/campaigns/')) return app.campaign
      if (path.includes('/activities/')) return app.activity
      if (path.includes('/endpoints/')) return app.endpoint.id
      if (path.includes('/apns-channels/')) return 'dHN0LXNyY2gtY2hubA=='
      if (path.includes('/broadcasts/')) return app.notification
      if (path.includes('/push/')) return app.credential
      return app.notification
  }
}

/** An id of the same format that does not exist. */
const nothing = (app) => (path, name) => {
  const real = victimOf(app)(path, name)
  if (name === 'key' || name === 'id' || name === 'app') return /^[0-9a-f]{8}-/.test(real) ? '01900000-0000-7000-8000-000000000000' : /^\d+$/.test(String(real)) ? '999999' : 'no-such-name'
  return real === undefined ? undefined : 'no-such-name'
}

async function ask(base, { method, path, body }, values, token) {
  const headers = { ...(token === undefined ? {} : { authorization: `Bearer ${token}` }), ...(body ? { 'content-type': body.type } : {}) }
  const answer = await fetch(base + fill(path, values), { method, headers, body: body?.text, redirect: 'manual', signal: AbortSignal.timeout(30_000) })
  return { status: answer.status, type: answer.headers.get('content-type') ?? '', text: await answer.text() }
}

/** All data of the app, to compare before and after. */
async function belongings({ name, provider, device }) {
  const parts = {
    app: await provider.call('GET', `/v1/apps/${name}`),
    keys: (await provider.call('GET', `/v1/apps/${name}/keys`)).keys?.map(({ id, scopes }) => ({ id, scopes })),
    devices: await provider.call('GET', '/v1/devices/shared-id'),
    retained: await provider.call('GET', '/v1/topics/secret-topic/retained'),
    campaigns: await provider.call('GET', '/v1/campaigns'),
    activities: (await provider.call('GET', '/v1/activities')).activities.map(({ devices, ...rest }) => rest),
    experiments: await provider.call('GET', `/v1/apps/${name}/experiments`),
    notices: await provider.call('GET', `/v1/apps/${name}/notices`),
    credentials: await provider.call('GET', `/v1/apps/${name}/push`),
    endpoints: await provider.call('GET', '/v1/me/endpoints', { token: device.token }),
    inbox: await provider.me(device.token).inbox(),
    items: await provider.call('GET', '/v1/users/owner/items?state=all'),
    preferences: [await provider.call('GET', '/v1/users/owner/preferences'), await provider.call('GET', '/v1/devices/shared-id/preferences')],
  }
  delete parts.devices.last_seen_at
  return parts
}

const needs = (operation) => operation.security.length > 0 && !operation.security.includes('none')
const isProviders = ({ security }) => security.includes('apiKey')
const isDevices = ({ security }) => security.includes('deviceToken')

describe('credentials without access', () => {
  test('public routes reject invalid credentials and change nothing', async () => {
    const { victim } = apps
    const revokedDevice = await victim.register({ device: 'revoked', user: 'owner' })
    await victim.provider.call('POST', '/v1/devices/revoked/revoke')
    const deletedDevice = await victim.register({ device: 'deleted', user: 'owner' })
    await victim.provider.call('DELETE', '/v1/devices/deleted')
    const revokedKey = await victim.makeKey(SCOPES)
    await operator.call('DELETE', `/v1/apps/victim/keys/${revokedKey.id}`)
    const expiredKey = await expired(victim)
    const bad = {
      none: undefined,
      nonsense: 'nonsense',
      'a forged device token': `${victim.device.token.slice(0, -4)}AAAA`,
      'an expired JWT': victim.jwt({ exp: now() - 60 }),
      'a JWT with another key': hs256('z'.repeat(40), { sub: 'owner', device: 'shared-id', aud: 'victim', iat: now(), exp: now() + 60 }),
      'the token of a revoked device': revokedDevice.token,
      'the token of a deleted device': deletedDevice.token,
      'a revoked key': revokedKey.key,
      'an expired key': expiredKey,
      "the operator's token": readFileSync(join(node.data, 'operator.token'), 'utf8').trim(),
    }
    const before = await belongings(victim)
    const routes = operations(documents.public).filter((route) => needs(route) && !CONNECTIONS.includes(route.path))
    assert.ok(routes.length > 40, 'the document lists the routes')
    for (const route of routes) {
      for (const [what, token] of Object.entries(bad)) {
        const answer = await ask(node.http, route, victimOf(victim), token)
        // An endpoint URL is a capability: the address grants access, whatever the header.
        if (route.security.includes('vapid')) continue
        assert.ok(REFUSED.includes(answer.status), `${route.method} ${route.path} with ${what}: ${answer.status} ${answer.text}`)
        assert.match(answer.type, /^application\/problem\+json/, `${route.method} ${route.path} with ${what}`)
      }
    }
    assert.deepEqual(await belongings(victim), before)
  })

  test('an API key cannot act as a device nor a device as a provider', async () => {
    const { victim } = apps
    const before = await belongings(victim)
    for (const route of operations(documents.public).filter((one) => needs(one) && !CONNECTIONS.includes(one.path))) {
      const wrong = []
      if (!isProviders(route)) wrong.push(['an API key', victim.key])
      if (!isDevices(route)) wrong.push(['a device token', victim.device.token], ['an app JWT', victim.jwt()])
      for (const [what, token] of wrong) {
        const answer = await ask(node.http, route, victimOf(victim), token)
        assert.ok(REFUSED.includes(answer.status), `${route.method} ${route.path} with ${what}: ${answer.status} ${answer.text}`)
      }
    }
    assert.deepEqual(await belongings(victim), before)
  })

  test('a key with one scope opens only the routes of that scope', async () => {
    const { attacker } = apps
    const keys = {}
    for (const scope of SCOPES) keys[scope] = (await attacker.makeKey([scope])).key
    for (const route of operations(documents.public).filter(isProviders)) {
      const statuses = {}
      for (const scope of SCOPES) {
        statuses[scope] = (await ask(node.http, { ...route, body: route.body && { ...route.body, text: '[' } }, nothing(attacker), keys[scope])).status
      }
      const opens = SCOPES.filter((scope) => statuses[scope] !== 403)
      assert.ok(opens.length >= 1 && opens.length < SCOPES.length, `${route.method} ${route.path}: ${JSON.stringify(statuses)}`)
      assert.ok(!Object.values(statuses).includes(401), `${route.method} ${route.path}: ${JSON.stringify(statuses)}`)
    }
  })

  test('admin routes accept only the operator', async () => {
    const { victim } = apps
    const before = await belongings(victim)
    const base = `http://127.0.0.1:${node.adminPort}`
    const routes = operations(documents.admin).filter(needs)
    assert.ok(routes.length > 15, 'the document lists the routes')
    const bad = { none: undefined, nonsense: 'nonsense', 'an API key': victim.key, 'a device token': victim.device.token, 'an app JWT': victim.jwt() }
    for (const route of routes) {
      for (const [what, token] of Object.entries(bad)) {
        const answer = await ask(base, route, victimOf(victim), token)
        assert.equal(answer.status, 401, `${route.method} ${route.path} with ${what}: ${answer.text}`)
      }
    }
    assert.deepEqual(await belongings(victim), before)
  })
})

describe('another app', () => {
  test("its keys cannot see or change the victim's objects, nor distinguish them from missing ones", async () => {
    const { victim, attacker } = apps
    const before = await belongings(victim)
    for (const route of operations(documents.public).filter(isProviders)) {
      const answer = await ask(node.http, route, victimOf(victim), attacker.key)
      const named = `${route.method} ${route.path}: ${answer.status} ${answer.text}`
      assert.ok(answer.status < 500, named)
      assert.doesNotMatch(answer.text, /of victim|x-victim/, named)
      // Ids and app names of the victim; topics, users and device ids are namespaces of each app.
      if (/\{(id|key|app)\}/.test(route.path)) {
        const unknown = await ask(node.http, route, nothing(victim), attacker.key)
        assert.equal(answer.status, unknown.status, `${named} but ${unknown.status} for what does not exist`)
        assert.ok(answer.status >= 400, named)
      }
    }
    assert.deepEqual(await belongings(victim), before)
  })

  test("its devices cannot see or change the victim's objects", async () => {
    const { victim, attacker } = apps
    const before = await belongings(victim)
    for (const route of operations(documents.public).filter((one) => isDevices(one) && !CONNECTIONS.includes(one.path))) {
      const ids = { ids: [victim.notification] }
      const own = { '/v1/me/inbox/ack': ids, '/v1/me/opened': ids, '/v1/me/items': { action: 'archive', up_to: victim.notification } }[route.path]
      const body = own && route.body ? { type: 'application/json', text: JSON.stringify(own) } : route.body
      // The same device id as the victim's, and an app JWT that claims it.
      const token = (await attacker.register({ device: 'shared-id', user: 'owner' })).token
      for (const credential of [token, attacker.jwt({ device: 'shared-id' })]) {
        const answer = await ask(node.http, { ...route, body }, victimOf(victim), credential)
        assert.ok(answer.status < 500, `${route.method} ${route.path}: ${answer.status} ${answer.text}`)
        assert.doesNotMatch(answer.text, /of victim|x-victim/, `${route.method} ${route.path}: ${answer.text}`)
      }
    }
    assert.deepEqual(await belongings(victim), before)
  })

  test("its JWTs are rejected for the victim's app", async () => {
    const { attacker } = apps
    const token = attacker.jwt({ aud: 'victim' })
    for (const query of ['', '?app=victim']) {
      const answer = await attacker.provider.raw('GET', `/v1/me${query}`, { token })
      assert.equal(answer.status, 401, answer.text)
    }
  })
})
