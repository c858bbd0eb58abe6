/**
 * The smallest server of each protocol: it answers a log-in and a subscription, and sends messages when it is asked to. All
 * clients get the same data, in the frames of their own protocol.
 */

import { createServer } from 'node:http'
import { once } from 'node:events'
import { generate, parser } from 'mqtt-packet'
import { WebSocketServer } from 'ws'

const BURST = 100
const BUFFERED_MAX = 1 << 20

const data = (n) => ({ n, headline: `Headline ${n} of a news site, as long as headlines usually are`, at: 1_767_225_600_000 + n })
const id = (n) => `01a2190e-8a64-7000-9ea3-${n.toString(16).padStart(12, '0')}`

/** For each library: how a connection begins, and the frame of a message. `ready` is called when it has subscribed. */
const noroshi = (ack) => ({
  protocol: 'noroshi.v1',
  begin(socket, ready) {
    socket.on('message', (text) => {
      const frame = JSON.parse(text)
      if (frame.t === 'connect') socket.send('{"t":"ready","device":"d1","session":"0000000000000001","ping_s":240}')
      else if (frame.t === 'sub') ready()
      else if (frame.t === 'ping') socket.send('{"t":"pong"}')
    })
  },
  frame: (n) =>
    JSON.stringify({ t: 'msg', id: id(n), topic: 'news', epoch: 'ccaa8904', offset: n, data: data(n), ...(ack && { ack }), sent_at: '2026-01-01T00:00:00.000Z' }),
})
const mqtt = (qos) => ({
  protocol: 'mqtt',
  begin(socket, ready) {
    const packets = parser()
    packets.on('packet', ({ cmd, messageId }) => {
      if (cmd === 'connect') socket.send(generate({ cmd: 'connack', returnCode: 0, sessionPresent: false }))
      else if (cmd === 'subscribe') {
        socket.send(generate({ cmd: 'suback', messageId, granted: [qos] }))
        ready()
      } else if (cmd === 'pingreq') socket.send(generate({ cmd: 'pingresp' }))
    })
    socket.on('message', (bytes) => packets.parse(bytes))
  },
  frame: (n) => generate({ cmd: 'publish', topic: 'news', payload: JSON.stringify(data(n)), qos, messageId: (n % 65_535) + 1, dup: false, retain: false }),
})
export const PROTOCOLS = {
  noroshi: noroshi(),
  'noroshi-ack': noroshi(true),
  centrifuge: {
    begin(socket, ready) {
      socket.on('message', (text) => {
        for (const line of text.toString().split('\n').filter(Boolean)) {
          const { id, connect, subscribe } = JSON.parse(line)
          if (connect) socket.send(JSON.stringify({ id, connect: { client: 'c', version: '6', ping: 25, pong: true } }))
          if (subscribe) {
            socket.send(JSON.stringify({ id, subscribe: {} }))
            ready()
          }
        }
      })
    },
    frame: (n) => JSON.stringify({ push: { channel: 'news', pub: { data: data(n) } } }),
  },
  'socket.io-client': {
    begin(socket, ready) {
      socket.send('0{"sid":"s","upgrades":[],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}')
      socket.on('message', (text) => {
        if (!text.toString().startsWith('40')) return
        socket.send('40{"sid":"t"}')
        ready()
      })
    },
    frame: (n) => `42${JSON.stringify(['message', data(n)])}`,
  },
  'pusher-js': {
    begin(socket, ready) {
      const send = (event, data, channel) => socket.send(JSON.stringify({ event, channel, data: JSON.stringify(data) }))
      send('pusher:connection_established', { socket_id: '1.1', activity_timeout: 120 })
      socket.on('message', (text) => {
        if (JSON.parse(text).event !== 'pusher:subscribe') return
        send('pusher_internal:subscription_succeeded', {}, 'news')
        ready()
      })
    },
    frame: (n) => JSON.stringify({ event: 'message', channel: 'news', data: JSON.stringify(data(n)) }),
  },
  mqtt: mqtt(0),
  'mqtt-qos1': mqtt(1),
}

/** A server of one protocol. */
export async function serve(name) {
  const { protocol, begin, frame } = PROTOCOLS[name]
  const http = createServer()
  const sockets = new WebSocketServer({ server: http, perMessageDeflate: false, handleProtocols: () => protocol ?? false })
  let subscribed
  const ready = new Promise((resolve) => (subscribed = resolve))
  sockets.on('connection', (socket) => begin(socket, () => subscribed(socket)))
  http.listen(0, '127.0.0.1')
  await once(http, 'listening')
  let sent = 0
  return {
    url: `http://127.0.0.1:${http.address().port}`,
    port: http.address().port,
    ready,
    /** Sends as fast as the client reads. */
    async send(count) {
      const socket = await ready
      for (const end = sent + count; sent < end; ) {
        for (const burst = Math.min(end, sent + BURST); sent < burst; ) socket.send(frame(++sent))
        while (socket.bufferedAmount > BUFFERED_MAX) await new Promise((resolve) => setTimeout(resolve, 1))
        await new Promise(setImmediate)
      }
    },
    close() {
      for (const socket of sockets.clients) socket.terminate()
      http.close()
    },
  }
}
