/**
 * Idle unauthenticated clients against a node with few descriptors: providers publish, devices connect and the operator
 * gets answers, however many sockets such clients hold.
 */

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { Agent, request } from 'node:http'
import { connect } from 'node:net'
import { after, afterEach, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { KEY, Node } from '../lib/node.mjs'
import { RawSocket, used } from '../lib/raw.mjs'
import { until, within } from '../lib/until.mjs'

/** 512 for connections: 102 of the API, 410 of devices, 102 of which may be unauthenticated. */
const DESCRIPTORS = 1_024

let node
let sockets = []
before(async () => {
  node = await Node.start({ descriptors: DESCRIPTORS })
})
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy()
})
after(() => node?.stop())

const keep = (socket) => {
  socket.on('error', () => {})
  sockets.push(socket)
  return socket
}

async function metric(name) {
  const text = await (await node.admin('/metrics')).text()
  const lines = text.split('\n').filter((line) => line.startsWith(`noroshi_${name}`) && !line.startsWith('#'))
  return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)
}

const publish = () => node.api.raw('POST', '/v1/notifications', { body: { to: { users: ['u1'] }, when: 'active', data: 1 } })

test('idle unauthenticated API connections are evicted for a provider', async () => {
  for (let i = 0; i < 150; i++) keep(await used(node.httpPort))
  for (let i = 0; i < 5; i++) {
    const answer = await publish()
    assert.equal(answer.status, 202, answer.text)
  }
  assert.ok((await metric('api_connections_evicted_total{listener="public",credential="none"}')) >= 48)
})

test('a provider keeps its connection while unauthenticated clients connect', async () => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  const once = () =>
    within(
      'an answer',
      new Promise((resolve, reject) => {
        const ask = request(`${node.http}/v1/topics`, { agent, headers: { authorization: `Bearer ${KEY}` } })
        ask.once('response', (response) => {
          response.resume()
          response.once('end', () => resolve({ status: response.statusCode, port: ask.socket.localPort }))
        })
        ask.once('error', reject)
        ask.end()
      }),
    )
  const first = await once()
  assert.equal(first.status, 200)
  for (let i = 0; i < 150; i++) keep(await used(node.httpPort))
  const second = await once()
  assert.deepEqual(second, first, 'the same connection')
  agent.destroy()
})

test('silent unauthenticated connections do not exclude devices', async () => {
  // As many as the node has descriptors.
  for (let i = 0; i < 700; i++) keep(connect(node.httpPort, '127.0.0.1'))
  await until('all to be accepted', async () => (await metric('connections_accepted_total')) >= 700)
  const { token } = await node.api.register({ user: 'u1' })
  const device = await Device.connect(node.ws, token)
  const answer = await publish()
  assert.equal(answer.status, 202, answer.text)
  await device.leave()
  assert.ok((await metric('connections_evicted_total')) > 0)
})

test('the operator gets answers while unauthenticated clients hold every connection of the admin address', async () => {
  // `fetch` keeps its connection alive, and bursts of others arrive before and after it is used.
  await node.admin('/readyz')
  for (let i = 0; i < 5; i++) {
    for (let i = 0; i < 100; i++) keep(connect(node.adminPort, '127.0.0.1'))
    const kept = await within('an answer on a kept connection', node.admin('/readyz'), 5_000)
    assert.equal(kept.status, 200)
    const fresh = await within('an answer on a new connection', status(`http://127.0.0.1:${node.adminPort}/readyz`), 5_000)
    assert.equal(fresh, 200)
  }
})

test('a WebSocket on a connection of the API costs one descriptor', async () => {
  const before = descriptors()
  for (let i = 0; i < 50; i++) {
    const socket = keep(await used(node.httpPort))
    await RawSocket.upgradeOn(socket, node.httpPort, '/v1/connect')
  }
  assert.ok(descriptors() - before <= 55, `${descriptors() - before} for 50 connections`)
})

/** The status of a GET on a new connection. */
function status(url) {
  return new Promise((resolve, reject) => {
    const ask = request(url, { agent: false }, (response) => {
      response.resume()
      response.once('end', () => resolve(response.statusCode))
    })
    ask.once('error', reject)
    ask.end()
  })
}

function descriptors() {
  return execFileSync('ls', [`/proc/${node.child.pid}/fd`]).toString().trim().split('\n').length
}

test('a client with too many connections loses its own oldest ones, and others are not affected', async () => {
  const limited = await Node.start({
    env: { NOROSHI__LIMITS__CONNECTIONS_PER_CLIENT: '5', NOROSHI__GATEWAY__CONNECTIONS_PER_CLIENT: '5' },
  })
  try {
    const other = keep(await used(limited.httpPort, '127.0.0.2'))
    const ends = []
    for (let i = 0; i < 15; i++) {
      const socket = keep(await used(limited.httpPort, '127.0.0.3'))
      ends.push(new Promise((resolve) => socket.once('close', resolve)))
    }
    await within('the first ten to be closed', Promise.all(ends.slice(0, 10)))
    assert.equal(other.readyState, 'open')
    // Silent sockets count as device connections.
    let refused = 0
    for (let i = 0; i < 15; i++) {
      const socket = keep(connect({ port: limited.httpPort, host: '127.0.0.1', localAddress: '127.0.0.4' }))
      socket.once('data', (data) => (refused += /^HTTP\/1\.1 503 [^]*retry-after/i.test(data)))
    }
    await until('ten to be rejected', () => refused === 10)
    const { token } = await limited.api.register({ user: 'u1' })
    await (await Device.connect(limited.ws, token)).leave()
  } finally {
    await limited.stop()
  }
})
