/** A front with three cells, each a separate process: routing, waiting, and no loss. */

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { Node, cli } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const NAMES = ['a', 'b', 'c']
const cells = {}
let front

before(async () => {
  await Promise.all(NAMES.map(async (name) => (cells[name] = await Node.start())))
  front = await Node.start({ args: ['--role', 'front'], env: { NOROSHI__FRONT__CELLS_FILE: file() } })
  for (const name of NAMES) {
    await until(`the cell ${name} to know the app`, async () => (await keysOf(name)).includes('front'))
  }
})
after(async () => {
  await front?.stop()
  for (const name of NAMES) await cells[name]?.stop()
})

/** `cells.toml`, in the data folder of one of the cells. */
function file() {
  const path = join(cells.a.data, 'cells.toml')
  const entries = NAMES.map((name) => {
    const token = operatorToken(name)
    const { httpPort, adminPort } = cells[name]
    return `[[cell]]\nname = "${name}"\nurls = ["http://127.0.0.1:${httpPort}"]\n` +
      `admin_url = "http://127.0.0.1:${adminPort}"\noperator_token = "${token}"\n`
  })
  writeFileSync(path, entries.join('\n'), { mode: 0o600 })
  return path
}

const operatorToken = (name) => readFileSync(join(cells[name].data, 'operator.token'), 'utf8').trim()

async function keysOf(name) {
  const url = `http://127.0.0.1:${cells[name].adminPort}/v1/apps/dev/keys`
  const answer = await fetch(url, { headers: { authorization: `Bearer ${operatorToken(name)}` } })
  return answer.ok ? (await answer.json()).keys.map((key) => key.name) : []
}

const listed = async () => {
  const { code, stdout, stderr } = await front.cli('cells', 'list', '--json')
  assert.equal(code, 0, stderr)
  return Object.fromEntries(JSON.parse(stdout).cells.map((cell) => [cell.cell, cell]))
}

/** The cell whose address the device received. */
const cellOf = ({ connect }) => NAMES.find((name) => connect.websocket.startsWith(cells[name].ws))

/** A user with one device in this cell, connected there. */
async function resident(name, prefix) {
  for (let n = 0; ; n++) {
    const user = `${prefix}-${n}`
    const registered = await front.api.register({ user, device: user })
    if (cellOf(registered) !== name) continue
    const open = () => Device.connect(cells[name].ws, registered.token)
    return { user, token: registered.token, open, device: await open() }
  }
}

const part = async (id, cell) => (await front.api.notification(id)).cells.find((one) => one.cell === cell)?.state

test('a device gets the address of its cell, and receives there messages published at the front', async () => {
  const [a, b] = [await resident('a', 'receives'), await resident('b', 'receives')]
  const one = await front.api.publish({ to: { users: [a.user] }, data: 'one' })
  const all = await front.api.publish({ to: { everyone: true }, data: 'all' })
  assert.equal((await a.device.msg()).data, 'one')
  assert.equal((await a.device.msg()).data, 'all')
  assert.equal((await b.device.msg()).data, 'all', 'users of another cell are not affected')
  assert.deepEqual((await front.api.notification(one.id)).cells.map((cell) => cell.cell), ['a'])
  await until('all cells to accept it', async () => (await part(all.id, 'c')) !== 'waiting')
  assert.equal((await front.api.notification(all.id)).cells.length, 3)
  const told = await front.api.raw('GET', '/v1/connect', { token: a.token })
  assert.equal(told.status, 421)
  assert.equal(told.body.connect.websocket, `${cells.a.ws}/v1/connect`)
  await a.device.leave()
  await b.device.leave()
})

test('a killed cell delays only its own devices, without duplicates', async () => {
  const [a, b] = [await resident('a', 'killed'), await resident('b', 'killed')]
  await b.device.vanish()
  await cells.b.kill()
  let last
  for (let n = 0; n < 50; n++) {
    last = await front.api.publish({ to: { users: [b.user] }, data: n })
    const started = Date.now()
    await front.api.publish({ to: { users: [a.user] }, data: n })
    assert.equal((await a.device.msg()).data, n)
    assert.ok(Date.now() - started < 5_000, 'the others do not wait')
  }
  await until('the front to detect the outage', async () => !(await listed()).b.up)
  assert.equal((await listed()).b.waiting, 50)
  const refused = await front.api.raw('GET', '/v1/me', { token: b.token })
  assert.deepEqual([refused.status, refused.body.code], [503, 'cell_unavailable'])
  await cells.b.spawn()
  await until('the cell to accept the rest', async () => (await part(last.id, 'b')) !== 'waiting')
  const device = await b.open()
  const received = await device.msgs(50)
  assert.deepEqual(received.map((message) => message.data), [...Array(50).keys()])
  assert.equal(new Set(received.map((message) => message.id)).size, 50)
  device.ack(...received.map((message) => message.id))
  await device.settle()
  await device.leave()
  await a.device.leave()
})

test('notifications answered with 202 survive a SIGKILL of the front', async () => {
  const c = await resident('c', 'front')
  const answered = []
  let stop = false
  const publish = async (lane) => {
    for (let n = 0; !stop; n++) {
      const data = `${lane}-${n}`
      try {
        await front.api.publish({ to: { users: [c.user] }, data })
        answered.push(data)
      } catch {
        if (stop) return
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
    }
  }
  const lanes = [0, 1, 2, 3].map(publish)
  for (let round = 0; round < 3; round++) {
    const before = answered.length
    await until('requests to be answered', () => answered.length >= before + 40)
    await front.kill()
    await front.spawn()
  }
  stop = true
  await Promise.all(lanes)
  const received = new Map()
  await until('all accepted notifications to be received', async () => {
    const { id, data } = await c.device.msg()
    received.set(data, [...(received.get(data) ?? []), id])
    return answered.every((data) => received.has(data))
  })
  for (const [data, ids] of received) assert.equal(ids.length, 1, `${data} arrived as ${ids}`)
  await c.device.leave()
})

test('a drained cell gets no new users, and a moved user keeps waiting messages', async () => {
  const a = await resident('a', 'moved')
  await a.device.leave()
  const { id } = await front.api.publish({ to: { users: [a.user] }, data: 'kept' })
  await until('the cell to accept it', async () => (await part(id, 'a')) !== 'waiting')
  assert.equal((await front.cli('cells', 'drain', 'a')).code, 0)
  for (let n = 0; n < 10; n++) assert.notEqual(cellOf(await front.api.register({ user: `new-${n}` })), 'a')
  const moved = await front.cli('cells', 'move', 'a', 'c', '--app', 'dev', '--user', a.user)
  assert.deepEqual([moved.code, moved.stdout], [0, '1 users and 1 devices move from a to c\n'], moved.stderr)
  await until('its tokens to be revoked', async () => (await front.api.raw('GET', '/v1/me', { token: a.token })).status === 401)
  const registered = await front.api.register({ user: a.user, device: a.user })
  assert.equal(cellOf(registered), 'c')
  const device = await Device.connect(cells.c.ws, registered.token)
  assert.equal((await device.msg()).data, 'kept')
  await until('it to leave the first cell', async () => (await listed()).a.leaving === 0)
  await device.leave()
  assert.equal((await front.cli('cells', 'drain', 'a', '--cancel')).code, 0)
  const weighed = await front.cli('cells', 'weight', 'b', '0')
  assert.equal(weighed.stdout, 'b: weight 0, draining false\n')
  assert.equal((await front.cli('cells', 'weight', 'b', 'config')).code, 0)
  assert.notEqual((await cli(['cells', 'weight', 'b', 'much'])).code, 0)
})
