/** Who may resume an XMPP session, and the effect of an attempt (XEP-0198 §5, over SASL2). */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Node, freePort } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'
import { Stream } from '../lib/xmpp.mjs'

let node, port
before(async () => {
  port = await freePort()
  node = await Node.start({ args: ['--xmpp', `127.0.0.1:${port}`] })
})
after(() => node?.stop())

const register = (device, user) => node.api.register({ device, user })
const revoke = (device) => node.api.call('POST', `/v1/devices/${device}/revoke`)
const isConnected = async (device) =>
  (await node.api.call('GET', `/v1/devices/${device}`)).presence !== 'offline'

async function suspended() {
  const text = await (await node.admin('/metrics')).text()
  return Number(/^noroshi_xmpp_sessions_suspended (\d+)$/m.exec(text)?.[1])
}

/** The only session with a broken connection. `subscribe` is a topic of this connection only. */
async function parked(device, token, subscribe) {
  await until('no session to be suspended', async () => (await suspended()) === 0)
  const stream = await Stream.open(port)
  const id = await stream.begin(device, token)
  if (subscribe) {
    await stream.ask(
      `<iq type='set' id='s' to='pubsub.localhost'><pubsub xmlns='http://jabber.org/protocol/pubsub'>` +
        `<subscribe node='${subscribe}' jid='${stream.jid}'/></pubsub></iq>`,
      "subscription='subscribed'",
    )
  }
  await stream.sync()
  stream.vanish()
  await until('the session to be suspended', async () => (await suspended()) === 1)
  return id
}

test('a revoked token does not end the session of its device', async () => {
  const { token: revoked } = await register('r1', 'u1')
  await revoke('r1')
  const { token } = await register('r1', 'u1')
  const live = await Stream.open(port)
  const id = await live.begin('r1', token)
  for (const previd of ['a-guess', id]) {
    const thief = await Stream.open(port)
    const answer = await thief.resume('r1', revoked, previd)
    assert.match(answer, /<failure/, previd)
    await live.sync()
  }
  await live.end()
})

test('a wrong id ends no session, the right one moves it', async () => {
  const { token } = await register('w1', 'u1')
  const live = await Stream.open(port)
  const id = await live.begin('w1', token)
  const mistaken = await Stream.open(port)
  assert.match(await mistaken.resume('w1', token, 'a-guess'), /<success.*<failed.*item-not-found/)
  await live.sync()
  const next = await Stream.open(port)
  assert.match(await next.resume('w1', token, id), /<success.*<resumed/)
  assert.match(await live.closed(), /<conflict/)
  await next.sync()
  await next.end()
})

test('a revoked token cannot resume a suspended session', async () => {
  const { token: revoked } = await register('p1', 'u1')
  await revoke('p1')
  const { token } = await register('p1', 'u1')
  const id = await parked('p1', token)
  const thief = await Stream.open(port)
  assert.match(await thief.resume('p1', revoked, id), /<failure/)
  const owner = await Stream.open(port)
  assert.match(await owner.resume('p1', token, id), /<resumed/, 'it is still there')
  await owner.end()
})

test('a session ends when the device gets another user', async () => {
  const { token: first } = await register('m1', 'alice')
  const id = await parked('m1', first, 'private')
  const { token } = await register('m1', 'bob')
  const stream = await Stream.open(port)
  const answer = await stream.resume('m1', token, id)
  assert.doesNotMatch(answer, /<resumed/)
  assert.match(answer, /item-not-found/)
  // So do its subscriptions.
  const next = await Stream.open(port)
  await next.begin('m1', token)
  await next.ask('<presence/>', '<presence')
  await node.api.publish({ to: { topic: 'private' }, when: 'connected', data: 'secret' })
  await node.api.publish({ to: { users: ['bob'] }, when: 'connected', data: 'fence' })
  assert.doesNotMatch(await next.until('fence'), /secret/)
  await next.end()
})

test('revoking and deleting a device drop its suspended session', async () => {
  for (const end of [revoke, (device) => node.api.call('DELETE', `/v1/devices/${device}`)]) {
    const { token } = await register('d1', 'u1')
    const id = await parked('d1', token)
    await end('d1')
    await until('the session to be dropped', async () => (await suspended()) === 0)
    const { token: next } = await register('d1', 'u1')
    const stream = await Stream.open(port)
    assert.match(await stream.resume('d1', next, id), /item-not-found/)
    assert.equal(await isConnected('d1'), false)
    await stream.end()
  }
})
