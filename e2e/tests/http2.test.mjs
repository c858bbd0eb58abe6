/** HTTP/2 on both addresses, with Node's client and `curl`: providers, event streams, long polling, and misbehaving clients. */

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { constants } from 'node:http2'
import { connect as connectTcp } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { connect as connectTls } from 'node:tls'
import { promisify } from 'node:util'
import { EventSource } from 'eventsource'

import { issue } from '../lib/certificate.mjs'
import { Device } from '../lib/device.mjs'
import { Client, answered } from '../lib/http2.mjs'
import { KEY, Node } from '../lib/node.mjs'
import { until, within } from '../lib/until.mjs'

const { NGHTTP2_CANCEL, NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_HTTP_1_1_REQUIRED, NGHTTP2_NO_ERROR } = constants
const run = promisify(execFile)

const STREAMS_MAX = 128
let node
before(async () => (node = await Node.start({ env: { NOROSHI__LIMITS__BODY_FIRST_BYTE_TIMEOUT: '1s' } })))
after(() => node?.stop())

/** A connection that ends with its test. */
function client(t, base = node.http, options) {
  const client = new Client(base, options)
  t.after(() => client.close())
  return client
}

const publish = (client, to, data, more = {}) => client.call('POST', '/v1/notifications', { token: KEY, body: { to, data }, ...more })

async function metric(name, labels = '') {
  const text = await (await node.admin('/metrics')).text()
  const line = text.split('\n').find((line) => line.startsWith(`${name}${labels} `))
  return Number(line?.slice(line.lastIndexOf(' ') + 1))
}

test('a provider publishes with prior knowledge, and the device receives it', async (t) => {
  const { token } = await node.api.register({ user: 'h2' })
  const device = await Device.connect(node.ws, token)
  const provider = client(t)
  const settings = await provider.ready()
  assert.equal(settings.maxConcurrentStreams, STREAMS_MAX)
  assert.ok(!settings.enableConnectProtocol, 'WebSockets use HTTP/1.1')
  const accepted = await publish(provider, { users: ['h2'] }, 'over h2')
  assert.equal(accepted.status, 202, accepted.text)
  assert.ok(accepted.headers.date && accepted.headers['x-request-id'])
  assert.equal((await device.msg()).data, 'over h2')
  assert.equal((await provider.call('GET', `/v1/notifications/${accepted.body.id}`, { token: KEY })).status, 200)
  device.socket.close()
})

test('a hundred parallel requests on one connection', async (t) => {
  const { token } = await node.api.register({ user: 'h2-many' })
  const device = await Device.connect(node.ws, token)
  const provider = client(t)
  await provider.ready()
  const answers = await Promise.all(Array.from({ length: 100 }, (_, n) => publish(provider, { users: ['h2-many'] }, n)))
  assert.deepEqual(new Set(answers.map(({ status }) => status)), new Set([202]))
  const received = new Set()
  while (received.size < 100) received.add((await device.msg()).data)
  device.socket.close()
})

test('an event stream and publishing share a connection, and the stream resumes at its position', async (t) => {
  const { token } = await node.api.register({ user: 'h2-sse' })
  const both = client(t)
  const heads = []
  const fetch = (url, init) => {
    heads.push(init.headers)
    return both.fetch(url, init)
  }
  const source = new EventSource(`${node.http}/v1/events?topics=h2-topic&token=${token}`, { fetch })
  t.after(() => source.close())
  const received = []
  source.addEventListener('msg', (event) => received.push({ id: event.lastEventId, ...JSON.parse(event.data) }))
  await until('the stream to be open', () => source.readyState === EventSource.OPEN)
  assert.equal((await publish(both, { users: ['h2-sse'] }, 'direct')).status, 202)
  assert.equal((await publish(both, { topic: 'h2-topic' }, 'topic')).status, 202)
  await until('both', () => received.length === 2)
  source.close()
  await until('the device to be offline', async () => (await node.api.presence('h2-sse'))['h2-sse'].presence === 'offline')

  await publish(both, { users: ['h2-sse'] }, 'meanwhile')
  const stream = both.open('GET', `/v1/events?topics=h2-topic`, { authorization: `Bearer ${token}`, 'last-event-id': received[1].id }, { endStream: true })
  let text = ''
  stream.setEncoding('utf8')
  stream.on('data', (chunk) => (text += chunk))
  const [head] = await within('the head', new Promise((resolve) => stream.once('response', (...all) => resolve(all))))
  assert.deepEqual([head[':status'], head['content-type'], head.connection], [200, 'text/event-stream', undefined])
  await until('the message sent meanwhile', () => text.includes('"meanwhile"'))
  assert.ok(!text.includes('"topic"') && !text.includes('"direct"'), text)
  await publish(both, { users: ['h2-sse'] }, 'live')
  await until('the new message', () => text.includes('"live"'))
  stream.close(NGHTTP2_CANCEL)
})

test('many event streams on one connection, each with its own messages', async (t) => {
  const both = client(t)
  await both.ready()
  const tokens = await Promise.all(Array.from({ length: 40 }, (_, n) => node.api.register({ user: `h2-of-many-${n}` })))
  const texts = tokens.map(({ token }) => {
    const stream = both.open('GET', '/v1/events', { authorization: `Bearer ${token}` }, { endStream: true })
    const received = { text: '' }
    stream.setEncoding('utf8')
    stream.on('data', (chunk) => (received.text += chunk))
    return received
  })
  await until('all to be open', () => texts.every(({ text }) => text.includes('retry:')))
  await Promise.all(tokens.map((_, n) => publish(both, { users: [`h2-of-many-${n}`] }, `for ${n}.`)))
  await until('all to receive', () => texts.every(({ text }, n) => text.includes(`"for ${n}."`)))
  assert.ok(texts.every(({ text }, n) => text.match(/"for \d+\."/g).length === 1 && text.includes(`"for ${n}."`)))
})

test('Socket.IO polls over HTTP/2, and upgrades to a WebSocket over HTTP/1.1', async (t) => {
  const { token } = await node.api.register({ user: 'h2-io' })
  const poller = client(t)
  const path = '/socket.io/?EIO=4&transport=polling'
  const opened = await poller.call('GET', path)
  assert.equal(opened.status, 200, opened.text)
  const { sid } = JSON.parse(opened.text.slice(1))
  const text = { 'content-type': 'text/plain;charset=UTF-8' }
  const said = await poller.call('POST', `${path}&sid=${sid}`, { body: `40${JSON.stringify({ token })}`, headers: text })
  assert.deepEqual([said.status, said.text], [200, 'ok'])
  const connected = await poller.call('GET', `${path}&sid=${sid}`)
  assert.match(connected.text, /^40\{/)
  const waits = poller.call('GET', `${path}&sid=${sid}`)
  let received = ''
  await publish(poller, { users: ['h2-io'] }, 'polled')
  received += (await waits).text
  while (!received.includes('polled')) received += (await poller.call('GET', `${path}&sid=${sid}`)).text
  // A body without a length, which HTTP/2 allows.
  const untold = poller.open('POST', `${path}&sid=${sid}`, { 'content-type': 'text/plain;charset=UTF-8' })
  untold.write('4')
  untold.end('1')
  assert.equal((await answered(untold)).text, 'ok')
  const refused = poller.call('GET', '/socket.io/?EIO=4&transport=websocket')
  await assert.rejects(refused, (error) => error.rstCode === NGHTTP2_HTTP_1_1_REQUIRED || /HTTP_1_1_REQUIRED/.test(error.message))
})

test('a WebSocket stream is reset, so that clients use HTTP/1.1 for it', async (t) => {
  const { token } = await node.api.register()
  const browser = client(t)
  for (const path of [`/v1/connect?token=${token}`, '/mqtt', '/xmpp']) {
    await assert.rejects(browser.call('GET', path), /HTTP_1_1_REQUIRED/, path)
  }
  assert.equal((await browser.call('GET', '/openapi.json')).status, 200, 'the connection continues')
})

test('requests without a credential are rejected individually', async (t) => {
  const stranger = client(t)
  const without = await Promise.all([
    publish(stranger, { topic: 'x' }, 1, { token: undefined }),
    stranger.call('GET', '/v1/topics'),
    stranger.call('GET', '/v1/topics', { token: 'wrong' }),
    stranger.call('GET', '/v1/events'),
    stranger.call('GET', '/v1/events', { token: 'wrong' }),
    stranger.call('GET', '/v1/apps', { token: KEY }),
    stranger.call('GET', '/nothing'),
    stranger.call('OPTIONS', '/socket.io/?EIO=4&transport=polling'),
  ])
  assert.deepEqual(without.map(({ status }) => status), [401, 401, 401, 401, 401, 404, 404, 204])
  assert.equal(without[3].headers['www-authenticate'], 'Bearer realm="noroshi"')
  const { token } = await node.api.register({ user: 'h2-other' })
  const { device } = await node.api.register({ user: 'h2-other' })
  assert.equal((await stranger.call('GET', `/v1/devices/${device}`, { token })).status, 401, 'a device cannot act as a provider')
  assert.equal((await stranger.call('GET', '/v1/me', { token })).status, 200)
  await node.api.call('POST', '/v1/users/h2-other/revoke')
  assert.equal((await stranger.call('GET', '/v1/me', { token })).status, 401)
  assert.equal((await stranger.call('GET', '/v1/events', { token })).status, 401)
  assert.equal((await stranger.call('GET', '/v1/topics', { token: KEY })).status, 200)
})

test('a revoked device loses its stream, and the connection stays', async (t) => {
  const { device, token } = await node.api.register({ user: 'h2-revoked' })
  const both = client(t)
  const stream = both.open('GET', '/v1/events', { authorization: `Bearer ${token}` }, { endStream: true })
  let text = ''
  stream.setEncoding('utf8')
  stream.on('data', (chunk) => (text += chunk))
  await until('the stream', () => text.includes('retry:'))
  const ended = new Promise((resolve) => stream.once('end', resolve))
  await node.api.call('POST', `/v1/devices/${device}/revoke`)
  await within('the end of the stream', ended)
  assert.match(text, /"revoked"/)
  assert.equal((await both.call('GET', '/v1/topics', { token: KEY })).status, 200)
})

test('a body that is too large or too slow is rejected, and other streams continue', async (t) => {
  const provider = client(t)
  const head = { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' }
  const large = provider.open('POST', '/v1/notifications', { ...head, 'content-length': 64 << 20 })
  large.on('error', () => {})
  assert.equal((await answered(large)).status, 413)
  const untold = provider.open('POST', '/v1/notifications', head)
  untold.on('error', () => {})
  untold.end('x'.repeat(17 << 20))
  assert.equal((await answered(untold)).status, 413)
  const slow = provider.open('POST', '/v1/notifications', { ...head, 'content-length': 100 })
  slow.on('error', () => {})
  slow.write('{')
  const late = answered(slow)
  assert.equal((await publish(provider, { topic: 'h2-beside' }, 1)).status, 202)
  assert.equal((await late).status, 408)
  const slowPoll = provider.open('POST', '/socket.io/?EIO=4&transport=polling&sid=x', { 'content-length': 100 })
  slowPoll.on('error', () => {})
  assert.equal((await answered(slowPoll)).status, 400)
  assert.equal((await publish(provider, { topic: 'h2-beside' }, 2)).status, 202)
})

test('a head that is too large is rejected', async (t) => {
  const provider = client(t)
  const long = await provider.call('GET', '/v1/topics', { headers: { 'x-long': 'x'.repeat(17_000) } })
  assert.equal(long.status, 431)
  const many = Object.fromEntries(Array.from({ length: 70 }, (_, n) => [`x-${n}`, '1']))
  assert.equal((await provider.call('GET', '/v1/topics', { headers: many })).status, 431)
  assert.equal((await provider.call('GET', '/v1/topics', { token: KEY })).status, 200)
})

test('a client that floods resets gets ENHANCE_YOUR_CALM, and others are not affected', async (t) => {
  const [attacker, other] = [client(t), client(t)]
  const floods = await metric('noroshi_api_http2_connections_closed_total', '{listener="public",reason="flood"}')
  await Promise.all([attacker.ready(), other.ready()])
  let answers = 0
  const calls = async () => {
    while (!attacker.session.destroyed) {
      assert.equal((await publish(other, { topic: 'h2-calm' }, 1)).status, 202)
      answers++
    }
  }
  const asking = calls()
  for (let n = 0; n < 20_000 && !attacker.session.destroyed && !attacker.session.closed; n++) {
    const stream = attacker.open('GET', '/openapi.json', {}, { endStream: true })
    stream.on('error', () => {})
    stream.close(NGHTTP2_CANCEL)
    if (n % 50 === 0) await new Promise((resolve) => setImmediate(resolve))
  }
  await within('the connection to be closed', attacker.closed)
  assert.deepEqual(attacker.goaways, [NGHTTP2_ENHANCE_YOUR_CALM])
  await asking
  assert.ok(answers > 0)
  await until('the closed connection to be counted', async () => {
    const closed = await metric('noroshi_api_http2_connections_closed_total', '{listener="public",reason="flood"}')
    return closed === floods + 1
  })
})

test('unread answers end their streams after the timeout, and the connection continues', async (t) => {
  const own = await Node.start({ env: { NOROSHI__LIMITS__SEND_TIMEOUT: '1s' } })
  t.after(() => own.stop())
  const streams = async () => /noroshi_api_http2_streams\{listener="public"\} (\d+)/.exec(await (await own.admin('/metrics')).text())[1]
  const slow = client(t, own.http, { settings: { initialWindowSize: 0 } })
  const ends = Array.from({ length: 20 }, () => {
    const stream = slow.open('GET', '/openapi.json', {}, { endStream: true })
    stream.on('error', () => {})
    return within('the end of a stream', new Promise((resolve) => stream.once('close', () => resolve(stream.rstCode))))
  })
  const preflight = { origin: 'https://app.example.com', 'access-control-request-method': 'PUT' }
  assert.equal((await slow.call('OPTIONS', '/v1/me', { headers: preflight })).status, 204, 'which has no body')
  assert.deepEqual(new Set(await Promise.all(ends)), new Set([NGHTTP2_CANCEL]))
  assert.equal((await slow.call('OPTIONS', '/v1/me', { headers: preflight })).status, 204)
  await until('the streams to end', async () => (await streams()) === '0')
})

test('the number of open streams is limited', async (t) => {
  const own = await Node.start({ env: { NOROSHI__LIMITS__HTTP2_STREAMS: '2' } })
  t.after(() => own.stop())
  const both = client(t, own.http)
  assert.equal((await both.ready()).maxConcurrentStreams, 2)
  const [one, two] = [await own.api.register(), await own.api.register()]
  const open = ({ token }) => {
    const stream = both.open('GET', '/v1/events', { authorization: `Bearer ${token}` }, { endStream: true })
    return within('a head', new Promise((resolve) => stream.once('response', () => resolve(stream))))
  }
  const streams = [await open(one), await open(two)]
  let answered = false
  const third = both.call('GET', '/v1/topics', { token: KEY }).then((answer) => (answered = answer))
  assert.equal((await own.api.raw('GET', '/v1/topics')).status, 200)
  assert.equal(answered, false, 'it waits at the client')
  streams[0].close(NGHTTP2_CANCEL)
  assert.equal((await third).status, 200)
})

test('a drain sends GOAWAY and answers requests in progress', async (t) => {
  const own = await Node.start()
  const { token } = await own.api.register({ user: 'h2-drain' })
  const both = client(t, own.http)
  const stream = both.open('GET', '/v1/events', { authorization: `Bearer ${token}` }, { endStream: true })
  let text = ''
  stream.setEncoding('utf8')
  stream.on('data', (chunk) => (text += chunk))
  await until('the stream', () => text.includes('retry:'))
  const idle = client(t, own.http)
  await idle.ready()
  const body = both.open('POST', '/v1/notifications', { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' })
  const accepted = answered(body)
  body.write('{"to": {"users": ["h2-drain"]},')
  // The node has its head once a later request is answered.
  assert.equal((await both.call('GET', '/v1/topics', { token: KEY })).status, 200)
  own.terminate()
  await until('the close event of the stream', () => /event: close[^]*"drain"/.test(text))
  await until('GOAWAY', () => both.goaways.length > 0 && idle.goaways.length > 0)
  assert.deepEqual(new Set([...both.goaways, ...idle.goaways]), new Set([NGHTTP2_NO_ERROR]))
  body.end('"data": 1}')
  assert.equal((await accepted).status, 202)
  await within('both to be closed', Promise.all([both.closed, idle.closed]))
  await own.stop()
})

test("an event stream survives an operator's drain: its client is refused on new connections and keeps retrying", async (t) => {
  const own = await Node.start()
  t.after(() => own.stop())
  const { token } = await own.api.register({ user: 'h2-moved' })
  const connections = []
  // Like a browser, which opens another connection after GOAWAY.
  const fetch = (url, init) => {
    const last = connections.at(-1)
    if (!last || last.session.closed || last.session.destroyed) connections.push(client(t, own.http))
    return connections.at(-1).fetch(url, init)
  }
  const source = new EventSource(`${own.http}/v1/events?token=${token}`, { fetch })
  t.after(() => source.close())
  const received = []
  source.addEventListener('msg', (event) => received.push(JSON.parse(event.data).data))
  await until('the stream to be open', () => source.readyState === EventSource.OPEN)
  const drained = await own.cli('drain', '--rate', '1000', '--spread', '1s', '--wait')
  assert.equal(drained.code, 0, drained.stderr)
  await until('two new connections', () => connections.length === 3)
  assert.ok(connections.slice(0, 2).every(({ goaways }) => goaways.length > 0 && goaways.every((code) => code === NGHTTP2_NO_ERROR)))
  assert.equal((await own.cli('drain', '--cancel')).code, 0)
  await until('the stream to be open again', () => source.readyState === EventSource.OPEN)
  await own.api.publish({ to: { users: ['h2-moved'] }, data: 'here again' })
  await until('the new message', () => received.includes('here again'))
})

test('the admin address supports both versions', async (t) => {
  const admin = client(t, `http://127.0.0.1:${node.adminPort}`)
  const answers = await Promise.all(['/livez', '/readyz', '/metrics', '/v1/apps'].map((path) => admin.call('GET', path)))
  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 200, 401])
  assert.match(answers[2].text, /noroshi_api_http2_connections\{listener="admin"\} 1/)
  assert.equal((await node.admin('/livez')).status, 200)
})

test('curl works with prior knowledge, and an Upgrade to h2c is ignored', async () => {
  const url = `${node.http}/openapi.json`
  const args = ['-s', '-o', '/dev/null', '-w', '%{http_version} %{http_code}']
  assert.equal((await run('curl', [...args, '--http2-prior-knowledge', url])).stdout, '2 200')
  assert.equal((await run('curl', [...args, '--http2', url])).stdout, '1.1 200')
  assert.equal((await run('curl', [...args, '--http1.1', url])).stdout, '1.1 200')
})

test('HTTP/2 can be turned off', async (t) => {
  const own = await Node.start({ env: { NOROSHI__SERVER__HTTP2: 'false' } })
  t.after(() => own.stop())
  for (const port of [own.httpPort, own.adminPort]) {
    const refused = client(t, `http://127.0.0.1:${port}`)
    await assert.rejects(refused.call('GET', '/v1/topics', { token: KEY }))
    await within('the end', refused.closed)
  }
  assert.equal((await own.api.raw('GET', '/v1/topics')).status, 200)
})

test('under TLS both addresses negotiate HTTP/2, or HTTP/1.1 with other clients', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-h2-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const [cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
  issue(cert, key, 'h2')
  const env = { NOROSHI__TLS__CERT: cert, NOROSHI__TLS__KEY: key }
  const own = await Node.start({ env })
  t.after(() => own.stop())
  const [base, ca] = [`https://127.0.0.1:${own.httpPort}`, readFileSync(cert)]
  const agreed = (ALPNProtocols) =>
    within(
      'a handshake',
      new Promise((resolve, reject) => {
        const socket = connectTls({ port: own.httpPort, host: '127.0.0.1', ca, ALPNProtocols }, () => {
          resolve(socket.alpnProtocol)
          socket.destroy()
        })
        socket.once('error', reject)
      }),
    )
  assert.deepEqual(await Promise.all([agreed(['http/1.1', 'h2']), agreed(['http/1.1']), agreed()]), ['h2', 'http/1.1', false])

  const both = client(t, base, { ca })
  const registered = await both.call('POST', '/v1/devices', { token: KEY, body: { user: 'h2-tls' } })
  assert.equal(registered.status, 201, registered.text)
  assert.match(registered.body.connect.websocket ?? JSON.stringify(registered.body.connect), /wss:/)
  const stream = both.open('GET', '/v1/events', { authorization: `Bearer ${registered.body.token}` }, { endStream: true })
  let text = ''
  stream.setEncoding('utf8')
  stream.on('data', (chunk) => (text += chunk))
  await until('the stream', () => text.includes('retry:'))
  const bodies = Array.from({ length: 100 }, (_, n) => publish(both, { users: ['h2-tls'] }, `m${n}.${'x'.repeat(3_000)}`))
  assert.ok((await Promise.all(bodies)).every(({ status }) => status === 202))
  await until('all of them', () => text.match(/"m\d+\./g)?.length === 100)
  const args = ['-s', '--cacert', cert, '-o', '/dev/null', '-w', '%{http_version} %{http_code}', `${base}/docs`]
  assert.equal((await run('curl', ['--http2', ...args])).stdout, '2 200')
  assert.equal((await run('curl', ['--http1.1', ...args])).stdout, '1.1 200')
})

test('a preface in pieces is recognised, and a similar request is not mistaken for it', async () => {
  const speak = (...pieces) =>
    within(
      'an answer',
      new Promise((resolve, reject) => {
        const socket = connectTcp(node.httpPort, '127.0.0.1')
        socket.setNoDelay(true)
        socket.once('error', reject)
        socket.once('data', (bytes) => {
          resolve(bytes)
          socket.destroy()
        })
        const next = () => {
          if (pieces.length === 0) return
          socket.write(pieces.shift(), () => setTimeout(next, 5))
        }
        socket.once('connect', next)
      }),
    )
  const settings = '\0\0\0\x04\0\0\0\0\0'
  const bytes = await speak(...'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'.split(''), Buffer.from(settings, 'latin1'))
  assert.equal(bytes[3], 4, 'SETTINGS')
  assert.match(String(await speak('PRI * HTTP/2.0\r\n\r\n', 'SX\r\n\r\n')), /^HTTP\/1\.1 400 /)
  assert.match(String(await speak('P', 'OST /v1/topics HTTP/1.1\r\nHost: h\r\n\r\n')), /^HTTP\/1\.1 40[15] /)
})
