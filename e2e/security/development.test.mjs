/** A development node is for one machine, and its secrets have the same minimum strength as those of other apps. */

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'

import { KEY, Node, cli, freePort } from '../lib/node.mjs'

test('a short key or secret is rejected before anything is opened', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-e2e-'))
  const data = join(folder, 'data')
  const [http, admin] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`]
  const short = { NOROSHI_DEV_KEY: 'k', NOROSHI_DEV_JWT_SECRET: 's' }
  // A node that starts anyway fails here, because the address is not local.
  const args = ['serve', '--dev', '--data', data, '--http', http, '--admin', admin, '--set', 'no.such.key=1']
  const { code, stderr } = await cli(args, short)
  assert.equal(code, 64, stderr)
  assert.match(stderr, /NOROSHI_DEV_KEY[^\n]*16 to 1024/)
  assert.match(stderr, /NOROSHI_DEV_JWT_SECRET[^\n]*32 to 1024/)
  rmSync(folder, { recursive: true, force: true })
})

test('a development node that is reachable from outside warns about it', async () => {
  const port = await freePort()
  const open = await Node.start({ args: ['--set', `mqtt.listen=0.0.0.0:${port}`] })
  const log = readFileSync(open.logPath, 'utf8')
  assert.match(log, /is reachable from other machines/)
  assert.ok(log.includes(`0.0.0.0:${port}`) && !log.includes(KEY))
  await open.stop()
  const closed = await Node.start()
  assert.doesNotMatch(readFileSync(closed.logPath, 'utf8'), /is reachable from other machines/)
  await closed.stop()
})
