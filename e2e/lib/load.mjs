/**
 * The load of the fault tests: devices that reconnect as real clients do, publishers whose every `202` is remembered, and
 * the count afterwards.
 *
 *   sent        notifications answered 202
 *   delivered   distinct (notification, device) pairs that were heard
 *   duplicated  heard more than once: allowed, always with the same id
 *   lost        accepted for a device and never heard by it: must be 0
 *   revived     heard again after a confirmation that was answered 200 over HTTP: must be 0 (direct ones; the position of a
 *               topic is written now and then, and what ends at once may repeat what was confirmed last)
 *   acked       by the trace: at most once for each device, and once in the end
 *
 * What was not answered may be heard or not; both are right.
 */

import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'

import { Device } from './device.mjs'
import { api } from './api.mjs'
import { KEY } from './node.mjs'
import { sleep, until, within } from './until.mjs'

const TOPIC = 'faults'
/** A device that hears nothing for so long after its ping takes the connection for dead, as real ones do. */
const PING_MS = 1_000
const SILENCE_MS = 2_500
/** A log-in may wait for a store that is slow. */
const LOG_IN_MS = 20_000
/** A request that a node died under is given up. */
const PATIENCE_MS = 5_000

/** One device with its connection, which it renews whenever it is gone. */
class Listener {
  constructor(load, name, over) {
    this.load = load
    this.name = name
    this.user = `user-of-${name}`
    /** `socket`, `http`, or undefined: away until the end. */
    this.over = over
    this.expected = new Set()
    this.heard = new Map()
    /** Ids whose confirmation was answered 200. */
    this.confirmed = new Set()
    this.connects = 0
    this.history = []
    this.offsets = []
  }

  async keepListening() {
    let failures = 0
    while (!this.load.over) {
      const node = this.load.gateway(this.name, this.connects + failures)
      this.at = node
      if (node && (await this.listen(node))) failures = 0
      else failures++
      // Full jitter on a pause that doubles, as clients are told to.
      if (!this.load.over) await sleep(randomInt(20, 50 * 2 ** Math.min(failures, 5)))
    }
  }

  /** Until the connection ends; false if there was none. */
  async listen(node) {
    const device = Device.open(node.ws, this.token, { handshakeTimeout: PATIENCE_MS })
    this.device = device
    let heardAt = Date.now()
    device.socket.on('message', () => (heardAt = Date.now()))
    let open = true
    this.isReady = false
    const unconfirmed = []
    const confirming = this.confirm(device, unconfirmed, () => open)
    const pinging = setInterval(() => {
      if (Date.now() - heardAt > (this.isReady ? PING_MS + SILENCE_MS : LOG_IN_MS)) device.socket.terminate()
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
        if (frame.t === 'msg') {
          this.hear(frame)
          unconfirmed.push(frame)
        }
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

  /** What happened to its connections, told where something was lost. */
  note(text) {
    this.history.push(`${new Date().toISOString().slice(11)} ${text}`)
    if (this.history.length > 20) this.history.shift()
  }

  hear({ id, topic, offset }) {
    if (topic) this.offsets.push(`${new Date().toISOString().slice(14)}:${offset}`)
    if (this.offsets.length > 200) this.offsets.shift()
    const times = (this.heard.get(id) ?? 0) + 1
    this.heard.set(id, times)
    if (times > 1) this.load.counts.duplicated++
    if (this.confirmed.has(id) && !topic) this.load.complain('revived', `${this.name}: ${id} was confirmed and came again`)
  }

  async confirm(device, unconfirmed, isOpen) {
    while (isOpen()) {
      const ids = unconfirmed.splice(0, 500).map(({ id }) => id)
      if (ids.length > 0 && this.over === 'http') {
        try {
          await this.load.api().me(this.token).ack(...ids)
          for (const id of ids) this.confirmed.add(id)
        } catch {
          unconfirmed.push(...ids.map((id) => ({ id }))) // once more
        }
      } else if (ids.length > 0 && device.socket.readyState === 1) {
        device.ack(...ids)
      }
      await sleep(40)
    }
  }
}

/** The next frame of a device, however long it takes: what is quiet is found by its pings. */
async function take(device) {
  while (device.queue.length === 0) {
    if (device.close) throw new Error('the connection ended')
    await new Promise((resolve) => device.waiting.push(resolve))
  }
  return device.queue.shift()
}

export class Load {
  /** `devices` connect, `away` come at the end. */
  static async start(cluster, { devices = 18, away = 4, publishers = 3, pauseMs = 15 } = {}) {
    const load = new Load()
    load.cluster = cluster
    load.pauseMs = pauseMs
    load.counts = { sent: 0, unanswered: 0, duplicated: 0, revived: 0, lost: 0 }
    load.complaints = []
    load.over = false
    load.publishing = false
    load.accepted = []
    load.listeners = Array.from({ length: devices }, (_, i) => new Listener(load, `live-${i}`, i % 2 ? 'socket' : 'http'))
    load.away = Array.from({ length: away }, (_, i) => new Listener(load, `away-${i}`))
    for (const device of load.all) {
      const made = await load.api().register({ device: device.name, user: device.user, topics: [TOPIC] })
      device.token = made.token
    }
    load.work = load.listeners.map((listener) => listener.keepListening())
    await until('all devices to be connected', () => load.listeners.every((listener) => listener.connects > 0))
    load.resume(publishers)
    return load
  }

  get all() {
    return [...this.listeners, ...this.away]
  }

  /** Begins to publish. */
  resume(publishers = 3) {
    this.publishing = true
    this.publishers = Array.from({ length: publishers }, (_, i) => this.publish(`p${i}`))
  }

  /** Where a device tries: another one each time, but a stopped process is as good as any to it. */
  gateway(name, attempt) {
    const gateways = this.cluster.having('gateway').filter((node) => node.isRunning)
    const place = [...name].reduce((sum, letter) => sum * 31 + letter.charCodeAt(0), 7)
    return gateways[(place + attempt) % Math.max(gateways.length, 1)]
  }

  api() {
    const nodes = this.cluster.having('api').filter((node) => node.isRunning && !node.isPaused)
    return api(nodes[randomInt(nodes.length)].http, KEY)
  }

  complain(kind, text) {
    this.counts[kind]++
    if (this.complaints.length < 20) this.complaints.push(`${kind}: ${text}`)
  }

  async publish(name) {
    for (let n = 0; this.publishing; n++) {
      try {
        await within('an answer', this.publishOnce(name, n), PATIENCE_MS)
      } catch {
        this.counts.unanswered++
        await sleep(20)
      }
      await sleep(this.pauseMs)
    }
  }

  async publishOnce(name, n) {
    const data = { from: name, n }
    const kind = randomInt(10)
    if (kind === 0) {
      const { id } = await this.api().publish({ to: { topic: TOPIC }, data })
      return this.expect(this.all, id, false)
    }
    const some = [...new Set(Array.from({ length: 1 + randomInt(4) }, () => this.all[randomInt(this.all.length)]))]
    const to = kind < 4 ? { devices: some.map((one) => one.name) } : { users: some.map((one) => one.user) }
    const { id } = await this.api().publish({ to, data })
    this.expect(some, id, true)
  }

  expect(targets, id, direct) {
    this.counts.sent++
    for (const target of targets) target.expected.add(id)
    if (direct) this.accepted.push({ id, targets: targets.length })
  }

  /** So many more notifications are accepted from now on. */
  async accepts(more, deadlineMs = 60_000) {
    const wanted = this.counts.sent + more
    await until(`${more} more notifications to be accepted`, () => this.counts.sent >= wanted, deadlineMs)
  }

  /** Every device is connected to a node that runs and hears what is published now. */
  async settled() {
    const isIn = ({ device, at, isReady }) => isReady && device?.socket.readyState === 1 && at.isRunning && !at.isPaused
    await until('all devices to be connected', () => this.listeners.every(isIn), 60_000).catch((error) => {
      const out = this.listeners.filter((listener) => !isIn(listener)).map(({ name, history }) => `${name}: ${history.join(', ')}`)
      throw new Error(`${error.message}\n${out.join('\n')}`)
    })
  }

  missing() {
    return this.all.flatMap((device) => [...device.expected].filter((id) => !device.heard.has(id)).map((id) => [device, id]))
  }

  /** Publishing ends, those that were away come, and everything accepted has to be heard and confirmed. */
  async finish(name) {
    this.publishing = false
    await Promise.all(this.publishers)
    for (const device of this.away) {
      device.over = 'http'
      this.work.push(device.keepListening())
    }
    await until('everything accepted to be heard', () => this.missing().length === 0, 120_000).catch(() => {})
    for (const [device, id] of this.missing()) {
      const [trace, whole] = [await this.api().trace(id, device.name).catch(String), await this.api().notification(id).catch(String)]
      this.complain('lost', `${device.name}: ${id} ${JSON.stringify(trace)} of ${JSON.stringify(whole)} ${device.history.join(', ')}`)
      if (process.env.FAULTS_VERBOSE) console.log(device.name, id, device.offsets.join(' '))
    }
    // A confirmation over a socket may be lost with what was to write it; at the next connection it is asked for again.
    for (const { device } of this.listeners) device?.socket.terminate()
    await until(
      'every inbox to be empty',
      async () => {
        const inboxes = await Promise.all(this.all.map((device) => this.api().me(device.token).inbox(1)))
        return inboxes.every(({ messages }) => messages.length === 0)
      },
      60_000,
    ).catch((error) => this.complaints.push(String(error)))
    await this.checkAcks()
    this.over = true
    for (const { device } of this.all) device?.socket.terminate()
    await Promise.all(this.work)
    this.report(name)
  }

  /** Of a sample: each target confirmed once, and nobody more often. */
  async checkAcks() {
    const step = Math.max(1, Math.floor(this.accepted.length / 40))
    this.acked = 0
    for (const { id, targets } of this.accepted.filter((_, i) => i % step === 0)) {
      const count = async () => (await this.api().notification(id)).counts.acked ?? 0
      const acked = await until(`${id} to be acked`, async () => (await count()) >= targets && count(), 30_000).catch(count)
      this.acked++
      if (acked !== targets) this.complaints.push(`acks: ${id} has ${targets} devices and ${acked} acks`)
    }
  }

  /** A test failed: nothing goes on. */
  async abandon() {
    this.publishing = false
    this.over = true
    for (const { device } of this.all) device?.socket.terminate()
    await Promise.all([...this.publishers, ...this.work])
  }

  report(name) {
    const delivered = this.all.reduce((sum, device) => sum + device.heard.size, 0)
    const due = this.all.reduce((sum, device) => sum + device.expected.size, 0)
    const { sent, unanswered, duplicated, lost, revived } = this.counts
    console.log(
      `${name}: ${sent} sent (${unanswered} requests unanswered), ${due} deliveries due, ${delivered} delivered, ` +
        `${duplicated} duplicated, ${lost} lost, ${revived} revived; ${this.acked} traces with as many acks as devices`,
    )
    assert.deepEqual(this.complaints, [])
    assert.ok(due > 0, 'nothing was sent')
  }
}
