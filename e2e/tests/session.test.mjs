/** One device, one session: takeover, expiry, renewal, revocation, timeouts. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { hs256, now } from '../lib/jwt.mjs'
import { JWT_SECRET, Node } from '../lib/node.mjs'
import { RawSocket } from '../lib/raw.mjs'
import { sleep, until } from '../lib/until.mjs'

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

const jwt = (device, exp) => hs256(JWT_SECRET, { sub: `user-of-${device}`, device, exp })

test('a newer connection of the same device replaces the older one', async () => {
  const { device: id, token } = await node.api.register({ user: 'mover' })
  const first = await Device.connect(node.ws, token)
  const second = await Device.connect(node.ws, token)
  assert.deepEqual(await first.ended(), { t: 'close', reason: 'replaced', reconnect: false, after_ms: 0, code: 4001 })
  assert.notEqual(first.ready.session, second.ready.session)
  await node.api.publish({ to: { devices: [id] }, when: 'connected', data: 'here' })
  assert.equal((await second.msg()).data, 'here')
  assert.deepEqual((await node.api.presence('mover')).mover.presence, 'active')
  await second.leave()
})

test('the end of an old connection does not remove the new one', async () => {
  const { device: id, token } = await node.api.register({ user: 'racer' })
  let current = await Device.connect(node.ws, token)
  for (let i = 0; i < 20; i++) {
    const next = Device.connect(node.ws, token)
    await current.vanish()
    current = await next
    await node.api.publish({ to: { devices: [id] }, when: 'connected', data: i })
    assert.equal((await current.msg()).data, i)
  }
  await current.leave()
})

test('a session ends when its token expires', async () => {
  const exp = now() + 2
  const device = await Device.connect(node.ws, jwt('short-lived', exp))
  const ended = await device.ended()
  assert.deepEqual([ended.reason, ended.reconnect, ended.code], ['expired', false, 4002])
  assert.ok(Date.now() >= exp * 1_000, 'not before its time')
  assert.ok(Date.now() < (exp + 15) * 1_000, 'and soon after it')
  const again = Device.open(node.ws, jwt('short-lived', exp), { via: 'frame' })
  assert.equal((await again.ended()).reason, 'expired')
})

test('a token sent on the open connection renews the session', async () => {
  const exp = now() + 3
  const device = await Device.connect(node.ws, jwt('renewed', exp))
  device.send({ t: 'token', token: jwt('renewed', now() + 3_600) })
  await device.settle()
  await sleep(exp * 1_000 + 6_000 - Date.now())
  await node.api.publish({ to: { devices: ['renewed'] }, when: 'connected', data: 'still here' })
  assert.equal((await device.msg()).data, 'still here')
  await device.leave()
})

test("another user's token of the same device does not renew a session", async () => {
  const device = await Device.connect(node.ws, jwt('shared', now() + 3_600))
  device.send({ t: 'token', token: hs256(JWT_SECRET, { sub: 'another', device: 'shared', exp: now() + 3_600 }) })
  const answer = await device.next()
  assert.deepEqual([answer.t, answer.code], ['error', 'unauthorized'])
  await device.leave()
})

test("another device's token does not renew a session", async () => {
  const device = await Device.connect(node.ws, jwt('honest', now() + 3_600))
  device.send({ t: 'token', token: jwt('someone-else', now() + 3_600) })
  const answer = await device.next()
  assert.ok(['error', 'close'].includes(answer.t), JSON.stringify(answer))
  device.socket.terminate()
})

test('DELETE /v1/me ends the connection and revokes the tokens', async () => {
  const { device: id, token } = await node.api.register({ user: 'leaver' })
  const device = await Device.connect(node.ws, token)
  await node.api.publish({ to: { users: ['leaver'] }, data: 'waiting' })
  await device.msg()
  await node.api.me(token).remove()
  const ended = await device.ended()
  assert.deepEqual([ended.reason, ended.reconnect, ended.code], ['revoked', false, 4003])

  assert.equal((await node.api.raw('GET', '/v1/me', { token })).status, 401)
  const again = Device.open(node.ws, token, { via: 'frame' })
  assert.ok(['revoked', 'unauthorized'].includes((await again.ended()).reason))

  const reborn = await node.api.register({ device: id, user: 'leaver' })
  assert.equal((await node.api.raw('GET', '/v1/me', { token })).status, 401, 'also after the id is used again')
  const fresh = await Device.connect(node.ws, reborn.token)
  await node.api.publish({ to: { devices: [id] }, when: 'connected', data: 'marker' })
  assert.equal((await fresh.msg()).data, 'marker', 'the inbox of the deleted device is gone')
  await fresh.leave()
})

test('GET and PATCH /v1/me show and change the attributes of the device', async () => {
  const { device: id, token } = await node.api.register({
    user: 'self',
    platform: 'web',
    locale: 'ja-JP',
    timezone: 'Asia/Tokyo',
    app_version: '1.2.3',
    tags: { plan: 'free', ring: 'beta' },
    topics: ['news'],
  })
  await node.api.me(token).change({ locale: 'en-GB', tags: { plan: 'paid', ring: null } })
  const me = await node.api.me(token).show()
  assert.equal(me.device, id)
  assert.deepEqual(
    [me.user, me.platform, me.locale, me.timezone, me.app_version, me.tags, me.topics],
    ['self', 'web', 'en-GB', 'Asia/Tokyo', '1.2.3', { plan: 'paid' }, ['news']],
  )
  const refused = await node.api.raw('PATCH', '/v1/me', { token, body: { colour: 'red' } })
  assert.equal(refused.status, 400)
  assert.match(refused.text, /colour/)
})

test('a client that does not answer pings is closed, one that does is kept', async () => {
  const own = await Node.start({ env: { NOROSHI__GATEWAY__PING_INTERVAL: '1s', NOROSHI__GATEWAY__PING_TIMEOUT: '1s' } })
  const [living, dead] = [await own.api.register({ user: 'living' }), await own.api.register({ user: 'dead' })]
  const device = await Device.connect(own.ws, living.token)
  assert.equal(device.ready.ping_s, 1)
  // A bare socket that never answers.
  const silent = await RawSocket.upgrade(own.httpPort, `/v1/connect?token=${dead.token}`)
  const { texts, code } = await silent.close()
  assert.deepEqual([texts.at(-1).reason, code], ['ping_timeout', 4006])
  await until('the silent device to be offline', async () => (await own.api.presence('dead')).dead.presence === 'offline')
  await own.api.publish({ to: { devices: [living.device] }, when: 'connected', data: 'kept' })
  assert.equal((await device.msg()).data, 'kept')
  await device.leave()
  silent.socket.destroy()
  await own.stop()
})
