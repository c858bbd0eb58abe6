/**
 * A long run: devices of all protocols come and go while everything is published, nodes restart, the clock jumps and the disk
 * fills. It samples memory, descriptors, threads, the store's size and latency, and fits a slope to each.
 *
 *   SOAK_MINUTES=30 e2e/run soak            or: make soak MINUTES=30
 *
 *   SOAK_MODE       node: one node with SQLite; cluster: an API node and two gateways with PostgreSQL and Redis;
 *                   both (the default): first the one, then the other, for half of the time each
 *   SOAK_PAGE       the page with the charts [e2e/.cache/soak-MODE.html]; the figures are beside it, as JSON
 *   SOAK_SEED       of the schedule and of all choices [the time]
 *   SOAK_DEVICES    devices that come and go [90]
 *   SOAK_RATE       requests per second [40]
 *   SOAK_FAULTS     no: neither restarts nor other faults, for the slopes of one long life
 *
 * It fails if an accepted `stored` notification does not arrive, if a process ends that nobody ended, if a campaign does not
 * finish, or if heap or descriptors grow: the lower end of the slope's 95 % interval lies above the bound. The bound is
 * 32 MiB and 20 descriptors per hour; in a short run, in which caches still fill, 12 MiB and 10 descriptors in all, with
 * SQLite 44 MiB: after each restart the writer's page cache of 32 MiB fills again.
 */

import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { randomUUID } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { api } from '../lib/api.mjs'
import { Cluster, ClusterNode, hasFakeTime } from '../lib/cluster.mjs'
import { Postgres, Redis, missingEngines } from '../lib/engines.mjs'
import { CACHE, KEY, freePort } from '../lib/node.mjs'
import { DevPush, addCredential } from '../lib/push.mjs'
import { seeded } from '../lib/seeded.mjs'
import { sleep, until, within } from '../lib/until.mjs'
import { SoakDevice, protocols } from './device.mjs'
import { number, page } from './page.mjs'
import { folderMib, processFigures } from './sample.mjs'
import { fit } from './slope.mjs'

const MINUTES = Number(process.env.SOAK_MINUTES ?? 10)
const MODE = process.env.SOAK_MODE ?? 'both'
const SEED = Number(process.env.SOAK_SEED ?? Date.now() % 1e6)
const DEVICES = Number(process.env.SOAK_DEVICES ?? 90)
const RATE = Number(process.env.SOAK_RATE ?? 40)
if (!(MINUTES > 0 && MINUTES <= 7 * 24 * 60)) fail('SOAK_MINUTES must be above 0 and at most a week')
if (!['node', 'cluster', 'both'].includes(MODE)) fail('SOAK_MODE must be node, cluster or both')
if (!(DEVICES >= 12 && DEVICES <= 5_000)) fail('SOAK_DEVICES must be 12 to 5000')
if (!(RATE > 0 && RATE <= 2_000)) fail('SOAK_RATE must be above 0 and at most 2000')

const TOPICS = ['news', 'sport', 'weather', 'traffic']
const SAMPLE_MS = MINUTES < 5 ? 1_000 : 3_000
const PROBE_MS = 2_000
const PUSHED = 100
/** A cycle has every fault once. */
const CYCLE_S = 20 * 60
const DISK_MIB = 256
const CLOCK_S = 3_700 // more than store.trace_retention, so that everything so far is removed
const DELIVER_MS = 120_000
/** Fills the writer's page cache at the start, so that it does not look like a leak. */
const FILLING = { requests: 12, lines: 1_000, bytes: 3_000 }
const SQLITE_CACHE_MIB = 32
const BOUNDS = { heap: { perHour: 32, least: 12 }, descriptors: { perHour: 20, least: 10 } }
const FIGURES = {
  resident: 'MiB',
  proportional: 'MiB',
  heap: 'MiB',
  descriptors: '',
  threads: '',
}

function fail(text) {
  console.error(`soak: ${text}`)
  process.exit(2)
}

const mounts = new Set()
process.on('exit', () => {
  for (const folder of mounts) {
    spawnSync('umount', ['-l', folder])
    rmSync(folder, { recursive: true, force: true })
  }
})
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(130))

class Soak {
  constructor(mode, seconds) {
    Object.assign(this, { mode, seconds, over: false, stays: false, publishing: true })
    this.ended = new Promise((resolve) => (this.end = resolve))
    this.staying = new Promise((resolve) => (this.stay = resolve))
    this.draw = seeded(SEED + (mode === 'node' ? 0 : 1))
    this.started = performance.now()
    this.events = []
    this.complaints = []
    this.jumpsBack = 0
    this.counts = { accepted: 0, 'requests repeated': 0, campaigns: 0, 'log-ins': 0, received: 0 }
    /** By name of the process: `{ lives: [[{ at, … }]] }`. */
    this.samples = new Map()
    this.shared = { probe: [], store: [] }
    const kinds = Object.keys(protocols)
    this.devices = Array.from({ length: DEVICES }, (_, n) => new SoakDevice(`d${n}`, kinds[n % kinds.length], TOPICS[n % TOPICS.length]))
  }

  random(from, to) {
    return from + this.draw() * (to - from)
  }

  pick(list) {
    return list[Math.floor(this.draw() * list.length)]
  }

  get at() {
    return (performance.now() - this.started) / 1_000
  }

  event(what) {
    this.events.push({ at: this.at, what })
    console.log(`soak: ${this.mode}: ${Math.round(this.at)} s: ${what}`)
  }

  complain(text) {
    if (this.complaints.length < 50) this.complaints.push(text)
    console.log(`soak: ${this.mode}: COMPLAINT: ${text}`)
  }

  /** Runs a fault, whose failure does not end the run. */
  async fault(what, run) {
    this.event(what)
    await run().catch((error) => this.complain(`${what}: ${error.message}`))
  }

  async start() {
    const push = (this.push = await DevPush.start())
    const settings = { 'store.trace_retention': '1h', 'egress.ca_file': push.info.ca_file }
    const ports = async () => ({ mqtt: await freePort(), xmpp: await freePort() })
    if (this.mode === 'node') await this.startNode(settings, ports)
    else await this.startCluster(settings, ports)
    await addCredential(this.apiNode, push.info.credentials.apns)
    const lines = this.devices.map(({ name, user, topic }) => ({ device: name, user, topics: [topic] }))
    const tokens = await push.tokens('apns', PUSHED)
    const pushed = tokens.map((push_token, n) => ({ device: `pushed-${n}`, user: `pushed-${n}`, push_token, platform: 'ios' }))
    for (const [at, made] of (await this.api().registerBatch(lines)).entries()) this.devices[at].token = made.token
    await this.api().registerBatch(pushed)
    if (this.mode === 'node') await this.fillCache()
    this.probe = { name: 'probe', ...(await this.api().register({ device: 'probe', user: 'probe' })) }
  }

  /** The log of a topic without subscribers. */
  async fillCache() {
    const data = 'x'.repeat(FILLING.bytes)
    const lines = Array.from({ length: FILLING.lines }, () => ({ to: { topic: 'filling' }, data }))
    for (let request = 0; request < FILLING.requests; request++) {
      const made = await this.api().publishBatch(lines)
      const refused = made.find(({ id }) => !id)
      if (refused) throw new Error(`filling the cache: ${JSON.stringify(refused)}`)
    }
  }

  async startNode(settings, ports) {
    const own = await ports()
    // Small pages, so that the heap does not grow in steps of 2 MiB.
    process.env.MIMALLOC_ALLOW_THP = '0'
    this.disk = mountDisk(this)
    const node = await ClusterNode.launch({
      name: 'node',
      roles: ['api', 'gateway', 'sender'],
      shared: { ...settings, 'mqtt.listen': `127.0.0.1:${own.mqtt}`, 'xmpp.listen': `127.0.0.1:${own.xmpp}` },
      fakeTime: hasFakeTime(),
      data: this.disk,
    })
    this.nodes = [Object.assign(node, own)]
    this.apiNode = node
    this.storeMib = async () => folderMib(node.data)
  }

  async startCluster(settings, ports) {
    process.env.MIMALLOC_ALLOW_THP = '0'
    this.postgres = await Postgres.start()
    this.redis = await Redis.start()
    const gateways = []
    for (const name of ['gateway-1', 'gateway-2']) {
      const own = await ports()
      gateways.push({ name, own, roles: ['gateway'], settings: { 'mqtt.listen': `127.0.0.1:${own.mqtt}`, 'xmpp.listen': `127.0.0.1:${own.xmpp}` } })
    }
    const nodes = [{ name: 'api-1', roles: ['api', 'sender'] }, ...gateways]
    const { url: postgres } = this.postgres
    this.cluster = await Cluster.start({ postgres, redis: this.redis.url, nodes, settings: { ...settings, 'cluster.sweep_interval': '10s' } })
    await this.cluster.seen()
    for (const { name, own } of gateways) Object.assign(this.cluster.node(name), own)
    this.nodes = this.cluster.nodes
    this.apiNode = this.cluster.node('api-1')
    this.storeMib = async () => Number(await this.postgres.sql('SELECT pg_database_size(current_database())')) / (1 << 20)
  }

  /** Where a device connects: another gateway each time. */
  node({ name }, attempt) {
    const gateways = this.nodes.filter((node) => node.mqtt && node.isRunning)
    const node = gateways[(attempt + name.length + (Number(name.slice(1)) || 0)) % Math.max(gateways.length, 1)]
    return node && { http: node.http, ws: node.ws, mqtt: node.mqtt, xmpp: node.xmpp, api: this.apiNode.http }
  }

  api() {
    return api(this.apiNode.http, KEY, { deadlineMs: 10_000 })
  }

  // -- load ----------------------------------------------------------------------------------------

  async publish() {
    while (this.publishing) {
      const due = performance.now() + (4 / RATE) * 1_000
      await this.publishOnce()
      await sleep(Math.max(due - performance.now(), 0))
    }
  }

  /** A request of any kind, and the devices that must receive it. */
  request() {
    const some = [...new Set(Array.from({ length: Math.ceil(this.random(0, 4)) }, () => this.pick(this.devices)))]
    const [topic, other] = [this.pick(TOPICS), this.pick(TOPICS)]
    const of = (...topics) => this.devices.filter((device) => topics.includes(device.topic))
    const data = { text: 'x'.repeat(Math.floor(this.random(10, 600))) }
    const users = some.map(({ user }) => user)
    const kind = this.random(0, 100)
    if (kind < 30) return { targets: some, body: { to: { users }, data } }
    if (kind < 45) return { targets: some, body: { to: { devices: some.map(({ name }) => name) }, notification: { title: '狼煙' }, data } }
    if (kind < 55) return { targets: of(topic), body: { to: { topic }, data } }
    if (kind < 58) return { targets: of(topic, other), body: { to: { condition: `'${topic}' in topics || '${other}' in topics` }, data } }
    if (kind < 59) return { targets: this.devices, body: { to: { everyone: true }, data } }
    if (kind < 75) return { targets: [], body: { to: { users }, when: 'connected', data } }
    if (kind < 83) return { targets: [], body: { to: { users }, when: 'active', data } }
    if (kind < 90) return { targets: [], body: { to: { users }, ttl: 5, data } }
    if (kind < 94) return { targets: [], body: { to: { topic }, when: 'connected', retain: true, data } }
    return { targets: [], body: { to: { everyone: true }, when: 'connected', data } }
  }

  /** Repeats the request until it is answered. */
  async publishOnce() {
    const { targets, body } = this.request()
    const key = randomUUID()
    const deadline = this.at + 180
    for (let attempt = 0; ; attempt++) {
      try {
        const { id } = await this.api().publish(body, { 'idempotency-key': key })
        this.counts.accepted++
        for (const target of targets) target.expect(id)
        return
      } catch (error) {
        if (error.status >= 400 && error.status < 500 && error.status !== 429) return this.complain(`refused: ${error.message}`)
        this.counts['requests repeated']++
        this.lastRefusal = error.message
        if (this.at > deadline) return this.complain(`not accepted within 180 s: ${error.message}`)
        await sleep(this.random(50, 100 * 2 ** Math.min(attempt, 4)))
      }
    }
  }

  /** One after the other; each must finish. */
  async campaigns() {
    while (this.publishing) {
      try {
        const message = { notification: { title: 'A campaign' } }
        const { id } = await this.api().call('POST', '/v1/campaigns', { body: { name: 'soak', audience: { everyone: true }, message } })
        const done = async () => (await this.api().call('GET', `/v1/campaigns/${id}`).catch(() => ({}))).state === 'done'
        const jumps = this.jumpsBack
        const finished = until('a campaign to finish', async () => (await done()) || this.jumpsBack > jumps, 180_000)
        await finished.catch((error) => this.complain(`${error.message} (${id})`))
        // Its batches are due by the wall clock: an hour later, if the clock has jumped back by an hour.
        if (this.jumpsBack > jumps) await this.api().call('POST', `/v1/campaigns/${id}/abort`).catch(() => {})
        else this.counts.campaigns++
      } catch {
        await sleep(1_000) // the node restarts, or the disk is full
      }
      for (let waited = 0; waited < 15_000 && this.publishing; waited += 500) await sleep(500)
    }
  }

  /** Rows that are changed and deleted all the time: devices, topics, and their inboxes. */
  async visitors() {
    for (let n = 0; this.publishing; n++) {
      try {
        const { device, token } = await this.api().register({ user: `visitor-${n % 50}`, topics: [this.pick(TOPICS)] })
        await this.api().publish({ to: { devices: [device] }, data: { n } })
        await this.api().me(token).subscribe(`visited-${n % 100}`)
        await this.api().me(token).unsubscribe(`visited-${n % 100}`)
        await this.api().me(token).remove()
      } catch {
        await sleep(500) // the node restarts, or the disk is full
      }
      await sleep(200)
    }
  }

  // -- samples -------------------------------------------------------------------------------------

  async sample() {
    for (let n = 0; !this.over; n++) {
      const at = this.at
      for (const node of this.nodes) {
        const figures = node.isRunning && processFigures(node.pid)
        if (!figures) continue
        const of = this.samples.get(node.name) ?? { lives: [], pid: undefined }
        if (of.pid !== node.pid) of.lives.push([])
        of.pid = node.pid
        of.lives.at(-1).push({ at, ...figures })
        this.samples.set(node.name, of)
      }
      this.shared.store.push({ at, value: await this.storeMib().catch(() => undefined) })
      this.shared.probe.push({ at, value: await this.probeMs(n).catch(() => undefined) })
      await sleep(Math.max(SAMPLE_MS - (this.at - at) * 1_000, 0))
    }
  }

  /** From a request to the arrival at a connected device; undefined while none is connected. */
  async probeMs(n) {
    if (!this.probed) {
      const at = this.node({ name: 'probe' }, n)
      const hear = (message) => this.probed?.heard?.(message)
      const connection = at && (await within('the probe', protocols.native(at, this.probe, hear), PROBE_MS))
      this.probed = connection
      connection?.closed.then(() => (this.probed = undefined))
      return undefined
    }
    const began = performance.now()
    const arrived = new Promise((resolve) => (this.probed.heard = ({ data }) => data?.probe === n && resolve()))
    await this.api().publish({ to: { users: ['probe'] }, when: 'connected', data: { probe: n } })
    await within('the probe', arrived, PROBE_MS)
    return performance.now() - began
  }

  // -- faults --------------------------------------------------------------------------------------

  /** What happens in a cycle, as parts of its length. */
  schedule() {
    if (process.env.SOAK_FAULTS === 'no') return []
    const clock = (seconds) => ['the clock jumps by ' + seconds + ' s', () => this.jumpClock(seconds)]
    const gateway = () => this.pick(this.nodes.filter(({ mqtt }) => mqtt))
    const restart = ['graceful restart', () => this.restart(gateway(), 'drain')]
    const kill = ['kill -9', () => this.restart(gateway(), 'kill')]
    if (this.mode === 'node') {
      const [full, again] = [1, 2].map((time) => [`the disk fills, ${time === 1 ? 'first' : 'second'} time`, () => this.fillDisk()])
      return [[0.2, full], [0.35, restart], [0.45, clock(CLOCK_S)], [0.65, kill], [0.75, clock(-CLOCK_S)], [0.85, again]]
    }
    const vacuum = (words) => [words, () => this.postgres.sql(words)]
    const api = ['graceful restart of the API node', () => this.restart(this.apiNode, 'drain')]
    return [
      [0.15, vacuum('VACUUM (ANALYZE)')], [0.3, restart], [0.4, vacuum('VACUUM (ANALYZE)')], [0.5, kill], [0.6, api],
      [0.7, vacuum('VACUUM FULL')], [0.8, ['kill -9 of the API node', () => this.restart(this.apiNode, 'kill')]], [0.9, vacuum('VACUUM (ANALYZE)')],
    ]
  }

  async faults() {
    const cycles = Math.max(1, Math.round(this.seconds / CYCLE_S))
    const length = this.seconds / cycles
    for (let cycle = 0; cycle < cycles; cycle++) {
      for (const [part, [what, run]] of this.schedule()) {
        await sleep(Math.max(((cycle + part) * length - this.at) * 1_000, 0))
        await this.fault(what, run)
      }
    }
    await sleep(Math.max((this.seconds - this.at) * 1_000, 0))
  }

  async restart(node, how) {
    node.isExpectedToEnd = true
    await node[how]()
    await node.spawn()
    node.isExpectedToEnd = false
    this.watch(node)
  }

  async jumpClock(seconds) {
    if (!hasFakeTime()) return this.event('skipped: faketime is not installed (scripts/setup engines)')
    const to = seconds < 0 ? 0 : seconds
    if (seconds < 0) this.jumpsBack++
    this.nodes[0].jumpClock(to)
    await until('the clock to jump', async () => Math.abs((await this.nodes[0].now()) - Date.now() - to * 1_000) < 60_000)
  }

  /** Until a request is refused; then there is room again, and the next one must be accepted. */
  async fillDisk() {
    if (!this.disk) return this.event('skipped: a small disk needs root, or unshare')
    const ballast = join(this.disk, 'ballast')
    const refusals = () => this.counts['requests repeated']
    const before = refusals()
    try {
      // The node writes meanwhile; it fills the rest.
      const fill = () => {
        const { bavail, bsize } = statfsSync(this.disk)
        return spawnSync('fallocate', ['-l', String(Math.max(bavail * bsize - (256 << 10), bsize)), ballast]).status === 0
      }
      await until('a full disk', fill)
      // SQLite may have room in its log for a while.
      const refused = () => refusals() > before
      await until('a refused request', refused, 20_000).then(() => this.event(`refused: ${this.lastRefusal}`), () => this.event('no request was refused'))
      await sleep(3_000)
    } finally {
      rmSync(ballast, { force: true })
    }
    this.event('the disk has room')
    const { accepted } = this.counts
    await until('an accepted request', () => this.counts.accepted > accepted + 4, 30_000)
  }

  /** Reports the end of a process that nobody ended. */
  watch(node) {
    node.exited.then((exit) => {
      if (!this.over && !node.isExpectedToEnd) this.complain(`${node.name} ended: ${JSON.stringify(exit)}\n${node.log()}`)
    })
  }

  // -- the run -------------------------------------------------------------------------------------

  async run() {
    try {
      await this.start()
      this.started = performance.now()
      this.nodes.forEach((node) => this.watch(node))
      this.event(`${DEVICES} devices, ${RATE} requests per second, seed ${SEED}`)
      const devices = this.devices.map((device) => device.live(this))
      const load = [...Array.from({ length: 4 }, () => this.publish()), this.campaigns(), this.visitors()]
      const sampling = this.sample()
      await this.faults()
      this.event('the end: everything accepted must arrive')
      this.publishing = false
      await Promise.all(load)
      this.stays = true
      this.stay()
      await until('all messages', () => this.missing().length === 0, DELIVER_MS).catch(() => this.reportLost())
      this.over = true
      this.end()
      await Promise.all([...devices, sampling])
      await this.stop()
    } catch (error) {
      this.over = true
      this.end()
      this.complain(error.stack)
      await this.stop().catch(() => {})
    }
    return this.report()
  }

  missing() {
    return this.devices.flatMap((device) => [...device.expected].map((id) => [device, id]))
  }

  async reportLost() {
    const missing = this.missing()
    this.complain(`${missing.length} accepted stored messages did not arrive`)
    for (const [device, id] of missing.slice(0, 10)) {
      const trace = await this.api().trace(id, device.name).catch((error) => error.message)
      this.complain(`lost: ${id} for ${device.name} (${device.kind}, last failure: ${device.lastFailure}): ${JSON.stringify(trace)}`)
    }
  }

  async stop() {
    for (const node of this.nodes ?? []) node.isExpectedToEnd = true
    if (this.cluster) await this.cluster.stop()
    else await this.nodes?.[0].stop()
    await this.redis?.stop()
    await this.postgres?.stop()
    await this.push?.stop()
  }

  report() {
    const seconds = this.at
    const warmUp = Math.min(120, this.seconds * 0.1)
    const hours = this.seconds / 3_600
    const figures = []
    for (const [name, { lives }] of this.samples) {
      for (const [key, unit] of Object.entries(FIGURES)) {
        const series = lives.map((life) => life.map((sample) => ({ at: sample.at, value: sample[key] })))
        const limits = BOUNDS[key]
        const cache = key === 'heap' && this.mode === 'node' ? SQLITE_CACHE_MIB : 0
        const bound = limits && Math.max(limits.perHour, (limits.least + cache) / hours)
        figures.push({ name: `${key} of ${name}`, unit, lives: series, fit: fit(series, { warmUp }), bound })
      }
    }
    figures.push({ name: 'size of the store', unit: 'MiB', lives: [this.shared.store], fit: fit([this.shared.store], { warmUp }) })
    figures.push({ name: 'latency of a message', unit: 'ms', lives: [this.shared.probe], fit: fit([this.shared.probe], { warmUp }) })
    const grown = figures.filter(({ fit: fitted, bound }) => fitted && bound !== undefined && fitted.low > bound)
    const verdicts = [
      ...this.complaints,
      ...grown.map(({ name, unit, fit: of, bound }) => {
        const least = `at least ${number(of.low)}; the bound is ${number(bound)}`
        return `${name} grows by ${number(of.slope)} ${unit} per hour (${least})`
      }),
    ]
    for (const device of this.devices) {
      this.counts['log-ins'] += device.logIns
      this.counts.received += device.received
    }
    for (const kind of Object.keys(protocols)) {
      const own = this.devices.filter((device) => device.kind === kind)
      if (own.every(({ received }) => received === 0)) verdicts.push(`no device received anything over ${kind}: ${own[0].lastFailure}`)
    }
    if (this.counts.campaigns === 0) verdicts.push('no campaign finished')
    const file = process.env.SOAK_PAGE?.replace(/(\.html)?$/, MODE === 'both' ? `-${this.mode}.html` : '.html') ?? join(CACHE, `soak-${this.mode}.html`)
    const title = `Noroshi soak, ${this.mode}: ${(this.seconds / 60).toFixed(1)} minutes, seed ${SEED}`
    writeFileSync(file, page({ title, verdicts, figures, counts: this.counts, events: this.events, seconds }))
    const plain = figures.map(({ name, unit, fit: of, bound, lives }) => ({ name, unit, bound, ...of, last: lives.at(-1)?.at(-1)?.value }))
    writeFileSync(file.replace(/\.html$/, '.json'), JSON.stringify({ title, verdicts, counts: this.counts, events: this.events, figures: plain }, null, 2))
    console.log(`soak: ${this.mode}: ${Object.entries(this.counts).map(([name, count]) => `${name} ${count}`).join(', ')}`)
    for (const { name, unit, fit: of, bound, lives } of figures) {
      const last = number(lives.at(-1)?.at(-1)?.value)
      const slope = of ? `${number(of.slope)} per hour (95 %: ${number(of.low)} to ${number(of.high)})` : 'too few samples'
      console.log(`soak: ${this.mode}: ${name}: ${last} ${unit}, ${slope}${bound === undefined ? '' : `, bound ${number(bound)}`}`)
    }
    console.log(`soak: ${this.mode}: charts in ${file}`)
    for (const verdict of verdicts) console.log(`soak: ${this.mode}: FAILED: ${verdict}`)
    return verdicts.length === 0
  }
}

/** A small disk in memory, in the mount namespace of this process; undefined without permission. */
function mountDisk(soak) {
  if (process.env.SOAK_NAMESPACE !== 'own') return undefined
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-soak-'))
  const { status, stderr } = spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m`, 'noroshi-soak', folder])
  if (status !== 0) {
    rmSync(folder, { recursive: true, force: true })
    soak.event(`no small disk: ${stderr}`)
    return undefined
  }
  mounts.add(folder)
  return folder
}

let passed = true
const modes = MODE === 'both' ? ['node', 'cluster'] : [MODE]
for (const mode of modes) {
  const missing = mode === 'cluster' && missingEngines()
  if (missing) console.log(`soak: cluster: skipped: ${missing}`)
  else passed = (await new Soak(mode, (MINUTES * 60) / modes.length).run()) && passed
}
process.exit(passed ? 0 : 1)
