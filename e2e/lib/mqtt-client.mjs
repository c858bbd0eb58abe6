/**
 * A strict MQTT client over `mqtt-packet`, which acknowledges only on request.
 *
 * It keeps its session state across connections as §4.1 and §4.3.3 require: the packet ids of QoS 2 messages whose PUBREL
 * has not arrived. A PUBLISH with such an id is not delivered to the application again.
 */

import { once } from 'node:events'
import { connect as dial } from 'node:net'

import mqttPacket from 'mqtt-packet'

export class MqttClient {
  /** `receive(topic, payload)` is called once per message that a client delivers to its application. */
  constructor({ port, device, token, protocolVersion, receive }) {
    Object.assign(this, { port, device, token, protocolVersion, receive })
    /** Packet ids of QoS 2 messages that were received and not released. */
    this.unreleased = new Set()
    this.open = false
    this.reset()
  }

  reset() {
    /** Messages without PUBACK or PUBREC, and packet ids without PUBCOMP, in order of arrival. */
    this.unconfirmed = []
    this.released = []
    this.waiting = new Map()
  }

  /** Resolves with CONNACK; rejects if the connection ends first. */
  async connect() {
    this.reset()
    this.socket = dial(this.port, '127.0.0.1')
    this.socket.setNoDelay()
    this.ended = new Promise((resolve) => this.socket.once('close', resolve)).then(() => (this.open = false))
    this.socket.on('error', () => {})
    await Promise.race([once(this.socket, 'connect'), this.ended])
    const parser = mqttPacket.parser({ protocolVersion: this.protocolVersion })
    parser.on('packet', (packet) => this.take(packet))
    parser.on('error', (error) => this.socket.destroy(error))
    this.socket.on('data', (chunk) => parser.parse(chunk))
    const connack = this.wait('connack')
    const lasting = this.protocolVersion === 5 ? { properties: { sessionExpiryInterval: 3_600 } } : {}
    const { device: username, protocolVersion } = this
    const who = { clientId: 'kill9', username, password: Buffer.from(this.token) }
    this.send({ cmd: 'connect', protocolId: 'MQTT', protocolVersion, clean: false, keepalive: 0, ...who, ...lasting })
    const { sessionPresent } = await connack
    if (!sessionPresent) this.unreleased.clear()
    this.open = true
    return sessionPresent
  }

  async subscribe(filters) {
    const granted = this.wait('suback')
    this.send({ cmd: 'subscribe', messageId: 1, subscriptions: filters.map(([topic, qos]) => ({ topic, qos })) })
    const { granted: codes } = await granted
    if (codes.some((code) => code >= 0x80)) throw new Error(`${this.device}: ${codes}`)
  }

  send(packet) {
    this.socket.write(mqttPacket.generate(packet, { protocolVersion: this.protocolVersion }))
  }

  wait(cmd) {
    const answer = new Promise((resolve) => this.waiting.set(cmd, resolve))
    const ended = this.ended.then(() => Promise.reject(new Error(`${this.device}: ended before ${cmd}`)))
    ended.catch(() => {})
    return Promise.race([answer, ended])
  }

  take(packet) {
    this.waiting.get(packet.cmd)?.(packet)
    const { cmd, qos, messageId } = packet
    if (cmd === 'pubrel') {
      this.unreleased.delete(messageId)
      this.released.push(messageId)
    } else if (cmd === 'publish') {
      const isKnown = qos === 2 && this.unreleased.has(messageId)
      if (qos === 2) this.unreleased.add(messageId)
      if (qos > 0) this.unconfirmed.push({ qos, messageId })
      if (!isKnown) this.receive(packet.topic, packet.payload)
    }
  }

  /** PUBACK or PUBREC for the oldest `count` messages. */
  confirm(count) {
    for (const { qos, messageId } of this.unconfirmed.splice(0, count)) {
      this.send({ cmd: qos === 2 ? 'pubrec' : 'puback', messageId, reasonCode: 0 })
    }
  }

  /** PUBCOMP for the oldest `count` packet ids. */
  complete(count) {
    for (const messageId of this.released.splice(0, count)) this.send({ cmd: 'pubcomp', messageId, reasonCode: 0 })
  }

  vanish() {
    this.socket.destroy()
    return this.ended
  }
}
