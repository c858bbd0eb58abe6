/** Every vector, over real sockets: what the scripted server says and sees is what libraries of other languages get. */

import { afterAll, beforeAll, test } from 'vitest'

// @ts-expect-error JavaScript without types
import { listen } from '../../../../scripted-server/scripted.mjs'
import { play, vectors } from './run.js'
import { RemoteWire } from './wire.js'

/** A vector waits for sockets most of the time; each has a server for itself. */
const SERVERS = 16
const servers: { url: string; close(): void }[] = []
const idle: RemoteWire[] = []
const waiting: ((wire: RemoteWire) => void)[] = []

beforeAll(async () => {
  for (let n = 0; n < SERVERS; n++) servers.push(await listen())
  for (const { url } of servers) idle.push(new RemoteWire(url))
})
afterAll(() => servers.forEach((server) => server.close()))

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
