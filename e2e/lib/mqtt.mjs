/** Devices as MQTT clients, with the npm package `mqtt`. */

import assert from 'node:assert/strict'

import mqtt from 'mqtt'

import { Node, cli, freePort } from './node.mjs'
import { within } from './until.mjs'

/** A node whose devices may publish to `open/#`, and its MQTT address. */
export async function startOpenNode() {
  const port = await freePort()
  const node = await Node.start({ args: ['--mqtt', `127.0.0.1:${port}`] })
  const { code, stderr } = await cli(['apps', 'update', 'dev', '--client-publish', 'open/#', '--data-dir', node.data])
  assert.equal(code, 0, stderr)
  return { node, url: `mqtt://127.0.0.1:${port}` }
}

/** A connected client; its messages are in `received`, the reason code of DISCONNECT in `disconnectCode`. */
export async function connect(url, device, options = {}) {
  const client = mqtt.connect(url, {
    protocolVersion: 5,
    username: device.device,
    password: device.token,
    clientId: 'e2e',
    reconnectPeriod: 0,
    ...options,
  })
  client.received = []
  client.on('message', (topic, payload, packet) => client.received.push({ ...packet, topic, text: payload.toString() }))
  client.on('disconnect', (packet) => (client.disconnectCode = packet.reasonCode))
  client.on('error', () => {})
  client.connack = await within(
    'CONNACK',
    new Promise((resolve, reject) => {
      client.once('connect', resolve)
      client.once('error', reject)
    }),
  )
  return client
}

export const texts = (client) => client.received.map(({ topic, text }) => `${topic} ${text}`)

/** The `data` of a provider's messages. */
export const datas = (client) => client.received.map(({ text }) => JSON.parse(text).data)
