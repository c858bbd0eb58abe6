/**
 * The load of the fault tests: devices that reconnect as real clients do, publishers that repeat a request under its
 * idempotency key until it is answered `202`, and the count afterwards.
 *
 *   sent        notifications answered 202
 *   repeated    requests with an error or without an answer, sent again
 *   delivered   distinct received (notification, device) pairs
 *   duplicated  received again, always with the same id. Allowed reasons:
 *                 unconfirmed  the connection ended before the acknowledgement was sent or written
 *                 topic        of a topic, whose acknowledged position is written periodically
 *   lost        accepted for a device and never received by it: must be 0
 *   revived     received again after an acknowledgement that was answered 200 over HTTP: must be 0 (direct ones)
 *   repeated on one connection: must be 0
 *   doubled     one request that became two notifications: must be 0
 *   acked       by the trace: once per device and direct notification, at most once for those of a topic
 *
 * Acknowledgements over a socket are sent once: if a gateway or a store loses one, the notification repeats at the next connection.
 */

import assert from 'node:assert/strict'
import { randomInt, randomUUID } from 'node:crypto'

import { Device } from './device.mjs'
import { api } from './api.mjs'
import { KEY } from './node.mjs'
import { sleep, until } from './until.mjs'

const TOPIC = 'faults'
/** A device that receives nothing for this long after its ping treats the connection as dead, as real ones do. */
const PING_MS = 1_000
const SILENCE_MS = 2_500
/** A log-in may wait for a slow store. */
const LOG_IN_MS = 20_000
/** Timeout of a request; it is then sent again. */
const PATIENCE_MS = 5_000
/** Between two acknowledgements of a device. */
const CONFIRM_MS = 40

/** One device with its connection, which it renews when it breaks. */
class Listener {
  constructor(load, name, over) {
    this.load = load
    this.name = name
    this.user = `user-of-${name}`
    /** `socket` or `http`. */
    this.over = over
    this.expected = new Set()
    /** By id: the number of the connection that received it last. */
    this.received = new Map()
    /** By request: its notification. */
    this.became = new Map()
    /** Ids whose acknowledgement was answered 200. */
    this.confirmed = new Set()
    /** Connections that were ready. */
    this.connects = 0
    /** The last received probe. */
    this.probe = 0
    this.history = []
  }

  async keepListening() {
    let failures = 0
    while (!this.load.over) {
      const node = this.load.gateway(this.name, this.connects + failures)
      this.at = node
      if (node && (await this.listen(node))) failures = 0
      else failures++
      // Exponential backoff with full jitter, as recommended to clients.
      if (!this.load.over) await sleep(randomInt(20, 50 * 2 ** Math.min(failures, 5)))
    }
  }

  /** Runs until the connection ends; false if there was none. */
  async listen(node) {
    const device = Device.open(node.ws, this.token, { handshakeTimeout: PATIENCE_MS })
    this.device = device
    let lastFrameAt = Date.now()
    device.socket.on('message', () => (lastFrameAt = Date.now()))
    let open = true
    this.isReady = false
    const unconfirmed = []
    const confirming = this.confirm(device, unconfirmed, () => open)
    const pinging = setInterval(() => {
      if (Date.now() - lastFrameAt > (this.isReady ? PING_MS + SILENCE_MS : LOG_IN_MS)) device.socket.terminate()
      else if (device.socket.readyState === 1) device.send({ t: 'ping' })
    }, PING_MS)
    try {
      for (;;) {
        const frame = await take(device)
        if (frame.t === 'ready') {
          this.isReady = true
          this.connects++
          this.note(`ready at ${node.name}`)
        }
        if (frame.t === 'msg' && this.receive(frame)) unconfirmed.push(frame.id)
      }
    } catch {
      // It ended.
    }
    this.note(`ended at ${node.name} ${device.close?.code ?? ''}`)
    clearInterval(pinging)
    open = false
    device.socket.terminate()
    this.device = undefined
    await confirming
    return this.isReady
  }

  get isConnected() {
    return this.isReady && this.device?.socket.readyState === 1 && this.at.isRunning && !this.at.isPaused
  }

  /** The history of its connections, for error messages. */
  note(text) {
    this.history.push(`${new Date().toISOString().slice(14)} ${text}`)
    if (this.history.length > 20) this.history.shift()
  }

  /** False if the frame needs no acknowledgement. */
  receive({ id, topic, data }) {
    if (data.probe !== undefined) {
      this.probe = Math.max(this.probe, data.probe)
      return false
    }
    const last = this.received.get(id)
    this.received.set(id, this.connects)
    const { counts } = this.load
    if (last !== undefined) {
      counts.duplicated++
      const what = `${this.name}, by ${this.over}: ${topic ? `${id} of a topic` : id}`
      if (this.confirmed.has(id) && !topic) this.load.complain('revived', `${what} was confirmed and came again`)
      else if (last === this.connects) this.load.complain('at once', `${what} came twice on one connection: ${this.history.at(-1)}`)
      else if (topic) counts[this.confirmed.has(id) ? 'again' : 'topic']++
      else counts.unconfirmed++
    }
    const became = this.became.get(data.key)
    this.became.set(data.key, id)
    if (became && became !== id) this.load.complain('doubled', `${this.name}: a request became ${became} and ${id}`)
    return true
  }

  async confirm(device, unconfirmed, isOpen) {
    while (isOpen()) {
      const ids = unconfirmed.splice(0, 500)
      if (ids.length > 0 && this.over === 'http') {
        try {
          await this.load.api().me(this.token).ack(...ids)
          for (const id of ids) this.confirmed.add(id)
        } catch {
          unconfirmed.push(...ids) // once more
        }
      } else if (ids.length > 0 && device.socket.readyState === 1) {
        device.ack(...ids)
      }
      await sleep(CONFIRM_MS)
    }
  }
}

/** The next frame of a device, without a timeout: pings detect silence. */
async function take(device) {
  while (device.queue.length === 0) {
    if (device.close) throw new Error('the connection ended')
    await new Promise((resolve) => device.waiting.push(resolve))
  }
  return device.queue.shift()
}

export class Load {
  /** `devices` connect at once, `away` at the end. */
  static async start(cluster, { devices = 18, away = 4, publishers = 3, pauseMs = 15 } = {}) {
    const load = new Load()
    load.cluster = cluster
    load.pauseMs = pauseMs
    load.counts = { repeated: 0, duplicated: 0, unconfirmed: 0, topic: 0, again: 0 }
    load.complaints = []
    load.probes = 0
    load.over = false
    load.publishing = true
    /** By id: the number of devices. */
    load.accepted = new Map()
    load.listeners = Array.from({ length: devices }, (_, i) => new Listener(load, `live-${i}`, i % 2 ? 'socket' : 'http'))
    load.away = Array.from({ length: away }, (_, i) => new Listener(load, `away-${i}`, i % 2 ? 'socket' : 'http'))
    const lines = load.all.map(({ name, user }) => ({ device: name, user, topics: [TOPIC] }))
    for (const [at, made] of (await load.api().registerBatch(lines)).entries()) {
      assert.ok(made.token, JSON.stringify(made))
      load.all[at].token = made.token
    }
    load.work = load.listeners.map((listener) => listener.keepListening())
    load.publishers = []
    await load.settled()
    load.publishers = Array.from({ length: publishers }, (_, i) => load.publish(`p${i}`))
    return load
  }

  get all() {
    return [...this.listeners, ...this.away]
  }

  get sent() {
    return this.accepted.size
  }

  /** The next address of a device: another one each time; it does not know which process is suspended. */
  gateway(name, attempt) {
    const gateways = this.cluster.having('gateway').filter((node) => node.isRunning)
    const place = [...name].reduce((sum, letter) => sum * 31 + letter.charCodeAt(0), 7)
    return gateways[(place + attempt) % Math.max(gateways.length, 1)]
  }

  /** All devices reconnect, each elsewhere, until some are at this node. */
  async moveTo(node) {
    await until(`devices at ${node.name}`, async () => {
      for (const { device } of this.listeners) device?.socket.terminate()
      await sleep(20)
      await this.settled()
      return this.at(node).length > 0
    })
  }

  /** Those whose connection is at this node. */
  at(node) {
    return this.listeners.filter((listener) => listener.at === node && listener.isConnected)
  }

  get connects() {
    return this.listeners.reduce((sum, { connects }) => sum + connects, 0)
  }

  api() {
    const nodes = this.cluster.having('api').filter((node) => node.isRunning && !node.isPaused)
    return api(nodes[randomInt(nodes.length)].http, KEY, { deadlineMs: PATIENCE_MS })
  }

  complain(kind, text) {
    this.counts[kind] = (this.counts[kind] ?? 0) + 1
    if (this.complaints.length < 20) this.complaints.push(`${kind}: ${text}`)
  }

  async publish(name) {
    for (let n = 0; this.publishing; n++) {
      await this.publishOnce({ from: name, n, key: randomUUID() })
      await sleep(this.pauseMs)
    }
  }

  /** Repeats the request until it is answered 202. */
  async publishOnce(data) {
    const kind = randomInt(10)
    let targets = this.all
    let to = { topic: TOPIC }
    if (kind > 0) {
      targets = [...new Set(Array.from({ length: 1 + randomInt(4) }, () => this.all[randomInt(this.all.length)]))]
      to = kind < 4 ? { devices: targets.map((one) => one.name) } : { users: targets.map((one) => one.user) }
    }
    for (let attempt = 0; this.publishing; attempt++) {
      try {
        const { id } = await this.api().publish({ to, data }, { 'idempotency-key': data.key })
        this.accepted.set(id, { targets: targets.length, topic: kind === 0 })
        for (const target of targets) target.expected.add(id)
        return
      } catch (error) {
        if (error.status >= 400 && error.status < 500) this.complain('refused', error.message)
        this.counts.repeated++
        await sleep(randomInt(20, 20 * 2 ** Math.min(attempt + 1, 5)))
      }
    }
  }

  /** Waits until this number of further notifications is accepted. */
  async accepts(more, deadlineMs = 60_000) {
    const wanted = this.sent + more
    await until(`${more} more notifications to be accepted`, () => this.sent >= wanted, deadlineMs)
  }

  /** Waits until every device is connected to a running node and receives current messages. */
  async settled() {
    await until('all devices to be connected', () => this.listeners.every((listener) => listener.isConnected), 60_000).catch(
      (error) => {
        const out = this.listeners.filter((listener) => !listener.isConnected)
        throw new Error([error.message, ...out.map(({ name, history }) => `${name}: ${history.join(', ')}`)].join('\n'))
      },
    )
  }

  /** Checks that every device is found: `connected` messages, which no inbox recovers, reach it. */
  async reached() {
    const first = this.probes + 1
    const waiting = () => this.listeners.filter((listener) => listener.probe < first)
    await until(
      'all devices to be found where they are',
      async () => {
        const to = { users: waiting().map(({ user }) => user) }
        if (to.users.length === 0) return true
        await this.api().publish({ to, when: 'connected', data: { probe: ++this.probes } }).catch(() => {})
        for (let i = 0; i < 20 && waiting().length > 0; i++) await sleep(20)
        return waiting().length === 0
      },
      60_000,
    ).catch((error) => {
      throw new Error([error.message, ...waiting().map(({ name, history }) => `${name}: ${history.join(', ')}`)].join('\n'))
    })
  }

  missing() {
    return this.all.flatMap((device) => [...device.expected].filter((id) => !device.received.has(id)).map((id) => [device, id]))
  }

  /** Stops publishing and connects the offline devices; everything accepted must be received and acknowledged. */
  async finish(name) {
    this.publishing = false
    await Promise.all(this.publishers)
    for (const device of this.away) this.work.push(device.keepListening())
    await until('everything accepted to be received', () => this.missing().length === 0, 60_000).catch(() => {})
    for (const [device, id] of this.missing()) {
      const [trace, whole] = [await this.api().trace(id, device.name).catch(String), await this.api().notification(id).catch(String)]
      this.complain('lost', `${device.name}: ${id} ${JSON.stringify(trace)} of ${JSON.stringify(whole)} ${device.history.join(', ')}`)
      this.complain('log', `${device.at?.name}:\n${device.at?.log(400, /sessions|lease|redis|reachable|lost/)}`)
    }
    await until('every inbox to be empty', async () => (await this.kept()).length === 0, 60_000).catch(async (error) =>
      this.complaints.push(String(error), ...(await this.kept())),
    )
    await this.checkAcks()
    this.over = true
    for (const { device } of this.all) device?.socket.terminate()
    await Promise.all(this.work)
    this.report(name)
  }

  /** The remaining content of inboxes, as text. */
  async kept() {
    const kept = async (device) => {
      const { messages } = await this.api().me(device.token).inbox(1)
      return messages.map(({ id }) => `kept: ${device.name}, by ${device.over}: ${id} ${device.history.slice(-3).join(', ')}`)
    }
    return (await Promise.all(this.all.map(kept))).flat()
  }

  /** Each target of a direct notification acknowledged once, each of a topic's at most once. */
  async checkAcks() {
    const count = async (id) => (await this.api().notification(id)).counts.acked ?? 0
    const open = [...this.accepted]
    const check = async ([id, { targets, topic }]) => {
      const enough = topic ? 0 : targets
      const acked = await until('its acks', async () => (await count(id)) >= enough && count(id), 20_000).catch(() => count(id))
      if (acked > targets || acked < enough) this.complain('acks', `${id} has ${targets} devices and ${acked} acks`)
    }
    const inTurn = async () => {
      while (open.length > 0) await check(open.pop())
    }
    await Promise.all(Array.from({ length: 6 }, inTurn))
  }

  /** Stops everything after a failed test. */
  async abandon() {
    this.publishing = false
    this.over = true
    for (const { device } of this.all) device?.socket.terminate()
    await Promise.all([...this.publishers, ...this.work])
  }

  report(name) {
    const delivered = this.all.reduce((sum, device) => sum + device.received.size, 0)
    const due = this.all.reduce((sum, device) => sum + device.expected.size, 0)
    const { repeated, duplicated, unconfirmed, topic, again, lost = 0, revived = 0 } = this.counts
    const reconnected = this.all.reduce((sum, { connects }) => sum + connects - 1, 0)
    console.log(
      `${name}: ${this.sent} sent (${repeated} requests repeated), ${due} deliveries due, ${delivered} delivered, ${duplicated} duplicated ` +
        `(${unconfirmed} unconfirmed, ${topic} of topics, ${again} of topics and confirmed, at ${reconnected} reconnects), ${lost} lost, ${revived} revived; ` +
        `${this.sent} traces with as many acks as devices`,
    )
    assert.deepEqual(this.complaints, [])
    assert.ok(due > 0, 'nothing was sent')
  }
}
