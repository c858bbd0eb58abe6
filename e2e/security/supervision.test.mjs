/**
 * A thread that panics or stalls ends the node, with a specific exit code and one log line that names the thread.
 *
 * Debug builds read a file (`NOROSHI_FAULT_FILE`) that names the thread to panic or stall; release builds have no
 * fault injection, which is tested here too.
 */

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'

import { api } from '../lib/api.mjs'
import { Device } from '../lib/device.mjs'
import { Postgres, missingEngines } from '../lib/engines.mjs'
import { hs256 } from '../lib/jwt.mjs'
import { BIN, JWT_SECRET, KEY, Node } from '../lib/node.mjs'
import { sleep, until, within } from '../lib/until.mjs'

const EX_SOFTWARE = 70
const VARIABLE = 'NOROSHI_FAULT_FILE'
const injects = readFileSync(BIN).includes(VARIABLE)
const isRelease = /[/\\]release[/\\]/.test(BIN)
const skip = isRelease && !injects ? 'a release build injects no faults' : false

const exp = Math.floor(Date.now() / 1_000) + 3_600
const jwt = (device, claims = {}) => hs256(JWT_SECRET, { sub: `user-${device}`, device, exp, ...claims })

/** A node whose threads fail on request; `drain` limits the duration of its drain. */
async function start({ stall = '1h', drain = '1s', events = false, args = [] } = {}) {
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-e2e-fault-'))
  const file = join(folder, 'fault')
  writeFileSync(file, '')
  const settings = { 'server.stall_timeout': stall, 'gateway.drain.deadline': drain, 'server.shards': 2, 'server.workers': 2 }
  if (events) settings['events.file.folder'] = join(folder, 'events')
  const set = Object.entries(settings).flatMap(([key, value]) => ['--set', `${key}=${value}`])
  const node = await Node.start({ args: [...set, ...args], env: { [VARIABLE]: file } })
  node.inject = (fault) => writeFileSync(file, fault)
  node.clean = () => {
    if (!node.exit) node.child.kill('SIGKILL')
    node.removeData()
    rmSync(folder, { recursive: true, force: true })
  }
  return node
}

/** Gives every kind of thread some work. Ignores the answers, because the node may be ending. */
async function poke(node) {
  const ask = api(node.http, KEY, { deadlineMs: 1_000 })
  const connection = { connection: 'close' }
  const publish = { to: { users: ['u1'] }, when: 'stored', data: 'kept' }
  await Promise.allSettled([
    ask.raw('POST', '/v1/notifications', { body: publish, headers: connection }),
    ask.raw('POST', '/v1/notifications', { body: { ...publish, when: 'connected' }, headers: connection }),
    ...Array.from({ length: 8 }, () => ask.raw('GET', '/v1/devices/no-such-device', { headers: connection })),
  ])
}

/** Sends work until the node has ended; returns its exit. */
async function ended(node) {
  await until('the node to end', async () => {
    await poke(node)
    return node.exit
  }, 60_000)
  return node.exit
}

/** The log line that names the thread. */
function assertOneLine(node, thread, reason) {
  const lines = readFileSync(node.logPath, 'utf8').split('\n').filter((line) => line.includes('a thread failed'))
  assert.equal(lines.length, 1, `one line, not ${JSON.stringify(lines)}\n${node.log()}`)
  assert.match(lines[0], new RegExp(`\\b${thread}\\b`))
  assert.match(lines[0], reason)
  assert.match(lines[0], /exit_code=70|"exit_code":70/)
}

test('only a debug build injects faults', () => {
  assert.equal(injects, !isRelease, `${BIN} ${injects ? 'contains' : 'does not contain'} ${VARIABLE}`)
})

describe('a panic outside a guarded handler ends the node', { skip, concurrency: 2 }, () => {
  for (const thread of [
    'acceptor',
    'shard-0',
    'store-writer',
    'store-reader-0',
    'events-collect',
    'events-file',
    'admin',
    'runtime',
    'task-delivery',
  ]) {
    test(thread, async () => {
      const node = await start({ events: thread.startsWith('events') })
      try {
        node.inject(`panic ${thread}`)
        assert.deepEqual(await ended(node), { code: EX_SOFTWARE, signal: null }, node.log())
        assertOneLine(node, thread, /panicked/)
      } finally {
        node.clean()
      }
    })
  }
})

test('a panic in a task of the PostgreSQL store ends the node', { skip: missingEngines() ?? skip }, async () => {
  const postgres = await Postgres.start()
  try {
    for (const task of ['store-accept', 'store-behind']) {
      const node = await start({ args: ['--set', `store.url=${postgres.url}`] })
      try {
        node.inject(`panic ${task}`)
        assert.deepEqual(await ended(node), { code: EX_SOFTWARE, signal: null }, node.log())
        assertOneLine(node, task, /panicked/)
      } finally {
        node.clean()
      }
    }
  } finally {
    await postgres.stop()
  }
})

describe('a stall ends the node', { skip, concurrency: 4 }, () => {
  for (const [fault, thread] of [
    ['acceptor'],
    ['shard-0'],
    ['store-writer'],
    ['store-reader-0'],
    ['events-collect'],
    ['admin'],
    ['worker', 'noroshi-worker-[01]'],
    ['workers', '(noroshi-worker-[01]|runtime)'],
  ]) {
    test(fault, async () => {
      const node = await start({ stall: '5s', events: fault.startsWith('events') })
      try {
        node.inject(`stall ${fault}`)
        assert.deepEqual(await ended(node), { code: EX_SOFTWARE, signal: null }, node.log())
        assertOneLine(node, thread ?? fault, /made no progress for \d+ s/)
      } finally {
        node.clean()
      }
    })
  }
})

test('a node with a failed shard is neither ready nor alive, rejects publishes, and delivers after a restart', { skip }, async () => {
  const node = await start({ drain: '8s', args: ['--set', 'gateway.drain.rate=1'] })
  try {
    const names = Array.from({ length: 12 }, (_, index) => `device-${index}`)
    const devices = []
    for (const name of names) devices.push(await Device.connect(node.ws, jwt(name)))
    const to = { devices: names }
    const before = await node.api.publish({ to, when: 'stored', data: 'before' })
    for (const device of devices) assert.equal((await device.msg()).id, before.id)

    const admin = (path) => node.admin(path).then((answer) => answer.status, () => undefined)
    assert.equal(await admin('/livez'), 200)
    assert.equal(await admin('/healthz'), 200)
    node.inject('panic shard-0')
    // Devices of the other shard are asked to reconnect, one per second; meanwhile the node reports its state.
    const seen = {}
    await until('the node to report the failed shard', async () => {
      assert.equal(node.exit, undefined, `the node ended before the query: ${JSON.stringify(seen)}\n${node.log()}`)
      const publish = { to, when: 'connected', data: 'lost' }
      const [live, ready, health, published] = await Promise.all([
        admin('/livez'),
        admin('/readyz'),
        admin('/healthz'),
        node.api.raw('POST', '/v1/notifications', { body: publish }).then((answer) => answer.status, () => undefined),
      ])
      Object.assign(seen, live === 503 && { live }, ready === 503 && { ready }, health === 503 && { health })
      Object.assign(seen, published === 503 && { published })
      return Object.keys(seen).length === 4
    })
    assert.deepEqual(await within('the node to end', node.exited), { code: EX_SOFTWARE, signal: null }, node.log())
    assertOneLine(node, 'shard-0', /panicked/)
    await Promise.all(devices.map((device) => within('the socket to close', device.closed)))
    const drained = devices.filter((device) => device.queue.some((frame) => frame.t === 'close' && frame.reason === 'drain'))
    assert.ok(drained.length > 0 && drained.length < devices.length, `${drained.length} were drained`)

    node.inject('')
    await node.spawn()
    const again = await Device.connect(node.ws, jwt(names[0]))
    assert.equal((await again.msg()).id, before.id, 'accepted unacknowledged messages are there')
    again.ack(before.id)
    await again.settle()
    await again.leave()
    await node.drain()
  } finally {
    node.clean()
  }
})

test('a message whose hand-over panics after the commit reaches connected devices', { skip }, async () => {
  const node = await start()
  try {
    const panics = async () => {
      const text = await (await node.admin('/metrics')).text()
      return Number(/noroshi_thread_panics_total\{kind="store_writer"\} (\d+)/.exec(text)?.[1])
    }
    for (const [round, to] of [{ users: ['user-d1'] }, { topic: 'news' }].entries()) {
      const device = await Device.connect(node.ws, jwt('d1'))
      if (to.topic) await node.api.call('PUT', `/v1/me/topics/${to.topic}`, { token: jwt('d1') })
      node.inject(`panic hand-on${' '.repeat(round)}`)
      const sent = []
      await until('a hand-over to panic', async () => {
        sent.push((await node.api.publish({ to, when: 'stored', data: sent.length })).id)
        return (await panics()) > round
      })
      sent.push((await node.api.publish({ to, when: 'stored', data: 'last' })).id)
      const received = new Set()
      while (!sent.every((id) => received.has(id))) {
        const { id } = await device.msg()
        received.add(id)
        device.ack(id)
      }
      await device.settle()
      await device.leave()
    }
    assert.equal((await node.admin('/readyz')).status, 200, 'the node continues')
    await node.drain()
  } finally {
    node.clean()
  }
})

test('if planning a write panics, only that write is rejected, and the node continues', { skip: missingEngines() ?? skip }, async () => {
  const postgres = await Postgres.start()
  try {
    const node = await start({ args: ['--set', `store.url=${postgres.url}`] })
    try {
      const panics = async () => {
        const text = await (await node.admin('/metrics')).text()
        return Number(/noroshi_thread_panics_total\{kind="runtime"\} (\d+)/.exec(text)?.[1])
      }
      node.inject('panic store-plan')
      await until('a plan to panic', async () => {
        // The fault occurs once: a group of several writes is planned again one by one, a single write is rejected.
        const publish = () =>
          node.api.raw('POST', '/v1/notifications', { body: { to: { users: ['u1'] }, when: 'stored', data: 1 } })
        const statuses = (await Promise.all(Array.from({ length: 8 }, publish))).map((answer) => answer.status)
        assert.ok(statuses.filter((status) => status !== 202).length <= 1, JSON.stringify(statuses))
        return (await panics()) === 1
      })
      await node.api.publish({ to: { users: ['u1'] }, when: 'stored', data: 'after' })
      assert.equal((await node.admin('/readyz')).status, 200)
      await node.drain()
    } finally {
      node.clean()
    }
  } finally {
    await postgres.stop()
  }
})

test('a process suspended for longer than the stall timeout continues', { skip }, async () => {
  const node = await start({ stall: '5s' })
  try {
    await poke(node)
    node.child.kill('SIGSTOP')
    await sleep(7_000)
    node.child.kill('SIGCONT')
    await poke(node)
    // More samples than a stall needs, if the suspension counted.
    await sleep(2_000)
    assert.equal((await node.admin('/readyz')).status, 200, node.log())
    await node.drain()
  } finally {
    node.clean()
  }
})

test('metrics show the state of threads', async () => {
  const node = await Node.start()
  try {
    await poke(node)
    const text = await (await node.admin('/metrics')).text()
    for (const thread of ['shard-0', 'acceptor', 'store-writer', 'store-reader-0', 'admin', 'runtime']) {
      assert.match(text, new RegExp(`noroshi_thread_turns_total\\{kind="[a-z_]+",thread="${thread}"\\} \\d+`))
      assert.match(text, new RegExp(`noroshi_thread_busy_seconds\\{kind="[a-z_]+",thread="${thread}"\\} `))
    }
    assert.match(text, /noroshi_thread_panics_total\{kind="shard"\} 0/)
  } finally {
    await node.stop()
  }
})
