/**
 * Several nodes of one cell: processes of the built binary with roles, each with a `noroshi.toml` of its own, on one
 * PostgreSQL and one Redis. They are signalled and stopped by process id.
 *
 *   const cluster = await Cluster.start({ postgres: postgres.url, redis: redis.url,
 *     nodes: [{ name: 'api-1', roles: ['api'] }, { name: 'gateway-1', roles: ['gateway'] }] })
 */

import assert from 'node:assert/strict'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { api } from './api.mjs'
import { temporaryFolder } from './engines.mjs'
import { KEY, Node } from './node.mjs'
import { until } from './until.mjs'

/** Short, so that recovery is fast. */
export const LEASE_MS = 3_000
const LIBFAKETIME = '/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1'

export const hasFakeTime = () => existsSync(LIBFAKETIME)

/** As TOML: strings, numbers, booleans and lists of them have the syntax of JSON. */
const toml = (settings) => Object.entries(settings).map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`).join('')

export class ClusterNode extends Node {
  /**
   * `shared` are settings of all nodes, `settings` of this one; `fakeTime` allows moving its clock; `data` is an existing
   * data folder, which is kept.
   */
  static async launch({ name, roles, shared, settings = {}, fakeTime = false, data }) {
    const folder = temporaryFolder('cluster')
    const config = join(folder, 'noroshi.toml')
    writeFileSync(config, toml({ 'node.name': name, 'node.roles': roles, ...shared, ...settings }))
    const env = {}
    if (fakeTime) {
      writeFileSync(join(folder, 'clock'), '+0')
      // Only the wall clock moves: a monotonic clock never jumps.
      Object.assign(env, {
        LD_PRELOAD: LIBFAKETIME,
        FAKETIME_TIMESTAMP_FILE: join(folder, 'clock'),
        FAKETIME_NO_CACHE: '1',
        FAKETIME_DONT_FAKE_MONOTONIC: '1',
      })
    }
    const node = await this.start({ args: ['--config', config], env, data })
    return Object.assign(node, { name, roles, folder })
  }

  async spawn() {
    // The address of this node for devices; its port is known by now.
    this.env.NOROSHI__NODE__ADVERTISE = this.http
    return super.spawn()
  }

  get pid() {
    return this.child.pid
  }

  get isRunning() {
    return this.exit === undefined
  }

  has(role) {
    return this.roles.includes(role)
  }

  /** SIGSTOP: it keeps its sockets and is silent. */
  pause() {
    this.isPaused = true
    this.child.kill('SIGSTOP')
  }

  resume() {
    this.child.kill('SIGCONT')
    this.isPaused = false
  }

  /** Moves the wall clock of this node: `+3600` or `-90` seconds. */
  jumpClock(seconds) {
    writeFileSync(join(this.folder, 'clock'), `${seconds < 0 ? '' : '+'}${seconds}`)
  }

  /** The node's wall clock, from the log line of a rejected request. */
  async now() {
    await fetch(`${this.http}/v1/me`)
    const times = this.log().split('\n').map((line) => Date.parse(/^\d{4}-\S+Z/.exec(line)?.[0]))
    return times.findLast((time) => !Number.isNaN(time))
  }

  async metrics() {
    return (await this.admin('/metrics')).text()
  }

  /** The sum over all labels of a metric. */
  async metric(name) {
    const lines = (await this.metrics()).split('\n').filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`))
    return lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0)
  }

  /** The number of other nodes that `bus` (direct, redis) carries messages to. */
  async peersBy(bus) {
    const line = (await this.metrics()).split('\n').find((one) => one.startsWith(`noroshi_cluster_peers{bus="${bus}"}`))
    return Number(line.slice(line.lastIndexOf(' ') + 1))
  }
}

/** Waits until the node notices that its lease lapsed. */
export const withoutLease = (node) =>
  until(`${node.name} to have no lease`, async () => (await node.metric('noroshi_cluster_lease_held')) === 0)

export class Cluster {
  /** `through` gives single nodes other settings (their proxies): `{ 'gateway-1': { 'cluster.redis': … } }`. */
  static async start({ postgres, redis, nodes, settings = {}, through = {} }) {
    const cluster = new Cluster()
    cluster.shared = {
      'store.url': postgres,
      'cluster.redis': redis,
      'cluster.lease': `${LEASE_MS}ms`,
      ...settings,
    }
    cluster.through = through
    cluster.nodes = []
    // The first node creates the schema.
    const [first, ...others] = nodes
    await cluster.add(first)
    await Promise.all(others.map((node) => cluster.add(node)))
    return cluster
  }

  async add(node) {
    const settings = { ...node.settings, ...this.through[node.name] }
    const started = await ClusterNode.launch({ shared: this.shared, ...node, settings })
    this.nodes.push(started)
    return started
  }

  node(name) {
    return this.nodes.find((node) => node.name === name)
  }

  having(role) {
    return this.nodes.filter((node) => node.has(role))
  }

  /** Nodes that can admit devices. */
  get gateways() {
    return this.having('gateway').filter((node) => node.isRunning)
  }

  /** The API of a node; default: the first running one. */
  api(name) {
    const node = name ? this.node(name) : this.having('api').find((other) => other.isRunning)
    return api(node.http, KEY)
  }

  /** Running nodes that are not suspended, except these. */
  others(...names) {
    return this.nodes.filter((node) => node.isRunning && !node.isPaused && !names.includes(node.name))
  }

  /** Waits until every running node, or each of `nodes`, sees this number of nodes with a lease. */
  async seen(count = this.nodes.length, nodes = this.others()) {
    let seen
    await until('leases', async () => {
      seen = await Promise.all(nodes.map((node) => node.metric('noroshi_cluster_nodes').catch(() => -1)))
      return seen.every((one) => one === count)
    }).catch(() => assert.fail(`${nodes.map(({ name }) => name)} see ${seen} nodes, not ${count}`))
  }

  async stop() {
    const stop = async (node) => {
      if (!node.isRunning) return node.removeData()
      // After a fault only the clean exit of a node matters, not how it drains.
      node.resume()
      await node.stop()
    }
    const ended = await Promise.allSettled(this.nodes.map(stop))
    const failures = ended.map(({ reason }, at) => reason && `${this.nodes[at].name}: ${reason.message}`).filter(Boolean)
    if (failures.length > 0) throw new Error(failures.join('\n'))
  }
}
