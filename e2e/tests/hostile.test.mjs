/** Slow and half-open peers are closed in time without effect on others. */

import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { RawSocket } from '../lib/raw.mjs'
import { sleep, until, within } from '../lib/until.mjs'

let node
before(async () => (node = await Node.start({ env: { NOROSHI__GATEWAY__HEAD_TIMEOUT: '1s', NOROSHI__GATEWAY__AUTH_TIMEOUT: '1s' } })))
after(() => node?.stop())

test('a device that does not read is closed, and receives all stored messages at its next connection', async () => {
  const { token } = await node.api.register({ user: 'slow', topics: ['flood'] })
  const fast = await Device.connect(node.ws, (await node.api.register({ topics: ['flood'] })).token)
  const raw = await RawSocket.upgrade(node.httpPort, `/v1/connect?token=${token}`)
  await raw.frame()
  raw.socket.pause()

  // 24 MB: more than the kernel's buffers on both sides.
  const data = 'x'.repeat(4_000)
  let sent = 0
  const received = []
  for (let batch = 0; batch < 12; batch++) {
    const lines = Array.from({ length: 500 }, () => ({ to: { topic: 'flood' }, data: `${sent++} ${data}` }))
    await node.api.publishBatch(lines)
    received.push(...(await fast.msgs(500)))
  }
  const numbers = (messages) => messages.map((msg) => Number(msg.data.split(' ')[0]))
  const all = Array.from({ length: sent }, (_, n) => n)
  assert.deepEqual(numbers(received), all, 'other readers are not delayed')

  await until('the slow device to be offline', async () => (await node.api.presence('slow')).slow.presence === 'offline')
  await until('the close to be counted', async () => {
    const metrics = await (await node.admin('/metrics')).text()
    return /^noroshi_\w*closed\w*\{[^}]*reason="slow_consumer"[^}]*\} 1$/m.test(metrics)
  })
  raw.socket.destroy()

  const again = await Device.connect(node.ws, token)
  assert.deepEqual(numbers(await again.msgs(sent)), all)
  await again.leave()
  await fast.leave()
})

test('an incomplete request head times out', async () => {
  const sockets = ['', 'GET /v1/connect HT', 'GET / HTTP/1.1\r\nHost: x\r\n'].map((head) => {
    const raw = new RawSocket(connect(node.httpPort, '127.0.0.1'))
    raw.write(Buffer.from(head))
    return raw
  })
  // The silent connection may stay a little longer; those with a partial head may not.
  await Promise.all(sockets.slice(1).map((raw) => within('the socket to be closed', raw.gone())))
  sockets[0].socket.destroy()
})

test('hundreds of connections without a log-in disturb nothing and are closed', async () => {
  const { device: id, token } = await node.api.register()
  const device = await Device.connect(node.ws, token)
  const silent = await Promise.all(Array.from({ length: 300 }, () => RawSocket.upgrade(node.httpPort, '/v1/connect')))
  await node.api.publish({ to: { devices: [id] }, when: 'connected', data: 'undisturbed' })
  assert.equal((await device.msg()).data, 'undisturbed')
  for (const raw of silent) assert.equal((await raw.close()).code, 4005)
  await device.leave()
})

test('above the connect rate devices get a retry time, and are then admitted', async () => {
  const own = await Node.start({ env: { NOROSHI__GATEWAY__CONNECTS_PER_SECOND: '10' } })
  const registered = []
  for (let i = 0; i < 40; i++) registered.push(await patiently(() => own.api.register()))
  const refused = []
  /** Retries as instructed until it is admitted. */
  async function come(token) {
    for (;;) {
      const device = Device.open(own.ws, token)
      const answer = await new Promise((resolve) => {
        device.socket.once('unexpected-response', (_, response) => {
          resolve(response)
          device.socket.terminate()
        })
        device.next().then(resolve, resolve)
      })
      if (answer.t === 'ready') return device
      assert.equal(answer.statusCode, 503, String(answer))
      const seconds = Number(answer.headers['retry-after'])
      assert.ok(seconds >= 1 && seconds <= 60, `retry-after ${seconds}`)
      refused.push(seconds)
      await sleep(seconds * 1_000)
    }
  }
  const devices = await Promise.all(registered.map(({ token }) => come(token)))
  assert.ok(refused.length > 0, 'forty at once exceed the rate')
  await Promise.all(devices.map((device) => device.leave()))
  await own.stop()

  /** HTTP requests use the same listener. */
  async function patiently(call) {
    for (;;) {
      try {
        return await call()
      } catch {
        await sleep(100)
      }
    }
  }
})

test('an oversized body is rejected before it is read', async () => {
  const raw = new RawSocket(connect(node.httpPort, '127.0.0.1'))
  raw.write(
    Buffer.from(
      `POST /v1/notifications HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer e2e-key-with-all-scopes\r\n` +
        'Content-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n{',
    ),
  )
  while (raw.bytes.indexOf('\r\n') < 0) await raw.more()
  assert.match(raw.bytes.toString('latin1'), /^HTTP\/1\.1 413 /)
  raw.socket.destroy()
})
