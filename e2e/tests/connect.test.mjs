/** Log-ins, and the places of a token. */

import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { hs256, keyPair, now } from '../lib/jwt.mjs'
import { JWT_SECRET, Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

test('a device registers, connects to the returned address, and receives messages to its user', async () => {
  const registered = await node.api.register({ user: 'first', platform: 'android', locale: 'ja-JP' })
  assert.match(registered.device, /./)
  assert.match(registered.connect.websocket, /^ws:\/\/.*\/v1\/connect/)
  const device = await Device.connect(registered.connect.websocket, registered.token, { path: '' })
  assert.equal(device.socket.protocol, 'noroshi.v1')
  assert.equal(device.ready.device, registered.device)
  assert.match(device.ready.session, /./)
  assert.equal(device.ready.ping_s, 240)

  const notification = { title: 'Good news', body: '狼煙', image: 'https://example.com/i.png', url: 'https://example.com' }
  const data = { nested: [1, { two: null }], text: 'a\nb\u2028"c"' }
  const sent = await node.api.publish({ to: { users: ['first'] }, notification, data })
  assert.match(sent.id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  assert.equal(sent.targets, 1)

  const msg = await device.msg()
  assert.equal(msg.id, sent.id)
  assert.deepEqual(msg.notification, notification)
  assert.deepEqual(msg.data, data)
  assert.equal(msg.ack, true, 'stored messages request an acknowledgement')
  assert.ok(Math.abs(Date.parse(msg.sent_at) - Date.now()) < 60_000, msg.sent_at)
  assert.ok(!('topic' in msg) && !('offset' in msg), 'only topic messages have a position')
  await device.leave()
})

for (const via of ['header', 'query', 'frame']) {
  test(`the token may be in the ${via}`, async () => {
    const { device: id, token } = await node.api.register({ user: `via-${via}` })
    const device = await Device.connect(node.ws, token, { via })
    assert.equal(device.ready.device, id)
    await node.api.publish({ to: { devices: [id] }, when: 'connected', data: via })
    assert.equal((await device.msg()).data, via)
    await device.leave()
  })
}

test('a device with its own id keeps it when it registers again', async () => {
  const first = await node.api.register({ device: 'chosen-1', user: 'chooser' })
  const again = await node.api.register({ device: 'chosen-1', user: 'chooser' })
  assert.deepEqual([first.device, again.device], ['chosen-1', 'chosen-1'])
})

for (const [what, token] of [
  ['nonsense', 'nonsense'],
  ['a forged device token', 'nd1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'],
  ['an API key', 'e2e-key-with-all-scopes'],
  ['a JWT of another secret', hs256('another secret of more than 32 bytes!!', { sub: 'x', device: 'x', exp: now() + 60 })],
  ['an expired JWT', hs256(JWT_SECRET, { sub: 'x', device: 'x', exp: now() - 60 })],
  ['an unsigned JWT', `${hs256(JWT_SECRET, { sub: 'x', device: 'x', exp: now() + 60 }, { alg: 'none' }).replace(/[^.]+$/, '')}`],
]) {
  test(`${what} opens no connection, by header or by frame`, async () => {
    const byHeader = Device.open(node.ws, token)
    await byHeader.closed
    // Rejected before the upgrade, or closed with a reason after it; never ready.
    if (byHeader.queue.length > 0) {
      assert.equal(byHeader.queue[0].t, 'close')
      assert.ok([4002, 4004].includes(byHeader.close.code), JSON.stringify(byHeader.close))
    }
    else assert.match(byHeader.error?.message ?? '', /401/)

    const byFrame = Device.open(node.ws, token, { via: 'frame' })
    const ended = await byFrame.ended()
    assert.equal(ended.reconnect, false)
    assert.match(ended.reason, /^(unauthorized|expired)$/)
    assert.equal(ended.code, ended.reason === 'expired' ? 4002 : 4004)

    const answer = await node.api.raw('GET', '/v1/me', { token })
    assert.equal(answer.status, 401)
    assert.equal(answer.type, 'application/problem+json')
    assert.equal(typeof answer.body.code, 'string')
  })
}

test('a client without a token in the first frame is closed within some seconds', async () => {
  const silent = Device.open(node.ws, '', { via: 'none' })
  const started = Date.now()
  const ended = await silent.ended()
  assert.deepEqual([ended.reason, ended.code], ['auth_timeout', 4005])
  assert.ok(Date.now() - started > 5_000, 'the limit is ten seconds')
})

test("the app's JWT creates the device on first use", async () => {
  const token = hs256(JWT_SECRET, { sub: 'jwt-user', device: 'jwt-device', topics: ['jwt-news'], exp: now() + 3600 })
  const device = await Device.connect(node.ws, token, { via: 'query' })
  assert.equal(device.ready.device, 'jwt-device')
  await node.api.publish({ to: { users: ['jwt-user'] }, data: 'by user' })
  assert.equal((await device.msg()).data, 'by user')
  await node.api.publish({ to: { topic: 'jwt-news' }, data: 'by topic' })
  assert.equal((await device.msg()).data, 'by topic')
  const me = await node.api.me(token).show()
  assert.deepEqual([me.device, me.user], ['jwt-device', 'jwt-user'])
  await device.leave()
})

test("the app's JWT also creates a device that only uses HTTP", async () => {
  const token = hs256(JWT_SECRET, { sub: 'http-only', device: 'http-only-1', exp: now() + 3600 })
  await node.api.me(token).subscribe('http-only-news')
  await node.api.publish({ to: { users: ['http-only'] }, data: 'kept' })
  assert.deepEqual((await node.api.me(token).inbox()).messages.map((msg) => msg.data), ['kept'])
  assert.deepEqual((await node.api.me(token).show()).topics, ['http-only-news'])
})

test("an app's JWT registers a device", async () => {
  const token = hs256(JWT_SECRET, { sub: 'self', device: 'self-1', exp: now() + 3600 })
  const answer = await node.api.raw('POST', '/v1/devices', { token, body: { platform: 'ios', app_version: '1.2.3' } })
  assert.equal(answer.status, 201, answer.text)
  assert.equal(answer.body.device, 'self-1')
  assert.equal((await node.api.me(answer.body.token).show()).user, 'self')
})

test('RS256 and ES256 tokens are verified with the JWK set of the app', async () => {
  const [rsa, ec, stranger] = [keyPair('RS256', 'rsa-1'), keyPair('ES256', 'ec-1'), keyPair('ES256', 'ec-1')]
  const server = createServer((request, response) => {
    response.setHeader('content-type', 'application/json')
    response.end(JSON.stringify({ keys: [rsa.jwk, ec.jwk] }))
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  try {
    const url = `http://127.0.0.1:${server.address().port}/jwks.json`
    const { code, stdout, stderr } = await node.cli('apps', 'update', 'dev', '--jwks-url', url)
    assert.equal(code, 0, stdout + stderr)
    for (const [name, pair] of [['rsa', rsa], ['ec', ec]]) {
      const token = pair.sign({ sub: `${name}-user`, device: `${name}-device`, exp: now() + 3600 })
      await until(`the JWK set to be fetched (${name})`, async () => (await node.api.raw('GET', '/v1/me', { token })).status !== 401)
      const device = await Device.connect(node.ws, token)
      assert.equal(device.ready.device, `${name}-device`)
      await device.leave()
    }
    const forged = stranger.sign({ sub: 'ec-user', device: 'ec-device', exp: now() + 3600 })
    assert.equal((await node.api.raw('GET', '/v1/me', { token: forged })).status, 401)
  } finally {
    server.close()
    server.closeAllConnections()
  }
})
