/** The gateway's answers to frames that no correct client sends. Other clients are not disturbed. */

import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { after, before, test } from 'node:test'
import WebSocket from 'ws'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { RawSocket, frame } from '../lib/raw.mjs'
import { within } from '../lib/until.mjs'

let node, bystander, bystanderId
before(async () => {
  node = await Node.start()
  const { device, token } = await node.api.register()
  bystanderId = device
  bystander = await Device.connect(node.ws, token)
})
after(async () => {
  await bystander?.leave()
  await node?.stop()
})

const [TEXT, CLOSE, PING, PONG] = [1, 8, 9, 10]

/** A raw connection, logged in. */
async function ready() {
  const { token } = await node.api.register()
  const raw = await RawSocket.upgrade(node.httpPort, `/v1/connect?token=${token}`)
  assert.match(raw.head, /^HTTP\/1\.1 101 /)
  assert.match(raw.head, /sec-websocket-protocol: noroshi\.v1/i)
  assert.equal(JSON.parse((await raw.frame()).text).t, 'ready')
  return raw
}

for (const [what, bytes, code, reason] of [
  ['an unmasked frame', [frame(TEXT, '{"t":"ping"}', { mask: false })], 1002, 'protocol_error'],
  ['a reserved bit', [frame(TEXT, '{"t":"ping"}', { rsv: 4 })], 1002, 'protocol_error'],
  ['a reserved opcode', [frame(3, 'x')], 1002, 'protocol_error'],
  ['a reserved control opcode', [frame(11, 'x')], 1002, 'protocol_error'],
  ['a continuation of nothing', [frame(0, 'x')], 1002, 'protocol_error'],
  ['a new message inside a fragmented one', [frame(TEXT, 'a', { fin: false }), frame(TEXT, 'b')], 1002, 'protocol_error'],
  ['a fragmented ping', [frame(PING, 'x', { fin: false })], 1002, 'protocol_error'],
  ['a ping over 125 bytes', [frame(PING, 'x'.repeat(126))], 1002, 'protocol_error'],
  ['text that is not UTF-8', [frame(TEXT, Buffer.from([0x22, 0xff, 0x22]))], 1007, 'invalid_utf8'],
  ['text cut inside a character', [frame(TEXT, Buffer.from([0xe7, 0x8b]))], 1007, 'invalid_utf8'],
  ['a frame over the limit, before its payload comes', [frame(TEXT, '', { length: 65_537 })], 1009, 'too_big'],
  ['a frame that claims 2^62 bytes', [frame(TEXT, '', { length: 2 ** 62 })], 1009, 'too_big'],
  [
    'fragments that together are over the limit',
    [frame(TEXT, 'x'.repeat(40_000), { fin: false }), frame(0, 'x'.repeat(40_000))],
    1009,
    'too_big',
  ],
]) {
  test(`${what} ends the connection with ${code}`, async () => {
    const raw = await ready()
    raw.write(...bytes)
    const { texts, code: answered } = await raw.close()
    assert.equal(answered, code)
    assert.deepEqual(texts.map(({ t, reason: told }) => [t, told]), [['close', reason]])
    await raw.gone()
    await bystander.settle()
  })
}

test('a broken frame before the log-in is answered in the same way', async () => {
  const raw = await RawSocket.upgrade(node.httpPort, '/v1/connect')
  raw.write(frame(TEXT, Buffer.from([0xff])))
  assert.equal((await raw.close()).code, 1007)
})

test('fragments with control frames between them are accepted', async () => {
  const raw = await ready()
  raw.write(frame(TEXT, '{"t":', { fin: false }), frame(PING, 'hello'), frame(0, '"ping"', { fin: false }), frame(0, '}'))
  const pong = await raw.frame()
  assert.deepEqual([pong.opcode, pong.text], [PONG, 'hello'])
  assert.deepEqual(JSON.parse((await raw.frame()).text), { t: 'pong' })
  raw.write(frame(CLOSE, Buffer.from([0x03, 0xe8])))
  const answer = await raw.frame()
  assert.deepEqual([answer.opcode, answer.code], [CLOSE, 1000])
  await raw.gone()
})

test('a frame that arrives one byte at a time is accepted', async () => {
  const raw = await ready()
  raw.socket.setNoDelay(true)
  for (const byte of frame(TEXT, '{"t":"ping"}')) {
    raw.write(Buffer.from([byte]))
    await new Promise((resolve) => setImmediate(resolve))
  }
  assert.deepEqual(JSON.parse((await raw.frame()).text), { t: 'pong' })
  raw.socket.destroy()
})

for (const [what, text, naming] of [
  ['no JSON', '{"t":', undefined],
  ['no object', '[]', undefined],
  ['an unknown type', '{"t":"subscribe"}', undefined],
  ['an unknown field', '{"t":"sub","topics":["a"],"topic":"a"}', undefined],
  ['a missing field', '{"t":"ack"}', /ids/],
  ['an id that is none', '{"t":"ack","ids":["7"]}', /ids/],
  ['a wrong state', '{"t":"presence","state":"busy"}', /state/],
  ['a reserved topic', '{"t":"sub","topics":["$everyone"]}', /topic/],
]) {
  test(`a message with ${what} is answered with an error frame`, async () => {
    const device = await Device.connect(node.ws, (await node.api.register()).token)
    device.send(text)
    const error = await device.frame('error')
    assert.match(error.code, /^[a-z_]+$/)
    assert.match(error.message, naming ?? /./)
    await device.settle()
    await device.leave()
  })
}

test('a client that floods frames is closed with a reason', async () => {
  const device = await Device.connect(node.ws, (await node.api.register()).token)
  for (let i = 0; i < 1_000; i++) device.send({ t: 'ping' })
  let frame
  do frame = await device.next()
  while (frame.t === 'pong')
  assert.deepEqual([frame.t, frame.reason], ['close', 'rate_limited'])
  assert.equal((await within('the close', device.closed)).code, 4008)
  await bystander.settle()
})

test('a client with only another subprotocol is rejected, one without any is accepted', async () => {
  const { token } = await node.api.register()
  const other = new Device(new WebSocket(`${node.ws}/v1/connect?token=${token}`, 'mqtt'))
  await other.closed
  assert.ok(other.error, 'the handshake fails')
  const none = new Device(new WebSocket(`${node.ws}/v1/connect?token=${token}`))
  assert.equal((await none.next()).t, 'ready')
  await none.leave()
})

for (const [what, head, status] of [
  ['no HTTP at all', 'hello\r\n\r\n', 400],
  ['a head over the limit', `GET / HTTP/1.1\r\nHost: x\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`, 431],
  ['an upgrade without a key', 'GET /v1/connect HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\r\n', 400],
  ['another WebSocket version', 'GET /v1/connect HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 8\r\n\r\n', 426],
]) {
  test(`${what} is answered with ${status}`, async () => {
    const raw = new RawSocket(connect(node.httpPort, '127.0.0.1'))
    raw.write(Buffer.from(head))
    while (raw.bytes.indexOf('\r\n') < 0) await raw.more()
    assert.match(raw.bytes.toString('latin1'), new RegExp(`^HTTP/1\\.1 ${status} `))
    raw.socket.destroy()
  })
}

test('the other client received all its messages', async () => {
  await node.api.publish({ to: { devices: [bystanderId] }, when: 'connected', data: 'still there' })
  assert.equal((await bystander.msg()).data, 'still there')
})
