/** `everyone`: a topic with a durable subscription of every device. The node is separate, because all devices receive it. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

test('connected devices receive it at once, offline ones at the next log-in, later ones never', async () => {
  const registered = []
  for (let i = 0; i < 6; i++) registered.push(await node.api.register({ user: `u${i}` }))
  const live = []
  for (const { token } of registered.slice(0, 3)) live.push(await Device.connect(node.ws, token))

  const { id, targets } = await node.api.publish({ to: { everyone: true }, data: 'system update' })
  assert.equal(targets, null)
  await node.api.publish({ to: { everyone: true }, when: 'connected', data: 'who is there' })
  for (const device of live) {
    const received = await device.msgs(2)
    assert.deepEqual(received.map((msg) => msg.data), ['system update', 'who is there'])
    assert.equal(received[0].id, id)
    device.ack(id)
    await device.leave()
  }
  registered.push(await node.api.register({ user: 'newcomer' }))
  for (const [i, { token, device: name }] of registered.entries()) {
    if (i < 3) await node.api.me(token).ack(id)
    const device = await Device.connect(node.ws, token)
    await node.api.publish({ to: { devices: [name] }, when: 'connected', data: 'marker' })
    const received = [(await device.msg()).data]
    while (received.at(-1) !== 'marker') received.push((await device.msg()).data)
    assert.deepEqual(received, 3 <= i && i < 6 ? ['system update', 'marker'] : ['marker'], `device ${i}`)
    await device.leave()
  }
})

test('a retained message to everyone is delivered at every log-in', async () => {
  const { id } = await node.api.publish({ to: { everyone: true }, when: 'connected', retain: true, data: 'maintenance' })
  const { token } = await node.api.register()
  for (let login = 0; login < 2; login++) {
    const device = await Device.connect(node.ws, token)
    assert.equal((await device.msg()).id, id, `login ${login}`)
    await device.leave()
  }
})
