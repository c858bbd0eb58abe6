/** A full disk: requests that need storage are rejected, stored data stays, and with free space everything works again. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'

const TEXT = 'x'.repeat(4_000)

let node
before(async () => (node = await Node.start({ args: ['--set', 'store.database_max=2MiB'] })))
after(() => node?.stop())

const publish = (data, more = {}) => node.api.publish({ to: { users: ['reader'] }, data, ...more })

/** Publishes until the store is full; the ids that were accepted. */
async function fill() {
  const ids = []
  for (let n = 0; n < 5_000; n++) {
    try {
      ids.push((await publish(`${n} ${TEXT}`.slice(0, 4_000))).id)
    } catch (error) {
      assert.equal(error.status, 507)
      assert.equal(error.body.code, 'disk_full')
      return ids
    }
  }
  assert.fail('2 MiB held 5,000 notifications of 4 KB')
}

test('with a full disk the node rejects writes, loses nothing, and continues when there is space', async () => {
  const { token } = await node.api.register({ user: 'reader' })
  const ids = await fill()
  assert.ok(ids.length > 10, `${ids.length}`)

  const device = await Device.connect(node.ws, token)
  const received = (await device.msgs(ids.length)).map((msg) => msg.id)
  assert.deepEqual(received, ids)
  await publish('for who is here', { when: 'connected' })
  assert.equal((await device.msg()).data, 'for who is here')

  await device.leave()

  await node.drain()
  node.args = []
  await node.spawn()
  const again = await Device.connect(node.ws, token)
  assert.deepEqual((await again.msgs(ids.length)).map((msg) => msg.id), ids)
  await publish('kept again')
  assert.equal((await again.msg()).data, 'kept again')
  await again.leave()
})
