/**
 * Devices that come and go, each with a third-party client of its protocol. A device knows which accepted `stored`
 * notifications it still has to receive.
 */

import { client as xmppClient, xml } from '@xmpp/client'
import { EventSource } from 'eventsource'
import mqtt from 'mqtt'
import { io } from 'socket.io-client'
import WebSocket from 'ws'

import { sleep, within } from '../lib/until.mjs'

const LOG_IN_MS = 20_000
/** Ids that arrived before the answer to their request, or that nobody waits for. */
const EARLY_MAX = 2_000

/**
 * Each connects to a node and resolves with `{ closed, leave, vanish }`: a promise of the end, and two ways to end it.
 * `hear` gets every message.
 */
export const protocols = {
  native: (at, { token }, hear) =>
    new Promise((resolve, reject) => {
      const headers = { authorization: `Bearer ${token}` }
      const socket = new WebSocket(`${at.ws}/v1/connect`, 'noroshi.v1', { headers, handshakeTimeout: LOG_IN_MS })
      const closed = new Promise((ended) => socket.once('close', ended))
      socket.on('error', reject)
      closed.then(() => reject(new Error('it was closed')))
      socket.on('message', (text) => {
        const frame = JSON.parse(text)
        if (frame.t === 'ready') resolve({ closed, leave: () => socket.close(), vanish: () => socket.terminate() })
        if (frame.t !== 'msg') return
        hear(frame)
        if (frame.ack && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ t: 'ack', ids: [frame.id] }))
      })
    }),

  sse: (at, { token }, hear) =>
    new Promise((resolve, reject) => {
      const source = new EventSource(`${at.http}/v1/events?token=${token}`)
      let ended
      const closed = new Promise((end) => (ended = end))
      const leave = () => {
        source.close()
        ended()
      }
      source.addEventListener('open', () => resolve({ closed, leave, vanish: leave }))
      source.addEventListener('error', (event) => {
        leave() // it would reconnect on its own, to the same node
        reject(new Error(`event stream: ${event.message ?? event.code ?? 'ended'}`))
      })
      source.addEventListener('msg', (event) => {
        const message = JSON.parse(event.data)
        hear(message)
        if (message.ack) acknowledge(at, token, message.id)
      })
    }),

  'socket.io': (at, device, hear) => socketIo(at, device, hear, 'websocket'),
  polling: (at, device, hear) => socketIo(at, device, hear, 'polling'),

  mqtt: (at, { name, token }, hear) =>
    new Promise((resolve, reject) => {
      const options = { username: name, password: token, protocolVersion: 5, reconnectPeriod: 0, connectTimeout: LOG_IN_MS }
      const client = mqtt.connect(`mqtt://127.0.0.1:${at.mqtt}`, options)
      const closed = new Promise((ended) => client.once('close', ended))
      client.on('message', (_, payload) => hear(JSON.parse(payload.toString())))
      client.on('error', reject)
      closed.then(() => reject(new Error('it was closed')))
      client.once('connect', () =>
        client
          .subscribeAsync({ '$noroshi/inbox': { qos: 1 } })
          .then(() => resolve({ closed, leave: () => client.end(), vanish: () => client.end(true) }), reject),
      )
    }),

  async xmpp(at, { name, token }, hear) {
    const credentials = (authenticate) => authenticate({ username: name, password: token }, 'PLAIN')
    const client = xmppClient({ service: `xmpp://127.0.0.1:${at.xmpp}`, domain: 'localhost', credentials })
    client.reconnect.stop()
    client.timeout = LOG_IN_MS
    client.on('error', () => {})
    const closed = new Promise((ended) => client.once('disconnect', ended))
    client.on('stanza', (stanza) => {
      if (!stanza.is('message')) return
      const item = stanza.getChild('event')?.getChild('items')?.getChild('item') ?? stanza
      hear(JSON.parse(item.getChild('notification').getChildText('json')))
    })
    const online = new Promise((resolve) => client.once('online', resolve))
    client.start().catch(() => {})
    const stop = () => void client.stop().catch(() => {})
    try {
      await Promise.race([online, closed.then(() => Promise.reject(new Error('it was closed')))])
      await client.send(xml('presence'))
    } catch (error) {
      stop()
      throw error
    }
    return { closed, leave: stop, vanish: () => client.socket?.socket?.destroy?.() ?? client.socket?.destroy?.() ?? stop() }
  },
}

function socketIo(at, { token }, hear, transport) {
  return new Promise((resolve, reject) => {
    const socket = io(at.http, { auth: { token }, transports: [transport], forceNew: true, reconnection: false, timeout: LOG_IN_MS })
    const closed = new Promise((ended) => socket.once('disconnect', ended))
    socket.on('notification', (message, ...rest) => {
      hear(message)
      rest.find((it) => typeof it === 'function')?.()
    })
    const fail = (error) => {
      socket.disconnect()
      reject(error)
    }
    socket.once('connect', () => resolve({ closed, leave: () => socket.disconnect(), vanish: () => socket.io.engine.close() }))
    socket.once('connect_error', fail)
  })
}

/** Over HTTP. Without it the message repeats. */
function acknowledge(at, token, id) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const request = { method: 'POST', headers, body: JSON.stringify({ ids: [id] }), signal: AbortSignal.timeout(10_000) }
  fetch(`${at.api}/v1/me/inbox/ack`, request).then((answer) => answer.arrayBuffer(), () => {})
}

export class SoakDevice {
  constructor(name, kind, topic) {
    Object.assign(this, { name, kind, topic, user: `user-of-${name}` })
    /** Accepted notifications that have not arrived yet. */
    this.expected = new Set()
    this.early = new Set()
    this.received = 0
    this.logIns = 0
    this.failures = 0
  }

  /** It was accepted for this device, and may have arrived already. */
  expect(id) {
    if (!this.early.delete(id)) this.expected.add(id)
  }

  hear({ id }) {
    this.received++
    if (this.expected.delete(id)) return
    this.early.add(id)
    if (this.early.size > EARLY_MAX) this.early.delete(this.early.values().next().value)
  }

  /** Comes and goes until the run is over. `soak` has `over`, `stays` and `node(device, attempt)`. */
  async live(soak) {
    let failed = 0
    while (!soak.over) {
      const at = soak.node(this, this.logIns + this.failures)
      try {
        if (!at) throw new Error('no node')
        const connection = await within('a log-in', protocols[this.kind](at, this, (message) => this.hear(message)), LOG_IN_MS + 5_000)
        this.logIns++
        failed = 0
        const stay = sleep(soak.random(5_000, 60_000))
        await Promise.race([connection.closed, soak.stays ? soak.ended : Promise.race([stay, soak.staying])])
        if (soak.stays) await Promise.race([connection.closed, soak.ended])
        connection[soak.random(0, 2) < 1 ? 'leave' : 'vanish']()
      } catch (error) {
        this.failures++
        this.lastFailure = error.message
        await sleep(soak.random(100, 200 * 2 ** Math.min(++failed, 5)))
        continue
      }
      if (!soak.stays) await Promise.race([sleep(soak.random(0, 8_000)), soak.staying])
    }
  }
}
