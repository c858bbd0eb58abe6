/** The client in Node.js against a real node: kill -9, drain, replaced, revoked, expired tokens, a stalled network. */

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { Node } from '../../../../../e2e/lib/node.mjs'
import { Proxy } from '../../../../../e2e/lib/proxy.mjs'
import { sleep, until } from '../../../../../e2e/lib/until.mjs'
import { WebSocket } from 'ws'

import { discard } from '../../../test/discard.mjs'
import { client, jwt } from './lib.mjs'

let node
before(async () => (node = await Node.start()))
after(() => discard(node))

const send = (one, data, when = 'stored') => node.api.publish({ to: { users: [one.user] }, data, when })
const inboxIsEmpty = (one) => until('every message to be acknowledged', async () => (await node.api.me(jwt(one.device)).inbox()).total === 0)
const numbers = (count, from = 0) => Array.from({ length: count }, (_, n) => from + n)

// They wait most of the time.
describe('a client', { concurrency: 4 }, () => {
  test('messages to the user and to a topic arrive, and are acknowledged', async () => {
    const one = client(node.http, 'live')
    const seen = []
    one.noroshi.topic('live/news').on('message', ({ data }) => seen.push(data))
    await one.connected()
    await send(one, 1)
    await one.shows(1)
    await until('the subscription', async () => (await node.api.call('GET', '/v1/topics/live%2Fnews').catch(() => ({}))).epoch || (await node.api.publish({ to: { topic: 'live/news' }, data: 'probe' }), false))
    await node.api.publish({ to: { topic: 'live/news' }, data: 'goal' })
    await until('the topic', () => seen.includes('goal'))
    await inboxIsEmpty(one)
    assert.deepEqual(one.errors, [])
    one.noroshi.close()
    assert.deepEqual(one.states.map(({ state }) => state), ['connecting', 'connected', 'closed'])
  })

  test('after kill -9 the inbox and a topic are recovered: nothing is lost, nothing is shown twice', async () => {
    const own = await Node.start()
    const one = client(own.http, 'killed')
    const topic = []
    one.noroshi.topic('log', { recover: true }).on('message', ({ data }) => topic.push(data))
    await one.connected()
    const publish = (n) => Promise.all([own.api.publish({ to: { users: [one.user] }, data: `inbox ${n}` }), own.api.publish({ to: { topic: 'log' }, data: `topic ${n}` })])
    for (let n = 0; n < 10; n++) await publish(n)
    await one.shows(20)
    await own.kill()
    await until('the loss to be noticed', () => one.noroshi.state.state === 'waiting')
    await own.spawn()
    for (let n = 10; n < 20; n++) await publish(n)
    await one.connected()
    await one.shows(40)
    await publish(20)
    await one.shows(42)
    assert.equal(one.shown.length, 42)
    assert.deepEqual(topic, numbers(21).map((n) => `topic ${n}`))
    assert.deepEqual(one.shown.filter((data) => data.startsWith('inbox')), numbers(21).map((n) => `inbox ${n}`))
    assert.deepEqual(one.recovered.map(({ topic, complete }) => [topic, complete]).at(-1), ['log', true])
    one.noroshi.close()
    await discard(own)
  })

  test('a drain moves the client, and no message is lost or repeated', async () => {
    const own = await Node.start()
    const one = client(own.http, 'drained')
    await one.connected()
    for (let n = 0; n < 20; n++) await own.api.publish({ to: { users: [one.user] }, data: n })
    await one.shows(1)
    await own.drain()
    await own.spawn()
    for (let n = 20; n < 40; n++) await own.api.publish({ to: { users: [one.user] }, data: n })
    await one.shows(40)
    await own.api.publish({ to: { users: [one.user] }, data: 'end' })
    await one.shows(41)
    assert.deepEqual(one.shown, [...numbers(40), 'end'])
    assert.ok(one.states.some(({ reason }) => reason === 'drain'), JSON.stringify(one.states))
    one.noroshi.close()
    await discard(own)
  })

  test('a newer connection of the device replaces the client, which stays closed', async () => {
    const one = client(node.http, 'replaced')
    await one.connected()
    const two = client(node.http, 'replaced')
    await two.connected()
    await until('the first one to be closed', () => one.noroshi.state.state === 'closed')
    assert.equal(one.noroshi.state.reason, 'replaced')
    await send(two, 'here')
    await two.shows(1)
    assert.deepEqual(one.shown, [])
    two.noroshi.close()
  })

  test('a revoked device asks for another token and continues', async () => {
    const one = client(node.http, 'revoked')
    await one.connected()
    await sleep(1_100) // a JWT of the second of the revocation stays rejected
    await node.api.call('POST', '/v1/devices/revoked/revoke')
    await until('another token', () => one.asked.includes('rejected'))
    await one.connected()
    await send(one, 'again')
    await one.shows(1)
    assert.ok(one.states.some(({ reason }) => reason === 'revoked' || reason === 'unauthorized'))
    one.noroshi.close()
  })

  test('a token is renewed on the open connection before it expires', async () => {
    const one = client(node.http, 'renewed', { lifetime: 4 })
    await one.connected()
    await until('two renewals', () => one.asked.filter((reason) => reason === 'expiring').length >= 2)
    await send(one, 'same session')
    await one.shows(1)
    assert.deepEqual(one.states.map(({ state }) => state), ['connecting', 'connected'])
    assert.deepEqual(one.errors, [])
    one.noroshi.close()
  })

  test('a token that expires without a renewal is replaced', async () => {
    let asked = 0
    const one = client(node.http, 'expired', { getToken: ({ reason }) => (asked++, reason === 'expiring' ? Promise.reject(new Error('away')) : jwt('expired', asked === 1 ? 2 : 600)) })
    await one.connected()
    await until('the expiry', () => one.states.some(({ reason }) => reason === 'expired'))
    await one.connected()
    await send(one, 'with the new token')
    await one.shows(1)
    assert.ok(one.errors.every(({ code }) => code === 'token_failed'))
    one.noroshi.close()
  })

  test('a stalled network is noticed, and what was missed arrives', async () => {
    const proxy = await Proxy.start(node.httpPort)
    const one = client(`http://127.0.0.1:${proxy.port}`, 'stalled', { pingInterval: 1, runtime: { WebSocket, setTimeout: (callback, ms) => setTimeout(callback, ms / 8) } })
    await one.connected()
    await send(one, 0)
    await one.shows(1)
    proxy.freeze()
    await send(one, 1)
    await until('the loss to be noticed', () => one.states.some(({ reason }) => reason === 'connection_lost'))
    await proxy.heal()
    await send(one, 2)
    await one.shows(3)
    await one.connected()
    assert.deepEqual(one.shown, [0, 1, 2])
    one.noroshi.close()
    await proxy.close?.()
  })

  test('server-sent events: messages, acknowledgements and resumption', async () => {
    const own = await Node.start()
    const one = client(own.http, 'streamed', { transports: ['sse'] })
    one.noroshi.topic('stream', { recover: true })
    await one.connected('sse')
    const publish = (n) => own.api.publish({ to: { users: [one.user] }, data: n })
    for (let n = 0; n < 5; n++) await publish(n)
    await one.shows(5)
    await until('acknowledgements', async () => (await own.api.me(jwt('streamed')).inbox()).total === 0)
    await own.kill()
    await own.spawn()
    for (let n = 5; n < 10; n++) await publish(n)
    await one.shows(10)
    await publish('end')
    await one.shows(11)
    assert.deepEqual(one.shown, [...numbers(10), 'end'])
    one.noroshi.close()
    await discard(own)
  })

  test('a topic with a comma: a stream leaves it out, a WebSocket has it', async () => {
    for (const transport of ['sse', 'websocket']) {
      const one = client(node.http, `comma-${transport}`, { transports: [transport] })
      one.noroshi.topic('comma/a,b')
      one.noroshi.topic(`comma/${transport}`)
      await one.connected(transport)
      await until('the subscription', async () => (await node.api.publish({ to: { topic: `comma/${transport}` }, data: 'probe' }), one.shown.includes('probe')))
      await node.api.publish({ to: { topic: 'comma/a,b' }, data: 'both' })
      await send(one, 'end')
      await until('the end', () => one.shown.includes('end'))
      assert.equal(one.shown.includes('both'), transport === 'websocket')
      assert.deepEqual(one.errors.map(({ code, topic }) => [code, topic]), transport === 'sse' ? [['bad_topic', 'comma/a,b']] : [])
      one.noroshi.close()
    }
  })

  test('where WebSockets are blocked, the client falls back to server-sent events', async () => {
    class Blocked {
      constructor() {
        setTimeout(() => this.onclose?.({ code: 1006 }), 1)
      }
      send() {}
      close() {}
    }
    const one = client(node.http, 'blocked', { runtime: { WebSocket: Blocked } })
    await one.connected('sse')
    await send(one, 'through')
    await one.shows(1)
    one.noroshi.close()
  })

  test('items, unread counts, opened, preferences, the first call with its ETag, and a variant', async () => {
    await node.api.call('PUT', '/v1/apps/dev/experiments/sdk-checkout', { body: { variants: [{ name: 'green', weight: 1, data: { colour: '#0a0' } }] } })
    const one = client(node.http, 'centre')
    const counts = []
    one.noroshi.on('unread', ({ unread }) => counts.push(unread))
    await one.connected()
    await until('the first count', () => counts.length === 1)
    const ids = []
    for (const n of [1, 2, 3]) ids.push((await node.api.publish({ to: { users: [one.user] }, notification: { title: `${n}` }, item: { category: 'orders' } })).id)
    await until('three unread', () => one.noroshi.inbox.unread === 3)
    assert.deepEqual(one.noroshi.inbox.categories, { orders: 3 })
    assert.deepEqual((await one.noroshi.inbox.list({ limit: 2 })).items.map(({ id }) => id), [ids[2], ids[1]])
    const listed = []
    for await (const { id } of one.noroshi.inbox.items({ limit: 1 })) listed.push(id)
    assert.deepEqual(listed, [...ids].reverse())
    assert.equal((await one.noroshi.inbox.markRead(ids[0])).changed, 1)
    assert.equal(one.noroshi.inbox.unread, 2)
    assert.equal((await one.noroshi.inbox.markRead({ upTo: ids[2] })).changed, 2)
    assert.equal((await one.noroshi.inbox.archive([ids[0], ids[1]])).changed, 2)
    assert.equal((await one.noroshi.inbox.unarchive(ids[0])).changed, 1)
    assert.equal((await one.noroshi.inbox.markUnread(ids[0])).unread, 1)

    // The service rejects all ids of a request for a bad one.
    one.noroshi.opened('no id', ids[0], ids[1])
    await until('the report', async () => (await node.api.trace(ids[0], 'centre')).opened_at ?? JSON.stringify(await node.api.trace(ids[0], 'centre')).includes('opened'))

    assert.deepEqual(await one.noroshi.preferences.set({ muted_topics: ['x'] }), { muted_topics: ['x'] })
    assert.deepEqual(await one.noroshi.preferences.get(), { muted_topics: ['x'] })
    await one.noroshi.preferences.delete()
    assert.deepEqual(await one.noroshi.preferences.user.get(), {})
    await assert.rejects(one.noroshi.preferences.set({ colour: 'red' }), { name: 'ProblemError', status: 400, code: 'unknown_field' })

    const me = await one.noroshi.me()
    assert.equal(me.device, 'centre')
    await inboxIsEmpty(one)
    const fresh = await one.noroshi.me()
    assert.equal(await one.noroshi.me(), fresh, 'the same object: 304')
    assert.deepEqual(await one.noroshi.variant('sdk-checkout'), { variant: 'green', data: { colour: '#0a0' } })
    assert.equal(await one.noroshi.variant('another'), undefined)
    assert.deepEqual(one.errors.map(({ code, field }) => [code, field]), [['invalid_field', 'ids[0]']])
    one.noroshi.close()
  })

  test('an async iterator acknowledges each message after the body of its loop', async () => {
    const one = client(node.http, 'looped')
    await one.connected()
    const abort = new AbortController()
    const taken = []
    const loop = (async () => {
      for await (const { data } of one.noroshi.messages({ signal: abort.signal })) {
        taken.push(data)
        if (taken.length === 3) abort.abort()
      }
    })()
    for (const n of [1, 2, 3]) await send(one, n)
    await loop
    assert.deepEqual(taken, [1, 2, 3])
    await inboxIsEmpty(one)
    one.noroshi.close()
  })

  test('an aborted request is rejected with the reason of its signal', async () => {
    const one = client(node.http, 'aborted')
    const abort = new AbortController()
    const request = one.noroshi.inbox.list({ signal: abort.signal })
    abort.abort(new Error('the page changed'))
    await assert.rejects(request, /the page changed/)
    one.noroshi.close()
  })
})
