/**
 * A device on the native WebSocket, driven by the npm package `ws`.
 *
 * Received frames are queued; tests take them in order. To show that nothing arrived, a test does not wait:
 * it sends a marker afterwards, which must be the next frame.
 */

import assert from 'node:assert/strict'
import WebSocket from 'ws'

import { within } from './until.mjs'

export class Device {
  /** Opens a socket with the token in the place `via`: `header`, `query` or `frame`. */
  static open(base, token, { via = 'header', path = '/v1/connect', ...options } = {}) {
    const url = base + path + (via === 'query' ? `?token=${encodeURIComponent(token)}` : '')
    const headers = via === 'header' ? { authorization: `Bearer ${token}` } : {}
    const device = new Device(new WebSocket(url, 'noroshi.v1', { headers, ...options }))
    if (via === 'frame') device.socket.once('open', () => device.send({ t: 'connect', token }))
    return device
  }

  /** Opens a socket and waits for `ready`. */
  static async connect(base, token, options) {
    const device = Device.open(base, token, options)
    device.ready = await device.next()
    assert.equal(device.ready.t, 'ready', JSON.stringify(device.ready))
    return device
  }

  constructor(socket) {
    this.socket = socket
    this.queue = []
    this.waiting = []
    this.closed = new Promise((resolve) => {
      socket.once('close', (code, reason) => {
        this.close = { code, reason: reason.toString() }
        resolve(this.close)
        this.wake()
      })
    })
    socket.on('error', (error) => (this.error = error))
    socket.on('message', (data, binary) => {
      assert.equal(binary, false, 'the native protocol speaks text')
      this.queue.push(JSON.parse(data.toString()))
      this.wake()
    })
  }

  wake() {
    for (const waiter of this.waiting.splice(0)) waiter()
  }

  send(frame) {
    this.socket.send(typeof frame === 'string' ? frame : JSON.stringify(frame))
  }

  /** The next frame of any kind. */
  next() {
    const take = async () => {
      while (this.queue.length === 0) {
        if (this.close) {
          throw new Error(`the connection ended: ${JSON.stringify(this.close)} ${this.error?.message ?? ''}`)
        }
        await new Promise((resolve) => this.waiting.push(resolve))
      }
      return this.queue.shift()
    }
    return within('a frame', take())
  }

  /** The next frame, which must be a message. */
  async msg() {
    const frame = await this.next()
    assert.equal(frame.t, 'msg', `a message was expected, not ${JSON.stringify(frame)}`)
    return frame
  }

  /** The next `count` messages. */
  async msgs(count) {
    const taken = []
    while (taken.length < count) taken.push(await this.msg())
    return taken
  }

  /** The next frame, which must have this type. */
  async frame(type) {
    const frame = await this.next()
    assert.equal(frame.t, type, `a ${type} frame was expected, not ${JSON.stringify(frame)}`)
    return frame
  }

  ack(...ids) {
    this.send({ t: 'ack', ids })
  }

  /** Waits until the service has handled everything sent before: frames are answered in order. */
  async settle() {
    this.send({ t: 'ping' })
    await this.frame('pong')
  }

  /** The close frame of the protocol, and the WebSocket close that follows it. */
  async ended() {
    const frame = await this.frame('close')
    const { code } = await within('the socket to be closed by the service', this.closed)
    return { ...frame, code }
  }

  /** Closes the WebSocket and waits for the answer. */
  async leave() {
    this.socket.close(1000)
    return within('the closing handshake', this.closed)
  }

  /** Breaks the transport without a close frame. */
  async vanish() {
    this.socket.terminate()
    return within('the socket to be gone', this.closed)
  }
}
