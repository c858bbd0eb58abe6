/**
 * A peer that vanished is detected in every protocol: the kernel probes every silent connection of a
 * device listener. The tests read the timer that the kernel shows for each socket (proc_net_tcp(5)): `02` is the timer of
 * keepalive probes, with the time until the first one.
 */

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { after, before, test } from 'node:test'

import { connect as mqttClient } from '../lib/mqtt.mjs'
import { Node, freePort } from '../lib/node.mjs'
import { until, within } from '../lib/until.mjs'
import { Stream } from '../lib/xmpp.mjs'

const PROBES = '02'
const USER_HZ = 100
/** The default of gateway.tcp_keepalive. */
const KEEPALIVE_S = 300

let node, mqttPort, xmppPort
before(async () => {
  ;[mqttPort, xmppPort] = [await freePort(), await freePort()]
  node = await Node.start({ args: ['--mqtt', `127.0.0.1:${mqttPort}`, '--xmpp', `127.0.0.1:${xmppPort}`] })
})
after(() => node?.stop())

const hex = (port) => port.toString(16).toUpperCase().padStart(4, '0')

/** The service's end of a connection in the kernel's table. */
function socketOf(port, clientPort) {
  const rows = readFileSync('/proc/net/tcp', 'utf8').split('\n').map((row) => row.trim().split(/\s+/))
  const row = rows.find((row) => row[1]?.endsWith(`:${hex(port)}`) && row[2]?.endsWith(`:${hex(clientPort)}`))
  if (!row) return undefined
  const [timer, when] = row[5].split(':')
  return { timer, seconds: parseInt(when, 16) / USER_HZ }
}

/** Whether this kernel shows timers, tested with a local socket. */
function showsTimers() {
  try {
    return /tr tm->when/.test(readFileSync('/proc/net/tcp', 'utf8'))
  } catch {
    return false
  }
}

const skip = showsTimers() ? false : 'the kernel shows no timers in /proc/net/tcp'

/** While data is in flight, the timer has another type. */
async function isProbed(port, clientPort) {
  const socket = await until('the timer of the socket', () => {
    const socket = socketOf(port, clientPort)
    return socket && (socket.timer === PROBES || socket.timer === '00') ? socket : undefined
  })
  assert.equal(socket.timer, PROBES, 'the kernel never probes this peer')
  assert.ok(socket.seconds > 0 && socket.seconds <= KEEPALIVE_S, `in ${socket.seconds} s`)
}

for (const [version, keepalive] of [[4, 0], [5, 0], [4, 60]]) {
  test(`a client of MQTT ${version} with keep alive ${keepalive} is probed`, { skip }, async () => {
    const device = await node.api.register()
    const client = await mqttClient(`mqtt://127.0.0.1:${mqttPort}`, device, { protocolVersion: version, keepalive })
    await isProbed(mqttPort, client.stream.localPort)
    await client.endAsync()
  })
}

test('a stream of XMPP is probed', { skip }, async () => {
  const stream = await Stream.open(xmppPort)
  await isProbed(xmppPort, stream.socket.localPort)
  stream.vanish()
})

test('a silent connection is probed', { skip }, async () => {
  const socket = connect(node.httpPort, '127.0.0.1')
  await new Promise((resolve) => socket.once('connect', resolve))
  await isProbed(node.httpPort, socket.localPort)
  socket.destroy()
})

test('an event stream is probed', { skip }, async () => {
  const { token } = await node.api.register()
  const socket = connect(node.httpPort, '127.0.0.1')
  socket.write(`GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n\r\n`)
  await new Promise((resolve) => socket.once('data', resolve))
  await isProbed(node.httpPort, socket.localPort)
  socket.destroy()
})

/**
 * Connects, writes its input, and vanishes on command: in repair mode (tcp(7), TCP_REPAIR) the kernel drops a socket
 * without notifying its peer. `check` only tests the permission.
 */
const VANISHING = `
import socket, sys
TCP_REPAIR = 19
if sys.argv[1] == 'check':
    socket.socket().setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    sys.exit()
peer = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
peer.sendall(bytes.fromhex(sys.argv[2]))
print(peer.recv(4096).hex(), flush=True)
sys.stdin.readline()
peer.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
peer.close()
print('gone', flush=True)
`
const mayVanish = spawnSync('python3', ['-c', VANISHING, 'check']).status === 0

const text = (value) => Buffer.concat([Buffer.from([value.length >> 8, value.length & 0xff]), Buffer.from(value)])

/** CONNECT of MQTT 3.1.1 with keep alive 0 and a clean session. */
function connectPacket({ device, token }) {
  const flags = 0x80 | 0x40 | 0x02
  const body = Buffer.concat([text('MQTT'), Buffer.from([4, flags, 0, 0]), text('c'), text(device), text(token)])
  assert.ok(body.length > 127 && body.length < 16_384)
  return Buffer.concat([Buffer.from([0x10, (body.length & 0x7f) | 0x80, body.length >> 7]), body])
}

test('a vanished client with keep alive 0 becomes offline', { skip: !mayVanish && 'no permission to drop a socket silently' }, async () => {
  const port = await freePort()
  const own = await Node.start({ args: ['--mqtt', `127.0.0.1:${port}`, '--set', 'gateway.tcp_keepalive=1s'] })
  try {
    const device = await own.api.register()
    const peer = spawn('python3', ['-c', VANISHING, String(port), connectPacket(device).toString('hex')])
    let said = ''
    peer.stdout.on('data', (chunk) => (said += chunk))
    const presence = async () => (await own.api.call('GET', `/v1/devices/${device.device}`)).presence
    await until('CONNACK', () => said.startsWith('20020000'))
    assert.notEqual(await presence(), 'offline')
    peer.stdin.end('\n')
    await within('the peer to vanish', new Promise((resolve) => peer.once('close', resolve)))
    assert.match(said, /gone/)
    await until('the device to be offline', async () => (await presence()) === 'offline')
  } finally {
    await own.stop()
  }
})
