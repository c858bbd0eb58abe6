/** `noroshi migrate` into a real PostgreSQL, and the node that continues there. */

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { Postgres, missingEngines } from '../lib/engines.mjs'
import { Node, cli } from '../lib/node.mjs'

const skip = missingEngines()

test('a node migrated to PostgreSQL keeps its devices and their pending notifications', { skip }, async () => {
  const data = mkdtempSync(join(tmpdir(), 'noroshi-migrate-'))
  const postgres = await Postgres.start()
  let node
  try {
    node = await Node.start({ data })
    const { device, token } = await node.api.register({ user: 'u1', topics: ['news'] })
    const direct = await node.api.publish({ to: { users: ['u1'] }, data: '狼煙' })
    const onTopic = await node.api.publish({ to: { topic: 'news' }, data: 2 })
    const operatorToken = readFileSync(join(data, 'operator.token'), 'utf8')

    const migrate = (...more) => cli(['migrate', '--from', data, '--to', postgres.url, ...more])
    const early = await migrate()
    assert.equal(early.code, 1)
    assert.match(early.stderr, /is in use: stop the node first/)
    await node.drain()

    const done = await migrate()
    assert.equal(done.code, 0, done.stderr)
    assert.match(done.stdout, /rows copied to .* and verified/)
    assert.match(done.stdout, /\[store\]\n +url = /)
    assert.match(done.stderr, /^devices \(/m)
    assert.match(done.stderr, /^inbox \(/m)
    assert.ok(!done.stderr.includes('\u001b'), 'plain lines without a terminal')

    const again = await migrate('--json')
    assert.equal(again.code, 1)
    assert.match(again.stderr, /is not empty/)

    // Another machine: only the database is the same.
    rmSync(data, { recursive: true })
    node = await Node.start({ data, env: { NOROSHI__STORE__URL: postgres.url } })
    assert.equal(readFileSync(join(data, 'operator.token'), 'utf8'), operatorToken)
    const back = await Device.connect(node.ws, token)
    assert.deepEqual([(await back.msg()).id, (await back.msg()).id], [direct.id, onTopic.id])
    back.ack(direct.id)
    const later = await node.api.publish({ to: { devices: [device] }, data: 3 })
    assert.ok(later.id > onTopic.id)
    assert.equal((await back.msg()).id, later.id)
    await back.leave()
    await node.drain()
  } finally {
    if (node?.exit === undefined) await node?.kill()
    await postgres.stop()
    rmSync(data, { recursive: true, force: true })
  }
})

test('migrate rejects a folder without data', async () => {
  const { code, stderr } = await cli(['migrate', '--from', tmpdir(), '--to', 'postgres://nobody@127.0.0.1:1/none'])
  assert.equal(code, 1)
  assert.match(stderr, /has no database/)
})
