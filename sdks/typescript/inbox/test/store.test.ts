/** The store: pages, reports, changes that are visible at once, and rollback. */

import assert from 'node:assert/strict'
import { test } from 'vitest'

import { InboxStore, type InboxOptions } from '../src/store.js'
import { id, Service, settle } from './service.js'

async function started(count: number, options: InboxOptions = {}, more = {}) {
  const service = new Service()
  service.add(count, more)
  const client = service.client()
  const store = new InboxStore(client, options)
  let notified = 0
  const stop = store.subscribe(() => notified++)
  client.connect()
  await settle()
  const hide = store.show()
  await settle()
  return {
    service,
    client,
    store,
    stop,
    hide,
    ids: () => store.getSnapshot().items.map((item) => Number(item.id.slice(-4))),
    states: () => store.getSnapshot().items.map(({ state }) => state).join(' '),
    lists: () => service.requests.filter((one) => one.startsWith('GET /v1/me/items?')).length,
    notified: () => notified,
    end: () => {
      stop()
      client.close()
    },
  }
}

test('lists page by page, newest first', async () => {
  const { store, ids, end, lists } = await started(5, { limit: 2 })
  assert.deepEqual(ids(), [5, 4])
  assert.equal(store.getSnapshot().hasMore, true)
  await Promise.all([store.loadMore(), store.loadMore()])
  assert.deepEqual(ids(), [5, 4, 3, 2])
  await store.loadMore()
  assert.deepEqual([ids(), store.getSnapshot().hasMore], [[5, 4, 3, 2, 1], false])
  await store.loadMore()
  assert.equal(lists(), 3)
  end()
})

test('a list that nobody sees is not loaded, the counts are', async () => {
  const { service, store, hide, lists, end } = await started(3)
  hide()
  service.add(1)
  service.report('added', [id(4)])
  await settle()
  assert.equal(lists(), 1)
  assert.equal(store.getSnapshot().unread, 4)
  store.show()
  await new Promise((resolve) => setTimeout(resolve, 1_050))
  await settle()
  assert.equal(lists(), 2)
  assert.equal(store.getSnapshot().items.length, 4)
  end()
})

test('a change is visible at once, and remains', async () => {
  const { service, store, states, end } = await started(3)
  service.isHeld = true
  const change = store.markRead(id(2))
  assert.equal(states(), 'unread read unread')
  assert.equal(store.getSnapshot().unread, 2)
  await service.release()
  await change
  assert.equal(states(), 'unread read unread')
  assert.equal(store.getSnapshot().unread, 2)
  end()
})

test('a change that the service refuses is rolled back, and other changes stay', async () => {
  const { service, store, ids, states, end } = await started(3)
  service.isHeld = true
  const archived = store.archive(id(3)).catch(({ code }) => code)
  const read = store.markRead(id(1))
  assert.deepEqual([ids(), states()], [[2, 1], 'unread read'])
  assert.equal(store.getSnapshot().unread, 1)
  service.failures = [503]
  await service.release()
  assert.equal(await archived, 'unavailable')
  await read
  assert.deepEqual([ids(), states()], [[3, 2, 1], 'unread unread read'])
  assert.equal(store.getSnapshot().unread, 2)
  end()
})

test('nobody has to handle the promise of a change: the snapshot has the error', async () => {
  const { service, store, end } = await started(1)
  service.failures = [0]
  void store.markRead(id(1))
  await settle()
  const { error, items, status } = store.getSnapshot()
  assert.deepEqual([error?.code, items[0]?.state, status], ['network', 'unread', 'ready'])
  await store.markRead(id(1))
  assert.equal(store.getSnapshot().error, undefined)
  end()
})

test('"mark all as read" counts the items that are not loaded', async () => {
  const { service, store, end } = await started(5, { limit: 2 })
  service.isHeld = true
  const change = store.markRead({ upTo: id(5) })
  assert.equal(store.getSnapshot().unread, 0)
  service.add(1)
  await service.release()
  await change
  assert.equal(store.getSnapshot().unread, 1)
  end()
})

test('the report of a change that is pending does not count twice', async () => {
  const { service, store, client, end } = await started(3)
  const seen: (number | undefined)[] = []
  store.subscribe(() => seen.push(store.getSnapshot().unread))
  service.isHeld = true
  const change = store.markRead(id(3))
  service.items[2]!.state = 'read'
  service.report('read', [id(3)])
  await settle()
  await service.release()
  await change
  await settle()
  assert.equal(client.inbox.unread, 2)
  assert.ok(seen.every((unread) => unread === 2), String(seen))
  end()
})

test('reports of other devices change the list', async () => {
  const { service, ids, states, lists, end } = await started(4)
  service.items[0]!.state = 'read'
  service.report('read', [id(1)])
  assert.equal(states(), 'unread unread unread read')
  service.items[1]!.state = 'archived'
  service.report('archived', [id(2)])
  service.items.splice(2, 1)
  service.report('deleted', [id(3)])
  assert.deepEqual(ids(), [4, 1])
  assert.equal(lists(), 1)
  service.add(1, { id: id(9) })
  service.report('added', [id(9)])
  await new Promise((resolve) => setTimeout(resolve, 1_050))
  await settle()
  assert.deepEqual(ids(), [9, 4, 1])
  end()
})

test('many reports cause few lists', async () => {
  const { service, store, lists, end } = await started(1)
  for (let n = 2; n <= 50; n++) {
    service.add(1)
    service.report('added', [id(n)])
  }
  await new Promise((resolve) => setTimeout(resolve, 1_050))
  await settle()
  assert.deepEqual([lists(), store.getSnapshot().items.length, store.getSnapshot().hasMore], [2, 20, true])
  end()
})

test('an answer that is older than a report does not undo it', async () => {
  const { service, store, states, end } = await started(2)
  const refresh = store.refresh()
  // The answer was read before the change.
  await Promise.resolve()
  service.report('read', [id(1)])
  await refresh
  assert.equal(states(), 'unread read')
  end()
})

test('after a reconnection the list is current', async () => {
  const { service, ids, end } = await started(1)
  service.lose()
  service.add(1)
  await new Promise((resolve) => setTimeout(resolve, 1_100))
  await settle()
  assert.deepEqual(ids(), [2, 1])
  end()
})

test('a list that fails is an error, and is tried again', async () => {
  const service = new Service()
  service.add(1)
  const store = new InboxStore(service.client())
  const stop = store.subscribe(() => {})
  service.failures = [500]
  store.show()
  await settle()
  assert.deepEqual([store.getSnapshot().status, store.getSnapshot().error?.code], ['error', 'unavailable'])
  await store.refresh()
  assert.deepEqual([store.getSnapshot().status, store.getSnapshot().error, store.getSnapshot().items.length], ['ready', undefined, 1])
  stop()
})

test('filters decide what stays in the list', async () => {
  const unread = await started(2, { state: 'unread', category: 'orders' }, { category: 'orders' })
  await unread.store.markRead(id(1))
  assert.deepEqual(unread.ids(), [2])
  assert.deepEqual(unread.store.getSnapshot().categories, { orders: 1 })
  unread.end()
  const all = await started(2, { state: 'all' })
  await all.store.archive([id(1), id(2)])
  assert.equal(all.states(), 'archived archived')
  await all.store.unarchive(id(2))
  assert.equal(all.states(), 'read archived')
  all.end()
})

test('objects are the same until they change, and nothing is notified without a change', async () => {
  const { service, store, notified, end } = await started(3)
  const before = store.getSnapshot()
  const count = notified()
  await store.refresh()
  service.report('read', [])
  await settle()
  assert.equal(store.getSnapshot(), before)
  assert.equal(notified(), count)
  await store.markRead(id(1))
  const after = store.getSnapshot()
  assert.deepEqual([after.items[0] === before.items[0], after.items[1] === before.items[1], after.items[2] === before.items[2]], [true, true, false])
  end()
})

test('a view that is mounted again at once keeps the list', async () => {
  const { store, stop, hide, lists, end } = await started(2)
  stop()
  hide()
  const again = store.subscribe(() => {})
  store.show()
  await settle()
  assert.equal(lists(), 1)
  again()
  end()
})
