/** Faults of a real node: killed, drained, out of reach. Nothing is lost, nothing is accepted twice. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Node } from '../../../../../e2e/lib/node.mjs'
import { Proxy } from '../../../../../e2e/lib/proxy.mjs'
import { sleep, until } from '../../../../../e2e/lib/until.mjs'
import { discard } from '../../../test/discard.mjs'
import { client, closeDevices, collect, device } from './lib.mjs'

let node
before(async () => (node = await Node.start()))
after(async () => {
  closeDevices()
  await discard(node)
})

/** Short waits between attempts, so that tests are quick. */
const runtime = { random: () => 0.1 }

/** What a new device of the user shows, in order, once each. */
async function shown(noroshi, user, count) {
  const { token } = await noroshi.devices.register({ user, device: `of-${user}` })
  const phone = device(node, token)
  await phone.shows(count)
  await sleep(200)
  phone.close()
  assert.equal(phone.shown.length, count)
  return phone.shown.map(({ data }) => data)
}

test('publishing continues after kill -9, and nothing is accepted twice', async () => {
  const attempts = []
  const noroshi = client(node, { isLoose: true, onAttempt: (attempt) => attempts.push(attempt), deadlineMs: 60_000, attempts: 200, runtime })
  const user = 'killed'
  await noroshi.devices.register({ user, device: `of-${user}` })
  const publishing = (async () => {
    for (let n = 0; n < 200; n++) await noroshi.publish({ to: { users: [user] }, data: n })
  })()
  await until('some requests', () => attempts.length > 40)
  await node.kill()
  await until('a failure', () => attempts.some(({ error }) => error))
  await node.spawn()
  await publishing
  assert.deepEqual(await shown(noroshi, user, 200), Array.from({ length: 200 }, (_, n) => n))
  assert.equal(attempts.filter(({ error }) => !error).length, 202, 'each request has succeeded once: 200 messages, two registrations')
})

test('a batch continues after kill -9, and no line is accepted twice', async () => {
  const attempts = []
  const noroshi = client(node, { isLoose: true, onAttempt: (attempt) => attempts.push(attempt), deadlineMs: 60_000, attempts: 200, runtime })
  const user = 'batched'
  await noroshi.devices.register({ user, device: `of-${user}` })
  let isKilled = false
  const killing = (async () => {
    await until('the first request', () => attempts.length > 1)
    await node.kill()
    isKilled = true
    await node.spawn()
  })()
  async function* lines() {
    for (let n = 0; n < 300; n++) {
      // The rest follows after the kill, partly while the node is down.
      if (n === 150) await until('the kill', () => isKilled)
      yield { to: { users: [user] }, data: n }
    }
  }
  const results = await collect(noroshi.publishBatch(lines(), { linesPerRequest: 50 }))
  await killing
  assert.ok(results.every(({ ok }) => ok))
  assert.ok(attempts.some(({ error }) => error), 'an attempt failed')
  assert.deepEqual(await shown(noroshi, user, 300), Array.from({ length: 300 }, (_, n) => n))
})

test('a stalled network ends an attempt, and the next one repeats it', async () => {
  const proxy = await Proxy.start(node.httpPort)
  const attempts = []
  const noroshi = client(node, { isLoose: true, url: `http://127.0.0.1:${proxy.port}`, timeoutMs: 300, runtime, onAttempt: (attempt) => attempts.push(attempt) })
  const user = 'stalled'
  await noroshi.devices.register({ user, device: `of-${user}` }, { timeoutMs: 10_000 })
  proxy.freeze()
  const publishing = noroshi.publish({ to: { users: [user] }, data: 0 }, { attempts: 50 })
  await until('two attempts', () => attempts.filter(({ error }) => error?.code === 'timeout').length >= 2)
  await proxy.heal()
  await publishing
  await proxy.close?.()
  assert.deepEqual(await shown(client(node, { isLoose: true }), user, 1), [0])
})

test('without a node the error names the cause, at the deadline', async () => {
  const noroshi = client(node, { isLoose: true, url: 'http://127.0.0.1:1', fetch: undefined, deadlineMs: 500, runtime })
  const error = await noroshi.publish({ to: { everyone: true }, data: 1 }).catch((error) => error)
  assert.equal(error.code, 'network')
  assert.ok(error.message)
})
