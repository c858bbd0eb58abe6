/**
 * A hand-written WebSocket over a plain socket, for input that no correct client sends (RFC 6455 §5).
 */

import { randomBytes } from 'node:crypto'
import { connect } from 'node:net'

import { within } from './until.mjs'

/** One client frame. `mask: false` omits the mask that §5.3 requires; `length` claims another length. */
export function frame(opcode, payload = '', { fin = true, rsv = 0, mask = true, length } = {}) {
  const body = Buffer.from(payload)
  const claimed = length ?? body.length
  const head = [(fin ? 0x80 : 0) | (rsv << 4) | opcode]
  const bit = mask ? 0x80 : 0
  if (claimed < 126) head.push(bit | claimed)
  else if (claimed < 65_536) head.push(bit | 126, claimed >> 8, claimed & 0xff)
  else {
    const long = Buffer.alloc(8)
    long.writeBigUInt64BE(BigInt(claimed))
    head.push(bit | 127, ...long)
  }
  if (!mask) return Buffer.concat([Buffer.from(head), body])
  const key = randomBytes(4)
  return Buffer.concat([Buffer.from(head), key, body.map((byte, i) => byte ^ key[i % 4])])
}

/** A kept-alive connection on which the API has answered a request; `from` is another address of this machine. */
export async function used(port, from) {
  const socket = connect({ port, host: '127.0.0.1', localAddress: from })
  socket.write(`GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n`)
  let bytes = Buffer.alloc(0)
  await within(
    'the answer',
    new Promise((resolve, reject) => {
      const onData = (chunk) => {
        bytes = Buffer.concat([bytes, chunk])
        const end = bytes.indexOf('\r\n\r\n')
        const length = Number(/content-length: (\d+)/i.exec(bytes.toString('latin1', 0, Math.max(end, 0)))?.[1])
        if (end >= 0 && bytes.length >= end + 4 + length) {
          socket.off('data', onData).off('error', reject)
          resolve()
        }
      }
      socket.on('data', onData).once('error', reject)
    }),
  )
  return socket
}

export class RawSocket {
  /** Connects and sends the upgrade; `received` collects the bytes after the response head. */
  static upgrade(port, path) {
    return RawSocket.upgradeOn(connect(port, '127.0.0.1'), port, path)
  }

  /** The same on an existing connection. */
  static async upgradeOn(socket, port, path) {
    const raw = new RawSocket(socket)
    raw.socket.write(
      `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${randomBytes(16).toString('base64')}\r\n` +
        'Sec-WebSocket-Protocol: noroshi.v1\r\n\r\n',
    )
    while (raw.bytes.indexOf('\r\n\r\n') < 0) await raw.more()
    const end = raw.bytes.indexOf('\r\n\r\n') + 4
    raw.head = raw.bytes.subarray(0, end).toString('latin1')
    raw.bytes = raw.bytes.subarray(end)
    return raw
  }

  constructor(socket) {
    this.socket = socket
    this.bytes = Buffer.alloc(0)
    this.ended = false
    this.waiting = []
    const wake = () => {
      for (const waiter of this.waiting.splice(0)) waiter()
    }
    socket.on('data', (chunk) => {
      this.bytes = Buffer.concat([this.bytes, chunk])
      wake()
    })
    socket.on('error', () => {})
    socket.once('close', () => {
      this.ended = true
      wake()
    })
  }

  write(...parts) {
    this.socket.write(Buffer.concat(parts))
  }

  async more() {
    if (this.ended) throw new Error('the service closed the connection')
    await within('bytes from the service', new Promise((resolve) => this.waiting.push(resolve)))
  }

  /** The next server frame as `{opcode, fin, text, code}`; never masked (§5.1). */
  async frame() {
    for (;;) {
      const bytes = this.bytes
      if (bytes.length >= 2) {
        if (bytes[1] & 0x80) throw new Error('a masked frame from the server')
        let [length, at] = [bytes[1] & 0x7f, 2]
        if (length === 126 && bytes.length >= 4) [length, at] = [bytes.readUInt16BE(2), 4]
        else if (length === 127 && bytes.length >= 10) [length, at] = [Number(bytes.readBigUInt64BE(2)), 10]
        else if (length >= 126) length = Infinity
        if (bytes.length >= at + length) {
          const payload = bytes.subarray(at, at + length)
          this.bytes = bytes.subarray(at + length)
          const opcode = bytes[0] & 0x0f
          return {
            opcode,
            fin: (bytes[0] & 0x80) !== 0,
            text: payload.toString(),
            code: opcode === 8 && length >= 2 ? payload.readUInt16BE(0) : undefined,
          }
        }
      }
      await this.more()
    }
  }

  /** All frames up to the close frame: `{texts, code}`. */
  async close() {
    const texts = []
    for (;;) {
      const { opcode, text, code } = await this.frame()
      if (opcode === 8) return { texts, code }
      if (opcode === 1) texts.push(JSON.parse(text))
    }
  }

  async gone() {
    while (!this.ended) await this.more().catch(() => {})
  }
}
