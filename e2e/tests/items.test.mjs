/** Items: the notification centre of a user, the same on all devices of the user, whatever node they use. */

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { EventSource } from 'eventsource'
import { io } from 'socket.io-client'

import { Cluster } from '../lib/cluster.mjs'
import { Device } from '../lib/device.mjs'
import { Postgres, Redis, missingEngines } from '../lib/engines.mjs'
import { Node } from '../lib/node.mjs'
import { DevPush, unique } from '../lib/push.mjs'
import { until, within } from '../lib/until.mjs'

/** The requests of a device about the items of its user, at any node. */
const itemsOf = (api, token) => ({
  list: async (query = '') => (await api.call('GET', `/v1/me/items${query}`, { token })).items,
  counts: () => api.call('GET', '/v1/me/items/counts', { token }),
  change: (body) => api.call('PATCH', '/v1/me/items', { token, body }),
})

const publish = async (api, user, category, more = {}) =>
  (await api.publish({ to: { users: [user] }, notification: { title: 'item' }, item: category ? { category } : {}, ...more })).id

/** The next report of items; messages in between are acknowledged. */
async function report(device) {
  for (;;) {
    const frame = await device.next()
    if (frame.t === 'items') return frame
    assert.equal(frame.t, 'msg', JSON.stringify(frame))
    device.ack(frame.id)
  }
}

describe('on one node', () => {
  let node
  before(async () => (node = await Node.start()))
  after(() => node?.stop())

  test('reading on one device clears the badge on the others', async () => {
    const user = unique('reader')
    const [phone, tablet, web, game] = await Promise.all([1, 2, 3, 4].map(() => node.api.register({ user })))
    const devices = await Promise.all([phone, tablet].map(({ token }) => Device.connect(node.ws, token)))
    const source = new EventSource(`${node.http}/v1/events?token=${web.token}`)
    const socket = io(node.http, { auth: { token: game.token }, forceNew: true, transports: ['polling'] })
    const streamed = []
    const emitted = []
    source.addEventListener('items', ({ data }) => streamed.push(JSON.parse(data)))
    socket.on('items', (items) => emitted.push(items))
    try {
      await until('the stream', () => source.readyState === EventSource.OPEN)
      await until('the socket', () => socket.connected)
      const ids = []
      for (const category of ['orders', 'news', undefined]) ids.push(await publish(node.api, user, category))
      for (const device of devices) {
        for (const [at, id] of ids.entries()) {
          const added = await report(device)
          assert.deepEqual([added.event, added.ids, added.unread], ['added', [id], at + 1])
        }
      }
      const changed = await itemsOf(node.api, phone.token).change({ action: 'read', ids: [ids[0]] })
      assert.deepEqual(changed, { changed: 1, unread: 2, categories: { news: 1 } })
      const expected = { event: 'read', ids: [ids[0]], unread: 2, categories: { news: 1 } }
      for (const device of devices) assert.deepEqual(await report(device), { t: 'items', ...expected })
      await until('the event', () => streamed.some((one) => one.event === 'read'))
      assert.deepEqual(streamed.at(-1), { t: 'items', ...expected })
      await until('the event of Socket.IO', () => emitted.some((one) => one.event === 'read'))
      assert.deepEqual(emitted.at(-1), expected)
      assert.deepEqual((await itemsOf(node.api, tablet.token).list('?state=unread')).map((item) => item.id), [ids[2], ids[1]])
      // Nothing changes a second time: the next report is about something else.
      await itemsOf(node.api, tablet.token).change({ action: 'read', ids: [ids[0]] })
      await itemsOf(node.api, tablet.token).change({ action: 'read', up_to: ids[1] })
      for (const device of devices) {
        const all = await report(device)
        assert.deepEqual([all.event, all.ids, all.unread], ['read', [ids[1]], 1])
      }
      assert.equal((await node.api.me(web.token).show()).unread_items, 1)
    } finally {
      source.close()
      socket.disconnect()
      await Promise.all(devices.map((device) => device.leave()))
    }
  })

  test('an item outlives its acknowledgement and its device, and a restart', async () => {
    const user = unique('lasting')
    const { device, token } = await node.api.register({ user })
    const id = await publish(node.api, user, 'orders', { ttl: '1h' })
    await node.api.me(token).ack(id)
    await node.api.call('DELETE', `/v1/devices/${device}`, { status: 204 })
    await node.drain()
    await node.spawn()
    const { items } = await node.api.call('GET', `/v1/users/${user}/items`)
    assert.deepEqual(items.map((item) => [item.id, item.state]), [[id, 'unread']])
    const next = await node.api.register({ user })
    assert.equal((await node.api.me(next.token).show()).unread_items, 1)
  })

  test('a stranger and another tenant neither see nor change items', async () => {
    const user = unique('private')
    const [owner, stranger] = [await node.api.register({ user }), await node.api.register({ user: unique('stranger') })]
    const id = await publish(node.api, user, 'secret')
    const device = await Device.connect(node.ws, stranger.token)
    const theirs = itemsOf(node.api, stranger.token)
    assert.deepEqual(await theirs.list('?state=all'), [])
    assert.equal((await theirs.change({ action: 'read', ids: [id] })).changed, 0)
    assert.equal((await theirs.change({ action: 'archive', up_to: id })).changed, 0)
    await itemsOf(node.api, owner.token).change({ action: 'read', ids: [id] })
    // No report arrived before the answer to the ping.
    await device.settle()
    await device.leave()
    await node.api.call('POST', `/v1/devices/${owner.device}/revoke`)
    await node.api.call('GET', '/v1/me/items', { token: owner.token, status: 401 })
    await node.api.call('PATCH', '/v1/me/items', { token: owner.token, body: { action: 'unread', ids: [id] }, status: 401 })
    assert.equal((await node.api.call('GET', `/v1/users/${user}/items/counts`)).unread, 0)
  })
})

describe('badges', () => {
  let push, node
  before(async () => {
    push = await DevPush.start()
    node = await push.node()
  })
  after(async () => {
    await node?.stop()
    await push?.stop()
  })

  test('a push counts the unread items of its user', async () => {
    const user = unique('badge')
    const [pushToken] = await push.tokens('apns', 1)
    const { token } = await node.api.register({ user, push_token: pushToken })
    await publish(node.api, user)
    const read = await publish(node.api, user)
    await itemsOf(node.api, token).change({ action: 'read', ids: [read] })
    const badgeOf = async (more) => {
      const title = unique('title')
      await node.api.publish({ to: { users: [user] }, notification: { title, badge: 'unread' }, push: { mode: 'always' }, ...more })
      let payload
      await until('the push', async () => (payload = (await push.accepted('apns')).find((one) => one.payload.includes(title))?.payload))
      return JSON.parse(payload).aps.badge
    }
    assert.equal(await badgeOf({ item: {} }), 2, 'with its own item')
    await itemsOf(node.api, token).change({ action: 'archive', up_to: (await itemsOf(node.api, token).list())[0].id })
    assert.equal(await badgeOf({}), 0, 'nothing is unread')
  })
})

const skip = missingEngines() ?? false

describe('on two nodes', { skip }, () => {
  let postgres, redis, cluster
  before(async () => {
    ;[postgres, redis] = await Promise.all([Postgres.start(), Redis.start()])
    const roles = ['api', 'gateway', 'sender']
    cluster = await Cluster.start({
      postgres: postgres.url,
      redis: redis.url,
      nodes: [{ name: 'a', roles }, { name: 'b', roles }],
    })
    await cluster.seen(2)
  })
  after(async () => {
    await cluster?.stop()
    await Promise.all([postgres?.stop(), redis?.stop()])
  })

  test('a read at one node reaches the device at the other', async () => {
    const user = unique('wide')
    const [a, b] = [cluster.api('a'), cluster.api('b')]
    const [phone, tablet] = [await a.register({ user }), await a.register({ user })]
    const devices = [
      await Device.connect(cluster.node('a').ws, phone.token),
      await Device.connect(cluster.node('b').ws, tablet.token),
    ]
    const ids = []
    for (const api of [a, b, a]) {
      ids.push(await publish(api, user, 'orders'))
      for (const device of devices) {
        const added = await report(device)
        assert.deepEqual([added.event, added.ids, added.unread], ['added', [ids.at(-1)], ids.length])
      }
    }
    assert.equal((await b.me(tablet.token).show()).unread_items, 3)
    await itemsOf(a, phone.token).change({ action: 'read', ids: [ids[1]] })
    const read = await within('the report at the other node', report(devices[1]))
    assert.deepEqual(read, { t: 'items', event: 'read', ids: [ids[1]], unread: 2, categories: { orders: 2 } })
    assert.deepEqual(await report(devices[0]), read)
    await itemsOf(b, tablet.token).change({ action: 'archive', up_to: ids[2], category: 'orders' })
    for (const device of devices) {
      const { event, ids: archived, unread } = await report(device)
      assert.deepEqual([event, archived, unread], ['archived', ids, 0])
    }
    // The cached first call of each node is stale.
    for (const [api, { token }] of [[a, phone], [b, tablet]]) {
      await until('the first call', async () => (await api.me(token).show()).unread_items === 0)
    }
    await Promise.all(devices.map((device) => device.leave()))
  })
})
