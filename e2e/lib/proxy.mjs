/**
 * A TCP proxy between one node and a server, to simulate network faults.
 *
 *   latency   delays all bytes by this time, in order, in both directions
 *   cut       breaks connections and refuses new ones
 *   freeze    nothing arrives any more, connections stay, new ones are accepted and never answered: a lost network
 *   heal      restores everything; frozen connections break, as after a long loss of packets
 */

import { connect, createServer } from 'node:net'

import { freePort } from './node.mjs'

export class Proxy {
  static async start(targetPort) {
    const proxy = new Proxy()
    proxy.targetPort = targetPort
    proxy.port = await freePort()
    proxy.pairs = new Set()
    proxy.latencyMs = 0
    proxy.frozen = false
    await proxy.listen()
    return proxy
  }

  async listen() {
    this.server = createServer({ noDelay: true }, (client) => this.accept(client))
    this.server.unref()
    await new Promise((resolve, reject) => {
      this.server.once('error', reject)
      this.server.listen(this.port, '127.0.0.1', resolve)
    })
  }

  accept(client) {
    const engine = this.frozen ? undefined : connect({ port: this.targetPort, host: '127.0.0.1', noDelay: true })
    const pair = { client, engine }
    this.pairs.add(pair)
    const end = () => {
      this.pairs.delete(pair)
      client.destroy()
      engine?.destroy()
    }
    for (const socket of [client, engine]) {
      socket?.on('error', () => {})
      socket?.on('close', () => (this.frozen ? undefined : end()))
    }
    pair.end = end
    if (!engine) return client.pause()
    this.forward(client, engine)
    this.forward(engine, client)
  }

  forward(from, to) {
    const arrive = (chunk) => {
      if (this.frozen || to.destroyed) return
      if (!to.write(chunk)) {
        from.pause()
        to.once('drain', () => this.frozen || from.resume())
      }
    }
    from.on('data', (chunk) => {
      if (this.latencyMs > 0) setTimeout(arrive, this.latencyMs, chunk)
      else arrive(chunk)
    })
  }

  latency(ms) {
    this.latencyMs = ms
  }

  async cut() {
    await new Promise((resolve) => {
      this.server.close(resolve)
      for (const pair of [...this.pairs]) pair.end()
    })
  }

  freeze() {
    this.frozen = true
    for (const { client, engine } of this.pairs) {
      client.pause()
      engine?.pause()
    }
  }

  async heal() {
    this.latencyMs = 0
    this.frozen = false
    for (const pair of [...this.pairs]) pair.end()
    if (!this.server.listening) await this.listen()
  }

  async stop() {
    this.frozen = false
    for (const pair of [...this.pairs]) pair.end()
    if (this.server.listening) await new Promise((resolve) => this.server.close(resolve))
  }
}
