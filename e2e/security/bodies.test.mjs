/**
 * Request bodies that do not arrive, and answers that the client does not read: each has a deadline, and a client
 * without a credential is rejected before the node waits for the body.
 */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { KEY, Node } from '../lib/node.mjs'
import { used } from '../lib/raw.mjs'
import { until, within } from '../lib/until.mjs'

const ENV = {
  NOROSHI__LIMITS__BODY_FIRST_BYTE_TIMEOUT: '1s',
  NOROSHI__LIMITS__BODY_TIMEOUT: '4s',
  NOROSHI__LIMITS__BODY_RATE_MIN: '1000',
  NOROSHI__LIMITS__SEND_TIMEOUT: '1s',
  NOROSHI__LIMITS__REQUESTS_IN_FLIGHT: '50',
}

let node
before(async () => (node = await Node.start({ env: ENV })))
after(() => node?.stop())

/** The bytes of a socket until the service closes it. */
function answer(socket) {
  let text = ''
  socket.on('data', (chunk) => (text += chunk))
  return within(
    'the connection to end',
    new Promise((resolve, reject) => {
      socket.once('error', (error) => reject(new Error(`${error.message} after ${JSON.stringify(text)}`)))
      socket.once('end', () => resolve(text))
    }),
  ).finally(() => socket.destroy())
}

function request(head, port = node.httpPort) {
  const socket = connect(port, '127.0.0.1')
  socket.write(head.join('\r\n') + '\r\n\r\n')
  return socket
}

const publish = (more) => ['POST /v1/notifications HTTP/1.1', 'Host: a', `Authorization: Bearer ${KEY}`, ...more]

test('POSTs to an unknown Socket.IO session are rejected at once and use no request slots', async () => {
  const sid = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAA'
  const post = `POST /socket.io/?EIO=4&transport=polling&sid=${sid} HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n`
  const answers = []
  for (let i = 0; i < 80; i++) {
    // A connection that the API has already served, reused like in a browser.
    const socket = await used(node.httpPort)
    socket.write(post)
    answers.push(answer(socket))
  }
  // None of the bodies ever arrives.
  const published = await node.api.raw('POST', '/v1/notifications', { body: { to: { users: ['u1'] }, when: 'active', data: 1 } })
  assert.equal(published.status, 202, published.text)
  for (const text of await Promise.all(answers)) assert.match(text, /^HTTP\/1\.1 400 [^]*"code":1/)
})

test('a body without a first byte is answered 408 and the connection closes', async () => {
  const text = await answer(request(publish(['Content-Type: application/json', 'Content-Length: 10'])))
  assert.match(text, /^HTTP\/1\.1 408 /)
  assert.match(text, /content-type: application\/problem\+json/i)
  assert.match(text, /connection: close/i)
  assert.equal(JSON.parse(text.split('\r\n\r\n')[1]).code, 'body_timeout')
})

test('body deadlines apply to the admin address too', async () => {
  const token = readFileSync(join(node.data, 'operator.token'), 'utf8').trim()
  const head = ['POST /v1/apps HTTP/1.1', 'Host: a', `Authorization: Bearer ${token}`, 'Content-Type: application/json', 'Content-Length: 10']
  // The default is 10 s.
  const text = await within('an answer in less than the default deadline', answer(request(head, node.adminPort)), 8_000)
  assert.match(text, /^HTTP\/1\.1 408 [^]*connection: close/i)
})

test('a trickling body is answered 408', async () => {
  const socket = request(publish(['Content-Type: application/json', 'Content-Length: 100000']))
  const trickle = setInterval(() => socket.write(' '), 100)
  const text = await answer(socket).finally(() => clearInterval(trickle))
  assert.match(text, /^HTTP\/1\.1 408 [^]*body_timeout/)
})

test('a body above the minimum rate is accepted', async () => {
  const body = JSON.stringify({ to: { users: ['u1'] }, when: 'active', data: 'x'.repeat(3_000) })
  const socket = request(publish(['Content-Type: application/json', 'Connection: close', `Content-Length: ${body.length}`]))
  let sent = 0
  const steps = setInterval(() => socket.write(body.slice(sent, (sent += 500))), 200)
  const text = await answer(socket).finally(() => clearInterval(steps))
  assert.match(text, /^HTTP\/1\.1 202 /)
})

test('the node does not wait for a body without a credential', async () => {
  for (const path of ['/v1/notifications', '/v1/devices', '/v1/me/opened', '/push/nothing', '/v1/apps/dev/keys']) {
    const socket = request([`POST ${path} HTTP/1.1`, 'Host: a', 'Content-Type: application/json', 'Content-Length: 1000000'])
    const text = await answer(socket)
    assert.match(text, /^HTTP\/1\.1 (401|404|410) /, `${path}: ${text}`)
  }
})

test('a client that reads no answers is closed', async () => {
  // There are no other connections, so the gauge is exact.
  const own = await Node.start({ env: ENV })
  const open = async () => Number(/^noroshi_api_connections\{listener="public"\} (\d+)$/m.exec(await (await own.admin('/metrics')).text())?.[1])
  const socket = connect(own.httpPort, '127.0.0.1').pause()
  try {
    socket.on('error', () => {})
    // 100 MB of answers: more than any socket buffers.
    socket.write('GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(1_000))
    await until('the connection to be served', async () => (await open()) === 1)
    await until('the connection to be closed', async () => (await open()) === 0)
  } finally {
    socket.destroy()
    await own.stop()
  }
})

test('a POST of an open Socket.IO session whose body does not arrive times out', async () => {
  const opened = await fetch(`${node.http}/socket.io/?EIO=4&transport=polling`)
  const sid = JSON.parse((await opened.text()).slice(1)).sid
  const text = await answer(
    request([`POST /socket.io/?EIO=4&transport=polling&sid=${sid} HTTP/1.1`, 'Host: a', 'Content-Length: 1000']),
  )
  assert.match(text, /^HTTP\/1\.1 (408|400) /)
})
