/** Every vector, over real sockets: what the scripted server says and sees is what libraries of other languages get. */

import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, test } from 'vitest'

import { play, vectors } from './run.js'
import { RemoteWire } from './wire.js'

/** A vector waits for sockets most of the time; each has a server for itself. */
const SERVERS = 8
const servers: ChildProcess[] = []
const idle: RemoteWire[] = []
const waiting: ((wire: RemoteWire) => void)[] = []

beforeAll(async () => {
  const path = fileURLToPath(new URL('../../../../scripted-server/server.mjs', import.meta.url))
  const started = Array.from({ length: SERVERS }, async () => {
    const server = spawn(process.execPath, [path], { stdio: ['ignore', 'pipe', 'inherit'] })
    servers.push(server)
    const [line] = (await once(server.stdout!.setEncoding('utf8'), 'data')) as [string]
    idle.push(new RemoteWire(line.trim()))
  })
  await Promise.all(started)
})
afterAll(() => servers.forEach((server) => server.kill()))

for (const vector of vectors) {
  test.concurrent(`${vector.file}: ${vector.name}`, async () => {
    const wire = idle.pop() ?? (await new Promise<RemoteWire>((resolve) => waiting.push(resolve)))
    try {
      await wire.reset()
      await play(vector, wire)
    } finally {
      const next = waiting.shift()
      if (next) next(wire)
      else idle.push(wire)
    }
  })
}
