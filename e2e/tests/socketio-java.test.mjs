/**
 * The Socket.IO client for Java over WebSocket, which ignores close frames: it must notice the end of a session at once, and receive
 * messages stored meanwhile. Needs Java 17 and, the first time, mvn; skipped without them.
 */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import * as java from '../lib/java.mjs'
import { Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const skip = java.unavailable()
/** Below the 45 s after which the library notices missing pings. */
const NOTICED_MS = 30_000
const SLOW_MS = 100_000

test('a drain ends the session at once, and nothing stored meanwhile is lost', { skip }, async () => {
  const node = await Node.start()
  const { token } = await node.api.register({ user: 'java', topics: ['news'] })
  const client = java.start('SocketIo', node.http, token)
  const lines = (text) => client.stdout.split('\n').filter((line) => line.startsWith(text))
  const messages = () => lines('notification ').map((line) => JSON.parse(line.slice('notification '.length)).data)
  const publish = async (n) => {
    await node.api.publish({ to: { users: ['java'] }, data: `to the user ${n}` })
    await node.api.publish({ to: { topic: 'news' }, data: `to the topic ${n}` })
  }
  try {
    await until('the client', () => lines('connect').length === 1, SLOW_MS)
    await publish(1)
    await until('two messages', () => messages().length === 2)
    // The node stays: only the session ends.
    assert.equal((await node.cli('drain', '--rate', '1000')).code, 0)
    await until('the end of the session', () => lines('disconnect ').length === 1, NOTICED_MS)
    await publish(2)
    assert.equal((await node.cli('drain', '--cancel')).code, 0)
    await until('the client again', () => lines('connect').length === 2)
    await publish(3)
    await until('all messages', () => messages().length >= 6)
    const expected = [1, 2, 3].flatMap((n) => [`to the user ${n}`, `to the topic ${n}`])
    assert.deepEqual(messages().toSorted(), expected.toSorted())
  } catch (error) {
    throw new Error(client.stdout + client.stderr, { cause: error })
  } finally {
    client.child.stdin.end()
    await node.stop()
  }
  assert.equal(await client.exited, 0)
})
