/**
 * Private PostgreSQL and Redis servers from the Debian packages: real servers on free ports below the ephemeral
 * range, with their data in temporary folders.
 *
 * Each is a child process, stopped by its process id and, if this process is killed, by the kernel
 * (PR_SET_PDEATHSIG through `setpriv`). Nothing of them survives the test, and no other process is affected.
 */

import assert from 'node:assert/strict'
import { execFile, execFileSync, spawn } from 'node:child_process'
import { chownSync, closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir, userInfo } from 'node:os'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'

import { freePort } from './node.mjs'
import { until, within } from './until.mjs'

/** Kills a command that gets no answer; the caller retries. */
const run = (file, args, options) => promisify(execFile)(file, args, { timeout: 60_000, ...options })
const running = new Set()
const folders = new Set()
process.on('exit', () => {
  for (const program of running) {
    program.child.kill(program.deathSignal)
    program.resume()
  }
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

const postgresFolders = () =>
  [15, 16, 17, 18].map((version) => `/usr/lib/postgresql/${version}/bin`).filter((folder) => existsSync(folder))

function find(name) {
  const places = [...(process.env.PATH ?? '').split(delimiter), ...postgresFolders()]
  return places.map((folder) => join(folder, name)).find((path) => existsSync(path))
}

/** Missing programs, as a reason to skip; undefined if there are none. */
export function missingEngines() {
  const wanted = ['initdb', 'postgres', 'psql', 'redis-server', 'redis-cli', 'redis-sentinel', 'setpriv']
  const missing = wanted.filter((name) => !find(name))
  return missing.length > 0 ? `not installed: ${missing.join(', ')} (scripts/setup engines)` : undefined
}

export function temporaryFolder(kind) {
  const folder = mkdtempSync(join(tmpdir(), `noroshi-${kind}-`))
  folders.add(folder)
  return folder
}

function removeFolder(folder) {
  folders.delete(folder)
  rmSync(folder, { recursive: true, force: true })
}

/** One process, started, signalled and stopped by its process id. */
export class Program {
  /** `as` is a system user (only root can choose one); `deathSignal` ends it at once. */
  constructor({ name, command, args, log, env = {}, as, stopSignal = 'SIGTERM', deathSignal = 'SIGKILL' }) {
    Object.assign(this, { name, command, args, logPath: log, env, as, stopSignal, deathSignal })
  }

  start() {
    assert.ok(!this.isRunning, `${this.name} runs already`)
    const log = openSync(this.logPath, 'a')
    const user = this.as ? [`--reuid=${this.as}`, `--regid=${this.as}`, '--clear-groups'] : []
    const words = [...user, `--pdeathsig=${this.deathSignal.slice(3)}`, '--', this.command, ...this.args]
    this.child = spawn(find('setpriv'), words, { stdio: ['ignore', log, log], env: { ...process.env, ...this.env } })
    closeSync(log)
    this.child.unref()
    running.add(this)
    this.exit = undefined
    this.exited = new Promise((resolve) => {
      const ended = (exit) => {
        running.delete(this)
        this.exit = exit
        resolve(exit)
      }
      this.child.once('exit', (code, signal) => ended({ code, signal }))
      this.child.once('error', (error) => ended({ error: error.message }))
    })
  }

  get isRunning() {
    return this.child !== undefined && this.exit === undefined
  }

  get pid() {
    return this.child.pid
  }

  signal(signal) {
    if (this.isRunning) this.child.kill(signal)
  }

  /** SIGSTOP: it keeps its connections and is silent. */
  pause() {
    this.signal('SIGSTOP')
  }

  resume() {
    this.signal('SIGCONT')
  }

  /** Kills it at once. */
  async kill() {
    if (!this.isRunning) return
    this.signal(this.deathSignal)
    await within(`${this.name} to be gone`, this.exited)
  }

  async stop() {
    if (!this.isRunning) return
    this.resume()
    this.signal(this.stopSignal)
    await within(`${this.name} to stop`, this.exited).catch(() => this.kill())
  }

  log() {
    return readFileSync(this.logPath, 'utf8').split('\n').slice(-30).join('\n')
  }

  /** Waits for `probe` to be true, or fails with the reason if the process ended. */
  async ready(probe) {
    await until(`${this.name} to be ready`, async () => {
      assert.equal(this.exit, undefined, `${this.name} ended: ${JSON.stringify(this.exit)}\n${this.log()}`)
      return probe().catch(() => false)
    })
  }
}

/** PostgreSQL with fsync, as in production. */
export class Postgres {
  static async start({ settings = {} } = {}) {
    const postgres = new Postgres()
    postgres.folder = temporaryFolder('postgres')
    postgres.port = await freePort()
    const as = userInfo().uid === 0 ? 'postgres' : undefined
    if (as) chownSync(postgres.folder, ...['-u', '-g'].map((flag) => Number(execFileSync('id', [flag, as]))))
    const data = join(postgres.folder, 'data')
    const words = ['--auth=trust', '--username=noroshi', '--encoding=UTF8', '--no-locale', '--no-sync', '-D', data]
    const user = as ? [`--reuid=${as}`, `--regid=${as}`, '--clear-groups', '--'] : ['--']
    await run(find('setpriv'), [...user, find('initdb'), ...words], { cwd: postgres.folder })
    const all = {
      port: postgres.port,
      listen_addresses: '127.0.0.1',
      unix_socket_directories: '',
      max_connections: 200,
      shared_buffers: '64MB',
      ...settings,
    }
    postgres.program = new Program({
      name: 'PostgreSQL',
      command: find('postgres'),
      args: ['-D', data, ...Object.entries(all).flatMap(([key, value]) => ['-c', `${key}=${value}`])],
      log: join(postgres.folder, 'log'),
      as,
      stopSignal: 'SIGINT', // "fast": sessions are ended
      deathSignal: 'SIGQUIT', // "immediate": like a power failure, but without orphans
    })
    await postgres.up()
    await postgres.sql('CREATE DATABASE noroshi', 'postgres')
    return postgres
  }

  get url() {
    return this.urlAt(this.port)
  }

  /** Through a proxy. */
  urlAt(port) {
    return `postgres://noroshi@127.0.0.1:${port}/noroshi`
  }

  async up() {
    this.program.start()
    await this.program.ready(async () => (await this.sql('SELECT 1', 'postgres')) === '1')
  }

  /** Restarts it; with `crash` it must recover. */
  async restart({ crash = false, downMs = 0 } = {}) {
    await (crash ? this.program.kill() : this.program.stop())
    await new Promise((resolve) => setTimeout(resolve, downMs))
    await this.up()
  }

  /** SIGSTOP to all its processes: connections stay without answers. */
  pause() {
    this.paused = [this.program.pid, ...children(this.program.pid)]
    for (const pid of this.paused) process.kill(pid, 'SIGSTOP')
  }

  /** SIGCONT to those that were stopped. */
  resume() {
    for (const pid of this.paused?.splice(0) ?? []) process.kill(pid, 'SIGCONT')
  }

  async sql(text, database = 'noroshi') {
    const words = ['-X', '-At', '-v', 'ON_ERROR_STOP=1', '-h', '127.0.0.1', '-p', this.port, '-U', 'noroshi', '-d', database]
    return (await run(find('psql'), [...words.map(String), '-c', text])).stdout.trim()
  }

  async stop() {
    this.resume()
    await this.program.stop()
    removeFolder(this.folder)
  }
}

/** The ids of a process's children. */
function children(pid) {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim().split(' ').filter(Boolean).map(Number)
}

/** One Redis server; with `persist` its data survives a restart. */
export class Redis {
  static async start({ persist = true, args = [], port, folder } = {}) {
    const redis = new Redis()
    redis.ownsFolder = folder === undefined
    redis.folder = folder ?? temporaryFolder('redis')
    redis.port = port ?? (await freePort())
    const kept = persist ? ['--appendonly', 'yes', '--appendfsync', 'everysec'] : ['--appendonly', 'no']
    redis.program = new Program({
      name: `Redis ${redis.port}`,
      command: find('redis-server'),
      args: ['--port', redis.port, '--bind', '127.0.0.1', '--dir', redis.folder, '--save', '', ...kept, ...args].map(String),
      log: join(redis.folder, 'log'),
    })
    await redis.up()
    return redis
  }

  get url() {
    return `redis://127.0.0.1:${this.port}`
  }

  get address() {
    return `127.0.0.1:${this.port}`
  }

  async up() {
    this.program.start()
    await this.program.ready(async () => (await this.cli('PING')) === 'PONG')
  }

  /** SIGKILL and a start; writes of the last second may be lost even with `persist`. */
  async restart({ downMs = 0 } = {}) {
    await this.program.kill()
    await new Promise((resolve) => setTimeout(resolve, downMs))
    await this.up()
  }

  /** Deletes all its data; it keeps running. */
  wipe() {
    return this.cli('FLUSHALL')
  }

  async cli(...words) {
    return (await run(find('redis-cli'), ['-p', String(this.port), ...words.map(String)], { timeout: 10_000 })).stdout.trim()
  }

  async commandsProcessed() {
    const info = await this.cli('INFO', 'stats')
    return Number(/^total_commands_processed:(\d+)/m.exec(info)[1])
  }

  async stop() {
    await this.program.stop()
    if (this.ownsFolder) removeFolder(this.folder)
  }
}

/** A master with replicas, watched by Sentinels that promote one within seconds. */
export class Sentinel {
  static async start({ replicas = 2, sentinels = 3, downAfterMs = 1_000 } = {}) {
    const group = new Sentinel()
    group.master = 'noroshi'
    group.servers = [await Redis.start()]
    const first = group.servers[0]
    for (let i = 0; i < replicas; i++) {
      group.servers.push(await Redis.start({ args: ['--replicaof', '127.0.0.1', first.port] }))
    }
    group.folder = temporaryFolder('sentinel')
    group.sentinels = []
    for (let i = 0; i < sentinels; i++) {
      const port = await freePort()
      const folder = join(group.folder, String(i))
      mkdirSync(folder)
      const config = join(folder, 'sentinel.conf')
      writeFileSync(
        config,
        [
          `port ${port}`,
          'bind 127.0.0.1',
          `dir ${folder}`,
          `sentinel monitor ${group.master} 127.0.0.1 ${first.port} 2`,
          `sentinel down-after-milliseconds ${group.master} ${downAfterMs}`,
          `sentinel failover-timeout ${group.master} 5000`,
          `sentinel parallel-syncs ${group.master} 2`,
          '',
        ].join('\n'),
      )
      const program = new Program({
        name: `Sentinel ${port}`,
        command: find('redis-sentinel'),
        args: [config],
        log: join(folder, 'log'),
      })
      program.start()
      group.sentinels.push({ port, program })
    }
    for (const { port, program } of group.sentinels) {
      await program.ready(async () => {
        const { stdout } = await run(find('redis-cli'), ['-p', String(port), 'SENTINEL', 'MASTER', group.master], { timeout: 10_000 })
        const value = (key) => new RegExp(`^${key}\\n(.*)$`, 'm').exec(stdout)?.[1]
        return value('num-slaves') === String(replicas) && value('num-other-sentinels') === String(sentinels - 1)
      })
    }
    return group
  }

  /** The URL for clients. */
  get url() {
    const hosts = this.sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')
    return `redis-sentinel://${hosts}/${this.master}`
  }

  async masterPort() {
    const words = ['-p', String(this.sentinels[0].port), 'SENTINEL', 'GET-MASTER-ADDR-BY-NAME', this.master]
    return Number((await run(find('redis-cli'), words, { timeout: 10_000 })).stdout.trim().split('\n')[1])
  }

  /** Kills the master and waits for another one; returns the killed one. */
  async failOver() {
    const port = await this.masterPort()
    const master = this.servers.find((server) => server.port === port)
    await master.program.kill()
    await until('another master', async () => {
      const now = await this.masterPort()
      const server = this.servers.find((other) => other.port === now)
      return now !== port && (await server.cli('ROLE')).startsWith('master')
    })
    return master
  }

  async stop() {
    await Promise.all(this.sentinels.map(({ program }) => program.stop()))
    await Promise.all(this.servers.map((server) => server.stop()))
    removeFolder(this.folder)
  }
}

/** Redis Cluster: masters, each with replicas. */
export class RedisCluster {
  static async start({ masters = 3, replicas = 1, nodeTimeoutMs = 2_000 } = {}) {
    const cluster = new RedisCluster()
    cluster.mastersCount = masters
    cluster.servers = []
    for (let i = 0; i < masters * (1 + replicas); i++) {
      const args = ['--cluster-enabled', 'yes', '--cluster-config-file', 'nodes.conf']
      args.push('--cluster-node-timeout', nodeTimeoutMs, '--cluster-port', await freePort())
      // The other shards continue when one is down.
      args.push('--cluster-require-full-coverage', 'no')
      // A replica's first synchronisation need not wait for others.
      args.push('--repl-diskless-sync-delay', 0)
      cluster.servers.push(await Redis.start({ args }))
    }
    const addresses = cluster.servers.map((server) => server.address)
    await run(find('redis-cli'), ['--cluster', 'create', ...addresses, '--cluster-replicas', String(replicas), '--cluster-yes'])
    await until('every node of Redis Cluster to know every slot', async () => {
      const states = await Promise.all(cluster.servers.map((server) => server.cli('CLUSTER', 'INFO')))
      const nodes = await Promise.all(cluster.servers.map((server) => server.cli('CLUSTER', 'NODES')))
      const slaves = nodes.map((text) => text.split('\n').filter((line) => line.includes('slave')).length)
      return states.every((state) => state.includes('cluster_state:ok')) && slaves.every((count) => count === masters * replicas)
    })
    // A replica that never synchronised does not take over.
    await until('every replica to have a copy', async () => {
      const roles = await Promise.all(cluster.servers.map((server) => server.cli('ROLE')))
      return roles.filter((role) => /^slave\n[^]*\nconnected\n/.test(role)).length === masters * replicas
    })
    return cluster
  }

  /** The URL for clients. */
  get url() {
    return `redis-cluster://${this.servers.map((server) => server.address).join(',')}`
  }

  async masters() {
    const roles = await Promise.all(
      this.servers.map(async (server) => server.program.isRunning && (await server.cli('ROLE')).startsWith('master')),
    )
    return this.servers.filter((_, i) => roles[i])
  }

  /** Kills one master with its replicas, so that its slots have no owner; `key` selects the shard. Returns the killed servers. */
  async killShard(key, keeps) {
    const slot = Number(await this.servers[0].cli('CLUSTER', 'KEYSLOT', key))
    const masters = await this.masters()
    const keepsIt = await Promise.all(masters.map((master) => this.hasSlot(master, slot)))
    const master = masters[keepsIt.indexOf(keeps)]
    const id = await master.cli('CLUSTER', 'MYID')
    const replicas = (await master.cli('CLUSTER', 'REPLICAS', id)).split('\n')
    const ports = replicas.map((line) => Number(/:(\d+)@/.exec(line)?.[1]))
    const shard = this.servers.filter((server) => server === master || ports.includes(server.port))
    await Promise.all(shard.map((server) => server.program.kill()))
    return shard
  }

  async hasSlot(master, slot) {
    const myself = (await master.cli('CLUSTER', 'NODES')).split('\n').find((line) => line.includes('myself'))
    const ranges = myself.split(' ').slice(8).map((range) => range.split('-').map(Number))
    return ranges.some(([first, last = first]) => first <= slot && slot <= last)
  }

  /** Kills one master and waits for its replica to take over its slots; returns the killed one. */
  async failOver() {
    const [master, other] = await this.masters()
    const id = await master.cli('CLUSTER', 'MYID')
    await master.program.kill()
    await until('a replica to take over', async () => {
      const nodes = (await other.cli('CLUSTER', 'NODES')).split('\n')
      const hasSlots = (line) => line.includes('master') && !line.includes('fail') && /\d+-\d+$/.test(line)
      return !nodes.some((line) => line.startsWith(id) && hasSlots(line)) && nodes.filter(hasSlots).length === this.mastersCount
    })
    return master
  }

  async stop() {
    await Promise.all(this.servers.map((server) => server.stop()))
  }
}
