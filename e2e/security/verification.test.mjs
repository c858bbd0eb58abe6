/** The cost of invalid tokens for a node, and of failed log-ins for others. */

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer, get } from 'node:http'
import { connect as connectTcp } from 'node:net'
import { join } from 'node:path'
import { after, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { hs256, keyPair, now } from '../lib/jwt.mjs'
import { connect as connectMqtt } from '../lib/mqtt.mjs'
import { JWT_SECRET, Node, freePort } from '../lib/node.mjs'
import { until, within } from '../lib/until.mjs'

const nodes = []
after(async () => {
  for (const node of nodes) await node.stop()
})

async function start(...args) {
  const node = await Node.start({ args })
  nodes.push(node)
  return node
}

/** A request of the operator. */
async function operator(node, method, path, body) {
  const answer = await fetch(`http://127.0.0.1:${node.adminPort}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${readFileSync(join(node.data, 'operator.token'), 'utf8').trim()}`,
      'content-type': 'application/json',
    },
    body: JSON.stringify(body),
  })
  return { status: answer.status, body: await answer.json() }
}

/** The sum of a metric's samples. */
async function metric(node, name) {
  const text = await (await node.admin('/metrics')).text()
  const samples = text.split('\n').filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `))
  assert.ok(samples.length > 0, `${name} is not among the metrics`)
  return samples.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0)
}

const me = (node, token, app) =>
  fetch(`${node.http}/v1/me${app ? `?app=${app}` : ''}`, { headers: { authorization: `Bearer ${token}` } })

const claims = (device) => ({ sub: `user-${device}`, device, exp: now() + 3_600 })
const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url')
/** An RS256 token with a forged signature. */
const bogus = (device) =>
  `${encode({ alg: 'RS256' })}.${encode(claims(device))}.${randomBytes(256).toString('base64url')}`
/** A device token with a forged signature. */
const forged = () => `nd1.${randomBytes(24).toString('base64url')}.${randomBytes(32).toString('base64url')}`

test('a forged token costs few verifications, however many keys its app has, and a repeated one none', async () => {
  const node = await start()
  const signer = keyPair('RS256', 'key-0')
  const keys = Array.from({ length: 64 }, (_, n) => ({ ...signer.jwk, kid: `key-${n}` }))
  const made = await operator(node, 'POST', '/v1/apps', { name: 'wide', jwks: { keys } })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  const verifications = () => metric(node, 'noroshi_signature_verifications_total')

  const token = bogus('d1')
  assert.equal((await me(node, token, 'wide')).status, 401)
  const cost = await verifications()
  assert.ok(cost >= 1 && cost <= 4, `${cost} verifications for one token`)
  for (let again = 0; again < 10; again++) assert.equal((await me(node, token, 'wide')).status, 401)
  assert.equal(await verifications(), cost, 'the verdict was remembered')

  // A valid token is verified once, over all protocols.
  const good = signer.sign(claims('d2'))
  const device = await Device.connect(node.ws, good, { path: '/v1/connect?app=wide' })
  assert.equal((await me(node, good, 'wide')).status, 200)
  assert.equal(await verifications(), cost + 1)
  await device.leave()
})

test('an app cannot register keys that are expensive to verify', async () => {
  const node = await start()
  const { jwk } = keyPair('RS256', 'a')
  for (const bytes of [128, 1_024]) {
    const keys = [jwk, { ...jwk, kid: 'b', n: Buffer.alloc(bytes, 0xff).toString('base64url') }]
    const refused = await operator(node, 'POST', '/v1/apps', { name: 'dear', jwks: { keys } })
    assert.equal(refused.status, 400, JSON.stringify(refused.body))
    assert.equal(refused.body.field, 'jwks')
    assert.match(refused.body.detail, new RegExp(`${bytes * 8} bits; accepted are 2048 to 4096`))
  }
})

/** The head of the answer to a request for an event stream, on a new connection. */
const events = (node, token) =>
  within(
    'the answer to GET /v1/events',
    new Promise((resolve, reject) => {
      const headers = { authorization: `Bearer ${token}` }
      const request = get(`${node.http}/v1/events`, { agent: false, headers }, (response) => {
        resolve(response)
        request.destroy()
      })
      request.once('error', reject)
    }),
  )

/** The answer to an XMPP log-in on a plain TCP connection. */
async function xmpp(port, user, token) {
  const socket = connectTcp(port, '127.0.0.1')
  socket.on('error', () => {})
  let text = ''
  const received = (what, pattern) =>
    within(
      what,
      new Promise((resolve) => {
        const look = () => {
          const found = pattern.exec(text)
          if (found) resolve(found)
        }
        socket.on('data', (bytes) => {
          text += bytes
          look()
        })
        look()
      }),
    )
  socket.write("<stream:stream to='localhost' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>")
  await received('the features', /<\/stream:features>/)
  const plain = Buffer.from(`\0${user}\0${token}`).toString('base64')
  socket.write(`<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>${plain}</auth>`)
  const [answer] = await received('an answer', /<(success|failure)[^]*?(\/>|<\/failure>)/)
  socket.destroy()
  return answer
}

test('a client with too many failures gets a retry time on every protocol, and a valid device is still admitted', async () => {
  const [mqttPort, xmppPort] = [await freePort(), await freePort()]
  const node = await start(
    ...['--set', 'auth.failures_per_client=5'],
    ...['--mqtt', `127.0.0.1:${mqttPort}`, '--xmpp', `127.0.0.1:${xmppPort}`],
  )
  const registered = await node.api.register({ device: 'good', user: 'u' })
  const statuses = []
  for (let n = 0; n < 10; n++) statuses.push((await me(node, forged())).status)
  assert.deepEqual(statuses.slice(0, 5), Array(5).fill(401))

  // The HTTP API.
  const refused = await me(node, forged())
  assert.equal(refused.status, 429)
  assert.ok(Number(refused.headers.get('retry-after')) >= 1, 'Retry-After')
  assert.equal((await refused.json()).code, 'too_many_requests')
  // The response to a forged JWT is delayed. Those to a valid token and to a forged device token are not: a front forwards
  // device tokens unverified.
  const answered = []
  const ask = async (name, token, status) => {
    assert.equal((await me(node, token)).status, status, name)
    answered.push(name)
  }
  const forgedDeviceToken = `${registered.token.slice(0, -4)}AAAA`
  await Promise.all([
    ask('forged JWT', forged(), 429),
    ask('forged device token', forgedDeviceToken, 429),
    ask('good token', registered.token, 200),
  ])
  assert.equal(answered.at(-1), 'forged JWT')
  // Server-sent events.
  const stream = await events(node, forged())
  assert.equal(stream.statusCode, 429)
  assert.ok(Number(stream.headers['retry-after']) >= 1, 'Retry-After')
  // The WebSocket's upgrade and its first frame.
  for (const via of ['header', 'frame']) {
    const device = Device.open(node.ws, forged(), { via })
    const frame = await device.next()
    assert.equal(frame.t, 'close', via)
    assert.equal(frame.reason, 'rate_limited', via)
    assert.ok(frame.reconnect && frame.after_ms >= 1_000, JSON.stringify(frame))
    assert.equal((await device.closed).code, 4008)
  }
  // MQTT: Connection rate exceeded.
  const url = `mqtt://127.0.0.1:${mqttPort}`
  const error = await connectMqtt(url, { device: 'good', token: forged() }).catch((error) => error)
  assert.equal(error.code, 0x9f, String(error))
  // XMPP: retry later.
  assert.match(await xmpp(xmppPort, 'good', forged()), /temporary-auth-failure/)

  // From the same address at the same time: a device token and an app JWT, over each protocol.
  assert.equal((await me(node, registered.token)).status, 200)
  assert.equal((await me(node, hs256(JWT_SECRET, claims('by-jwt')))).status, 200)
  for (const via of ['header', 'query', 'frame']) {
    const device = await Device.connect(node.ws, registered.token, { via })
    await device.leave()
  }
  const client = await connectMqtt(url, registered)
  await client.endAsync()
  assert.match(await xmpp(xmppPort, 'good', registered.token), /<success/)
  assert.ok((await metric(node, 'noroshi_log_ins_throttled_total')) >= 6)
})

test('a verified token stays valid, and a new one waits behind an address with failures', async () => {
  const node = await start('--set', 'auth.failures_per_client=5')
  const signer = keyPair('ES256', 'a')
  await operator(node, 'POST', '/v1/apps', { name: 'signed', jwks: { keys: [signer.jwk] } })
  const known = signer.sign(claims('known'))
  assert.equal((await me(node, known, 'signed')).status, 200)
  // Until the address has no verification left: then unknown tokens are rejected unverified.
  await until('429', async () => {
    const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => me(node, bogusEs256(n), 'signed')))
    return answers.some((answer) => answer.status === 429)
  })
  assert.equal((await me(node, known, 'signed')).status, 200)
  const fresh = signer.sign(claims('fresh'))
  await until('the new token to be verified', async () => (await me(node, fresh, 'signed')).status === 200)
})

const bogusEs256 = (n) =>
  `${encode({ alg: 'ES256', kid: 'a' })}.${encode(claims(`d${n}`))}.${randomBytes(64).toString('base64url')}`

test('frames sent while the token is verified are executed in order', async () => {
  const node = await start()
  const signer = keyPair('RS256', 'a')
  await operator(node, 'POST', '/v1/apps', { name: 'signed', jwks: { keys: [signer.jwk] } })
  const devices = Array.from({ length: 20 }, (_, n) => {
    const device = Device.open(node.ws, undefined, { via: 'none', path: '/v1/connect?app=signed' })
    device.socket.once('open', () => {
      device.send({ t: 'connect', token: signer.sign(claims(`early-${n}`)) })
      device.send({ t: 'sub', topics: ['late', 'early'] })
      device.send({ t: 'ping' })
      device.send({ t: 'nonsense' })
      device.send({ t: 'unsub', topics: ['late'] })
      device.send({ t: 'ping' })
    })
    return device
  })
  for (const device of devices) {
    const received = []
    while (received.length < 4) received.push((await device.next()).t)
    assert.deepEqual(received, ['ready', 'pong', 'error', 'pong'])
  }
  const { key } = (await operator(node, 'POST', '/v1/apps/signed/keys', { name: 'all', scopes: ['publish'] })).body
  for (const topic of ['late', 'early']) {
    const to = { to: { topic }, when: 'connected', data: topic }
    const published = await fetch(`${node.http}/v1/notifications`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(to),
    })
    assert.equal(published.status, 202)
  }
  for (const device of devices) {
    assert.equal((await device.next()).data, 'early', 'what was subscribed to last')
    // A renewal is verified too, while the session continues.
    device.send({ t: 'token', token: signer.sign(claims('somebody-else')) })
    assert.equal((await device.next()).code, 'unauthorized')
    await device.leave()
  }
  // Connections that end during verification leave no state.
  for (let n = 0; n < 20; n++) {
    const device = Device.open(node.ws, signer.sign(claims(`gone-${n}`)), { path: '/v1/connect?app=signed' })
    device.socket.once('open', () => device.socket.terminate())
    await device.closed
  }
  await until('all connections to end', async () => {
    const text = await (await node.admin('/metrics')).text()
    return /noroshi_connections\{protocol="native",transport="websocket"\} 0/.test(text)
  })
})

test('a hanging JWK set URL delays no other app', async () => {
  const signer = keyPair('ES256', 'a')
  let hangs = false
  let [held, givenUp] = [0, 0]
  const server = createServer((request, response) => {
    if (hangs && request.url === '/hang') {
      held += 1
      response.once('close', () => (givenUp += 1))
      return
    }
    response.end(JSON.stringify({ keys: [signer.jwk] }))
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  const base = `http://127.0.0.1:${server.address().port}`
  const node = await start()
  for (let n = 0; n < 4; n++) {
    await operator(node, 'POST', '/v1/apps', { name: `slow-${n}`, jwks_url: `${base}/hang` })
  }
  const made = await operator(node, 'POST', '/v1/apps', { name: 'quick', jwks_url: `${base}/keys` })
  assert.equal(made.status, 201, JSON.stringify(made.body))
  // A starting node fetches all sets, the slow ones first.
  await node.drain()
  hangs = true
  await node.spawn()
  const token = signer.sign(claims('d1'))
  await until('the keys of the quick app', async () => (await me(node, token, 'quick')).status === 200)
  assert.equal(givenUp, 0, 'the quick app waited for the slow ones')
  await until('the slow URLs to be requested', () => held > 0)
  server.closeAllConnections()
  server.close()
})
