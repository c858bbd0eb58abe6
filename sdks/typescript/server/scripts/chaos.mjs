#!/usr/bin/env node
/**
 * Backends that publish to a real node under faults: kill -9, drain, a stalled and a cut network. Every notification that was
 * published, alone or in a batch, must be in its device's inbox exactly once, in order.
 *
 *   node scripts/chaos.mjs [--minutes 10]      NOROSHI_BIN names the node's binary
 */

import assert from 'node:assert/strict'
import { parseArgs } from 'node:util'

import { KEY, Node } from '../../../../e2e/lib/node.mjs'
import { Proxy } from '../../../../e2e/lib/proxy.mjs'
import { sleep, until } from '../../../../e2e/lib/until.mjs'
import { Noroshi } from '../dist/index.js'
import { device } from '../test/node/lib.mjs'

const { values } = parseArgs({ options: { minutes: { type: 'string' } } })
const minutes = Number(values.minutes ?? 10)
assert.ok(minutes > 0, 'minutes must be above 0')

// A device's inbox has at most so many messages.
const node = await Node.start({ args: ['--set', 'store.inbox_rows=100000'] })
const proxy = await Proxy.start(node.httpPort)
const attempts = { total: 0, failed: 0, codes: {} }
const noroshi = new Noroshi({
  url: `http://127.0.0.1:${proxy.port}`,
  key: KEY,
  timeoutMs: 2_000,
  deadlineMs: 600_000,
  attempts: 10_000,
  onAttempt: ({ error }) => {
    attempts.total++
    if (!error) return
    attempts.failed++
    attempts.codes[error.code] = (attempts.codes[error.code] ?? 0) + 1
  },
})

const endsAt = Date.now() + minutes * 60_000
const users = ['alone', 'batch']
const tokens = {}
for (const user of users) tokens[user] = (await noroshi.devices.register({ user, device: user })).token
const published = { alone: 0, batch: 0 }

const alone = async () => {
  for (; Date.now() < endsAt; published.alone++) {
    await noroshi.publish({ to: { users: ['alone'] }, data: published.alone, ttl: '1d' })
    await sleep(20)
  }
}
async function* lines() {
  for (let n = 0; Date.now() < endsAt; n++) {
    if (n % 20 === 0) await sleep(100)
    yield { to: { users: ['batch'] }, data: n, ttl: '1d' }
  }
}
const batch = async () => {
  for await (const { ok, index, error } of noroshi.publishBatch(lines(), { linesPerRequest: 50 })) {
    assert.ok(ok, `line ${index}: ${error}`)
    published.batch++
  }
}
const faults = {
  kill: async () => (await node.kill(), await node.spawn()),
  drain: async () => (await node.drain(), await node.spawn()),
  stall: async () => (proxy.freeze(), await sleep(3_000), await proxy.heal()),
}
const counts = {}
const disturb = async () => {
  for (let n = 0; Date.now() < endsAt; n++) {
    await sleep(2_000)
    const name = Object.keys(faults)[n % 3]
    counts[name] = (counts[name] ?? 0) + 1
    await faults[name]()
  }
}
await Promise.all([alone(), batch(), disturb()])

let violations = 0
for (const user of users) {
  const phone = device(node, tokens[user])
  await until(`the messages of ${user}`, () => phone.shown.length >= published[user], 120_000).catch((error) => console.log(error.message))
  await sleep(500)
  phone.close()
  const numbers = phone.shown.map(({ data }) => data)
  const expected = Array.from({ length: published[user] }, (_, n) => n)
  const lost = expected.filter((n) => !numbers.includes(n)).length
  const twice = numbers.length - new Set(numbers).size
  const unordered = numbers.some((n, at) => at > 0 && n < numbers[at - 1])
  if (lost || twice || unordered) violations++
  console.log(`${user}: ${published[user]} published, ${numbers.length} in the inbox, ${lost} lost, ${twice} twice${unordered ? ', out of order' : ''}`)
}
console.log(`faults ${JSON.stringify(counts)}; ${attempts.total} attempts, ${attempts.failed} failed: ${JSON.stringify(attempts.codes)}`)
await proxy.close?.()
await node.stop()
process.exit(violations ? 1 : 0)
