/**
 * A log-in over each protocol with any credential: true if the service admits the device, false if it refuses.
 * With third-party clients, except where a status is enough.
 */

import { client as xmppClient } from '@xmpp/client'
import mqtt from 'mqtt'
import { io } from 'socket.io-client'

import { Device } from './device.mjs'
import { within } from './until.mjs'

async function webSocket({ node, token, query = '' }, via) {
  const device = Device.open(node.ws, token, { via, path: `/v1/connect${query}` })
  const frame = await device.next().catch(() => ({ t: 'closed' }))
  const isIn = frame.t === 'ready'
  if (isIn) await device.leave()
  else device.socket.terminate()
  return isIn
}

async function mqttClient({ node, device, token, app = '' }, protocolVersion) {
  const options = { protocolVersion, username: device + app, password: token, clientId: device, reconnectPeriod: 0 }
  const client = mqtt.connect(`mqtt://127.0.0.1:${node.ports.mqtt}`, options)
  const answer = new Promise((resolve) => {
    client.once('connect', () => resolve(true))
    client.on('error', () => resolve(false))
    client.once('close', () => resolve(false))
  })
  try {
    return await within('CONNACK', answer)
  } finally {
    client.end(true)
  }
}

async function xmpp({ node, device, token, app = '' }) {
  const credentials = (authenticate) => authenticate({ username: device + app, password: token }, 'PLAIN')
  const client = xmppClient({ service: `xmpp://127.0.0.1:${node.ports.xmpp}`, domain: 'localhost', credentials })
  client.reconnect.stop()
  client.timeout = 5_000
  const answer = new Promise((resolve) => {
    client.once('online', () => resolve(true))
    client.on('error', () => resolve(false))
    client.once('disconnect', () => resolve(false))
  })
  client.start().catch((error) => error.name)
  try {
    return await within('the log-in', answer)
  } finally {
    await client.stop().catch(() => {})
  }
}

async function socketIo({ node, token, auth = {} }, transports) {
  const socket = io(node.http, { auth: { token, ...auth }, transports, forceNew: true, reconnection: false })
  const answer = new Promise((resolve) => {
    socket.once('connect', () => resolve(true))
    socket.once('connect_error', () => resolve(false))
    socket.once('disconnect', () => resolve(false))
  })
  try {
    return await within('the log-in', answer)
  } finally {
    socket.disconnect()
  }
}

async function http({ node, token, query = '', headers = {} }, method, path, body) {
  const answer = await fetch(`${node.http}${path}${query}`, {
    method,
    headers: { authorization: `Bearer ${token}`, ...(body ? { 'content-type': 'application/json' } : {}), ...headers },
    body,
    signal: AbortSignal.timeout(30_000),
  })
  // An event stream has no end.
  await answer.body?.cancel()
  return answer.status < 300
}

/** `app` is `?app=NAME` after a user name, `query` the same in a URL, `auth` additional fields of Socket.IO. */
export const logIns = {
  'WebSocket, header': (as) => webSocket(as, 'header'),
  'WebSocket, frame': (as) => webSocket(as, 'frame'),
  SSE: (as) => http(as, 'GET', '/v1/events'),
  'Socket.IO, WebSocket': (as) => socketIo(as, ['websocket']),
  'Socket.IO, long polling': (as) => socketIo(as, ['polling']),
  'MQTT 3.1.1': (as) => mqttClient(as, 4),
  'MQTT 5': (as) => mqttClient(as, 5),
  XMPP: (as) => xmpp(as),
  'GET /v1/me': (as) => http(as, 'GET', '/v1/me'),
  'GET /v1/me/inbox': (as) => http(as, 'GET', '/v1/me/inbox'),
  'POST /v1/devices': (as) => http(as, 'POST', '/v1/devices', '{}'),
}

const slug = (name) => name.toLowerCase().replace(/[^a-z0-9]+/g, '-')

/**
 * All in parallel, each with its own device, whose name begins with `prefix`; `tokenOf(device)` is its credential.
 * Returns the names of the protocols that admitted their device.
 */
export async function letIn(node, prefix, tokenOf, more = {}) {
  const tried = Object.entries(logIns).map(async ([name, logIn]) => {
    const device = `${prefix}-${slug(name)}`
    return (await logIn({ node, device, token: tokenOf(device), ...more })) ? [name] : []
  })
  return (await Promise.all(tried)).flat()
}

/** The devices of `letIn`. */
export const devices = (prefix) => Object.keys(logIns).map((name) => `${prefix}-${slug(name)}`)

export const ALL = Object.keys(logIns)
