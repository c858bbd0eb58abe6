/**
 * Secrets appear in no log, event, trace, metric, profile, printed configuration or error text. A node runs at its most
 * verbose level with marked secrets, every protocol is used correctly and incorrectly, and all output is searched.
 */

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { connect as tcp } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { gunzipSync } from 'node:zlib'

import { io } from 'socket.io-client'

import { Device } from '../lib/device.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { connect as mqttConnect } from '../lib/mqtt.mjs'
import { KEY, JWT_SECRET, Node, cli, freePort } from '../lib/node.mjs'
import { DevPush, addCredential, operatorToken } from '../lib/push.mjs'
import { until, within } from '../lib/until.mjs'

const drawn = (name) => `${name}-${randomBytes(12).toString('hex')}`
const secrets = new Map()
/** All output, by source. */
const outputs = new Map()
const mark = (name, value) => (secrets.set(name, value), value)
const put = (where, text) => outputs.set(where, Buffer.concat([outputs.get(where) ?? Buffer.alloc(0), Buffer.from(text)]))

let node, push, collector, folder, ports, device, endpoint

/** Receives spans and metrics of OpenTelemetry, and the events of a webhook. */
async function collect() {
  const server = createServer((request, response) => {
    const pieces = []
    request.on('data', (piece) => pieces.push(piece))
    request.on('end', () => {
      const body = Buffer.concat(pieces)
      put(`posted to ${request.url.split('?')[0]}`, request.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body)
      response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
    })
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return server
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'noroshi-secrets-'))
  collector = await collect()
  push = await DevPush.start()
  const base = `http://127.0.0.1:${collector.address().port}`
  ports = { mqtt: await freePort(), xmpp: await freePort() }
  const webhookKey = randomBytes(32)
  mark('webhook key', webhookKey.toString('base64'))
  writeFileSync(join(folder, 'webhook.key'), `whsec_${webhookKey.toString('base64')}`, { mode: 0o600 })
  const header = mark('collector header', drawn('header'))
  writeFileSync(join(folder, 'headers'), `x-key: ${header}\n`, { mode: 0o600 })
  const password = mark('XMPP password', drawn('password'))
  const query = mark('webhook query', drawn('query'))
  mark('development key', KEY)
  mark('JWT secret', JWT_SECRET)
  const settings = {
    'log.level': 'trace',
    'gateway.auth_timeout': '1s',
    'egress.ca_file': push.info.ca_file,
    'events.file.folder': join(folder, 'events'),
    'events.webhook.url': `${base}/webhook?key=${query}`,
    'events.webhook.key_file': join(folder, 'webhook.key'),
    'events.flush_interval': '100ms',
    'tracing.endpoint': base,
    'tracing.headers_file': join(folder, 'headers'),
    'tracing.sample_per_million': '1000000',
    'server.conformance': 'true',
    'xmpp.accounts': `suite:${password}`,
  }
  const args = ['--mqtt', `127.0.0.1:${ports.mqtt}`, '--xmpp', `127.0.0.1:${ports.xmpp}`]
  for (const [key, value] of Object.entries(settings)) args.push('--set', `${key}=${value}`)
  node = await Node.start({ args })
  mark('operator token', operatorToken(node))
  for (const [service, credential] of Object.entries(push.info.credentials)) {
    await addCredential(node, credential)
    for (const [field, value] of Object.entries(credential)) {
      const text = typeof value === 'string' ? value : JSON.stringify(value)
      const key = /-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END/s.exec(text)?.[1].replaceAll(/\\n|\s/g, '')
      if (key) mark(`${service} ${field}`, key.slice(40, 100))
      else if (/private/.test(field)) mark(`${service} ${field}`, text)
    }
  }
  device = await node.api.register({ device: 'd1', user: 'u1', topics: ['t'] })
  mark('device token', device.token)
  endpoint = await node.api.call('POST', '/v1/me/endpoints', { token: device.token, body: {}, status: 201 })
  mark('endpoint', endpoint.url.split('/').pop())
})
after(async () => {
  await node?.stop()
  await push?.stop()
  collector?.close()
  rmSync(folder, { recursive: true, force: true })
})

/** Every encoding in which a log might contain it. */
function forms(secret) {
  const bytes = Buffer.from(secret)
  const all = new Map([['as it is', secret], ['URL-encoded', encodeURIComponent(secret)], ['hex', bytes.toString('hex')]])
  all.set('bytes', [...bytes.subarray(0, 12)].join(', '))
  for (const shift of [0, 1, 2]) {
    const encoded = Buffer.concat([Buffer.alloc(shift), bytes]).toString('base64').replace(/=*$/, '')
    // Characters that depend on neighbouring bytes are cut off.
    const inner = encoded.slice(shift ? 4 : 0, -4)
    all.set(`base64, shifted by ${shift}`, inner)
    all.set(`base64url, shifted by ${shift}`, inner.replaceAll('+', '-').replaceAll('/', '_'))
  }
  return [...all].filter(([, form]) => form.length >= 8)
}

const quietly = async (promise) => {
  try {
    return await promise
  } catch (error) {
    return error
  }
}

/** Error answers are output too. */
async function asks(method, path, options) {
  const answer = await quietly(node.api.raw(method, path, options))
  if (answer?.status >= 300) put('HTTP errors', `${answer.status} ${[...answer.headers]} ${answer.text}\n`)
  return answer
}

/** Sends input on one connection and returns all output until it ends or is silent. */
function speak(port, ...texts) {
  return within('a conversation', new Promise((resolve) => {
    const socket = tcp(port, '127.0.0.1')
    let received = ''
    socket.on('data', (chunk) => {
      received += chunk
      const next = texts.shift()
      if (next !== undefined) socket.write(next)
      else socket.end()
    })
    socket.on('error', () => {}).on('close', () => resolve(received))
    socket.write(texts.shift())
    setTimeout(() => socket.destroy(), 2_000).unref()
  }))
}

test('every protocol, with correct and incorrect input', async () => {
  const jwt = mark('app JWT', hs256(JWT_SECRET, { sub: 'u2', device: 'd2', iat: now(), exp: now() + 600 }))
  const expired = mark('expired JWT', hs256(JWT_SECRET, { sub: 'u2', device: 'd2', iat: 1, exp: 2 }))
  const forged = mark('forged JWT', hs256(mark('another secret', drawn('another')), { sub: 'u', device: 'd', exp: now() + 600 }))
  const bogus = mark('bogus token', `nd1.${drawn('bogus')}.${drawn('tag')}`)
  const unknownKey = mark('unknown key', `nk_${drawn('unknown')}`)
  const tokens = [device.token, jwt, expired, forged, bogus, unknownKey, KEY]
  const base = node.http

  // HTTP: the credential in its place, and in every wrong one.
  await Promise.all(tokens.map(async (token) => {
    for (const [method, path] of [['GET', '/v1/me'], ['GET', '/v1/topics'], ['POST', '/v1/devices'], ['POST', '/v1/notifications']]) {
      await asks(method, path, { token, body: method === 'POST' ? {} : undefined })
    }
    const escaped = encodeURIComponent(token)
    for (const path of [
      `/v1/devices/${escaped}`, `/v1/topics/${escaped}`, `/v1/topics/${escaped}%zz`, `/v1/notifications/${escaped}`, `/${escaped}`,
      `/v1/topics?after=${escaped}`, `/v1/topics?${escaped}=1`, `/v1/me?token=${escaped}`, `/v1/me?app=${escaped}`, `/push/${escaped}`,
      `/push/receipt/${escaped}`, `/v1/apps/${escaped}`, `/v1/connect?token=${escaped}%zz`,
    ]) {
      await asks('GET', path)
    }
    await asks('GET', '/v1/me', { token: null, headers: { authorization: token } })
    await asks('GET', '/v1/me', { token: null, headers: { authorization: `Basic ${Buffer.from(`u:${token}`).toString('base64')}` } })
    // A client's own request id is logged; an id that begins like a credential is replaced.
    const id = token === KEY ? 'r1' : token.slice(0, 64)
    await asks('GET', '/v1/me', { token, headers: { 'x-request-id': id, traceparent: token } })
    await asks('POST', '/v1/notifications', { body: { to: { users: [{ token }] }, [token]: 1 } })
    await asks('POST', '/v1/notifications', { body: { to: { condition: token }, data: 1 } })
    await asks('POST', '/v1/notifications', { body: `{"to": ${token}` })
    await asks('POST', '/v1/notifications', { body: { to: { users: ['u1'] }, ttl: token } })
  }))
  // Rejected push credentials and secrets of apps.
  const operator = `http://127.0.0.1:${node.adminPort}`
  for (const credential of Object.values(push.info.credentials)) {
    const name = Object.keys(credential).find((field) => /key|private|account/.test(field))
    const broken = { ...credential, [name]: typeof credential[name] === 'string' ? credential[name].replace('-----END', '') : 1, extra: 1 }
    for (const token of [operatorToken(node), KEY]) {
      const answer = await fetch(`${operator}/v1/apps/dev/push`, {
        method: 'POST', headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' }, body: JSON.stringify(broken),
      })
      put('HTTP errors', await answer.text())
    }
  }
  const short = mark('refused JWT secret', drawn('r').slice(0, 20))
  const refused = await fetch(`${operator}/v1/apps`, {
    method: 'POST', headers: { authorization: `Bearer ${operatorToken(node)}`, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'other', jwt_secret: short }),
  })
  put('HTTP errors', await refused.text())
  // A JWK set that cannot be fetched, with a password in its URL.
  const jwks = mark('JWKS query', drawn('jwks'))
  await fetch(`${operator}/v1/apps/dev`, {
    method: 'PATCH', headers: { authorization: `Bearer ${operatorToken(node)}`, 'content-type': 'application/json' },
    body: JSON.stringify({ jwks_url: `https://127.0.0.1:9/keys?key=${jwks}` }),
  })

  // Native WebSocket and SSE.
  for (const via of ['header', 'query', 'frame']) {
    const listener = await Device.connect(node.ws, device.token, { via })
    await listener.leave()
    for (const token of tokens.slice(2)) {
      const closed = Device.open(node.ws, token, { via })
      put('close reasons', JSON.stringify(await within('the end', closed.closed)))
    }
  }
  const wrong = Device.open(node.ws, device.token, { via: 'none' })
  await within('an open socket', new Promise((resolve) => wrong.socket.once('open', resolve)))
  wrong.send(`{"t":"connect","token":"${device.token}`)
  put('close reasons', JSON.stringify(await within('the end', wrong.closed)))
  for (const token of tokens) {
    const abort = new AbortController()
    const answer = await quietly(fetch(`${base}/v1/events?token=${encodeURIComponent(token)}`, { signal: abort.signal }))
    if (answer.status !== 200) put('HTTP errors', await answer.text())
    abort.abort()
  }

  // Socket.IO over both transports.
  const pairs = [['websocket'], ['polling']].flatMap((transports) => tokens.map((token) => [transports, token]))
  await Promise.all(pairs.map(async ([transports, token]) => {
    const socket = io(base, { auth: { token }, transports, forceNew: true, reconnection: false })
    const answer = await within('an answer', new Promise((resolve) => {
      socket.once('connect', () => resolve('connected')).once('connect_error', (error) => resolve(`${error.message} ${JSON.stringify(error.data)}`))
      socket.once('close', (close) => resolve(JSON.stringify(close)))
    }))
    put('Socket.IO errors', answer)
    socket.disconnect()
  }))

  // MQTT: the token as password, as user name and as client id.
  const url = `mqtt://127.0.0.1:${ports.mqtt}`
  // One after the other, with a DISCONNECT: a session that another one of its device replaces publishes its will.
  for (const token of tokens) {
    for (const options of [{}, { username: token }, { clientId: token }, { will: { topic: token.slice(0, 200), payload: token } }]) {
      const client = await quietly(mqttConnect(url, { device: 'd1', token }, options))
      if (client instanceof Error) put('MQTT errors', `${client.message} ${client.code}`)
      else await client.endAsync()
    }
  }

  // Hand-written XMPP: input that no library sends.
  const open = "<?xml version='1.0'?><stream:stream to='localhost' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"
  const plain = (name, token) => Buffer.from(`\0${name}\0${token}`).toString('base64')
  await Promise.all([...tokens, secrets.get('XMPP password')].map(async (token) => {
    const auth = (name) => `<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>${plain(name, token)}</auth>`
    const said = await Promise.all([
      ...['d1', 'suite', token.slice(0, 100)].map((name) => speak(ports.xmpp, open, auth(name))),
      speak(ports.xmpp, open.replace('localhost', token)),
      speak(ports.xmpp, open, `<iq type='get' id='1'><x token='${token}'/></iq><`),
    ])
    said.forEach((answer) => put('XMPP answers', answer))
  }))
  // A request line in the format of HTTP proxies, with the credential.
  for (const token of tokens) put('HTTP errors', await speak(node.httpPort, `GET http://u:${token}@h/?token=${token} HTTP/9.9\r\n\r\n`))

  // A push to every service, one that fails, and one posted to an endpoint.
  const [apns] = await push.tokens('apns')
  await node.api.register({ device: 'd4', user: 'u4', push_token: apns })
  await node.api.publish({ to: { users: ['u1', 'u4'] }, notification: { title: 'x' }, push: { mode: 'always' } })
  await until('the push', async () => (await push.received('apns')).length > 0)
  for (const path of [endpoint.url, `${endpoint.url}x`]) {
    const answer = await fetch(path, { method: 'POST', headers: { ttl: '60' }, body: 'x' })
    put('HTTP errors', `${await answer.text()}`)
  }
  await node.api.me(device.token).remove()
  await asks('GET', '/v1/me', { token: device.token })
})

test('the command line with secrets in wrong arguments', async () => {
  const marked = (name) => mark(name, drawn('cli'))
  const runs = [
    [['send', '--user', 'u1', '--title', 'x'], { NOROSHI_KEY: marked('CLI key') }],
    [['send', '--key', marked('CLI key flag'), '--user', 'u1', '--title', 'x', '--bogus'], {}],
    [['listen', '--token', marked('CLI token'), '--url', 'http://127.0.0.1:9'], {}],
    [['apps', 'list', '--operator-token', marked('CLI operator'), '--admin-url', `http://127.0.0.1:${node.adminPort}`], {}],
    [['config', 'print'], { NOROSHI__STORE__URL: `postgres://u:${marked('PostgreSQL password')}@127.0.0.1:9/d` }],
    [['config', 'print', '--json'], { NOROSHI__EGRESS__PROXY: `http://u:${marked('proxy password')}@127.0.0.1:9` }],
    [['config', 'check'], { NOROSHI__CLUSTER__REDIS: `redis://:${marked('Redis password')}@127.0.0.1:9` }],
    [['config', 'print'], { NOROSHI__SERVER__CONFORMANCE: 'true', NOROSHI__XMPP__ACCOUNTS: `a:${marked('account')}` }],
    [['config', 'print', '--json'], { NOROSHI__SERVER__CONFORMANCE: 'true', NOROSHI__XMPP__ACCOUNTS: `b:${marked('account as JSON')}` }],
    [['config', 'print'], { NOROSHI__SERVER__CONFORMANCE: 'true', NOROSHI__XMPP__ACCOUNTS: marked('wrong account') }],
    [['config', 'print'], { NOROSHI__EVENTS__WEBHOOK__URL: `https://u:${marked('webhook password')}@h/x?k=${marked('webhook parameter')}` }],
    [['config', 'print'], { NOROSHI__SERVER__PUBLIC_URL: `https://u:${marked('public URL')}@h` }],
    [['config', 'print'], { NOROSHI__PROFILING__SERVER: `https://u:${marked('profiling URL')}@h` }],
    [['serve', '--data', join(folder, 'pg')], { NOROSHI__STORE__URL: `postgres://u:${marked('PostgreSQL password of serve')}@127.0.0.1:9/d`, NOROSHI__LOG__LEVEL: 'trace' }],
  ]
  const results = await Promise.all(runs.map(([args, env]) => within(args.join(' '), cli(args, { NOROSHI_DATA: join(folder, 'cli'), ...env }))))
  for (const { stdout, stderr } of results) put('command line', stdout + stderr)
})

test('no output contains a secret', async () => {
  const operator = { authorization: `Bearer ${operatorToken(node)}` }
  const admin = async (path) => fetch(`http://127.0.0.1:${node.adminPort}${path}`, { headers: operator })
  put('/metrics', await (await admin('/metrics')).text())
  for (const path of ['/debug/pprof/profile?seconds=1', '/debug/pprof/heap', '/v1/nodes', '/readyz', '/v1/apps', '/v1/apps/dev/push']) {
    const body = Buffer.from(await (await admin(path)).arrayBuffer())
    put(path, body[0] === 0x1f && body[1] === 0x8b ? gunzipSync(body) : body)
  }
  await until('traces and events', () => outputs.has('posted to /v1/traces') && outputs.has('posted to /webhook'))
  await node.drain()
  put('log', readFileSync(node.logPath))
  for (const file of readdirSync(join(folder, 'events'), { recursive: true })) {
    const path = join(folder, 'events', file)
    if (!statSync(path).isFile()) continue
    const bytes = readFileSync(path)
    put('event files', file.endsWith('.gz') ? gunzipSync(bytes) : bytes)
  }
  for (const where of ['log', 'event files', '/metrics', 'HTTP errors', 'command line', 'XMPP answers', 'close reasons']) {
    assert.ok(outputs.get(where)?.length > 0, `${where} is empty: the search would prove nothing`)
  }
  // An app's administrator sees the source of its keys.
  const shown = new Map([['/v1/apps', ['JWKS query']]])
  const found = []
  for (const [where, bytes] of outputs) {
    for (const [name, secret] of secrets) {
      if (shown.get(where)?.includes(name)) continue
      for (const [form, text] of forms(secret)) {
        const at = bytes.indexOf(text)
        if (at < 0) continue
        const line = bytes.toString('utf8', Math.max(0, at - 160), at + 20).split('\n').pop()
        found.push(`${name} (${form}) in ${where}: …${line}`)
        break
      }
    }
  }
  assert.deepEqual(found, [])
  // The data folder contains secrets of the node; other users must not read it.
  assert.equal(statSync(join(node.data, 'operator.token')).mode & 0o077, 0)
})
