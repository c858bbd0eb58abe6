/** The command line for operators and scripts, against a running node. */

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { Node, cli } from '../lib/node.mjs'

let node, folder
before(async () => {
  node = await Node.start()
  folder = mkdtempSync(join(tmpdir(), 'noroshi-cli-'))
})
after(async () => {
  await node?.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** Runs a command that must succeed, and returns its output; with `--json`, parsed. */
async function ok(...args) {
  const { code, stdout, stderr } = await node.cli(...args)
  assert.equal(code, 0, `${args.join(' ')}: ${stdout}${stderr}`)
  return args.includes('--json') ? JSON.parse(stdout) : stdout
}

test('listen receives messages to its user over WebSocket and SSE', async () => {
  for (const [user, ...flags] of [['cli-ws'], ['cli-sse', '--sse']]) {
    await ok('devices', 'register', '--device', `cli-${user}`, '--user', user, '--json')
    const { id } = await ok('send', '--user', user, '--title', 'Hello', '--body', '狼煙', '--data', '{"n":1}', '--json')
    const received = await ok('listen', '--user', user, '--count', '1', '--timeout', '30s', ...flags, '--json')
    assert.deepEqual([received.id, received.notification, received.data], [id, { title: 'Hello', body: '狼煙' }, { n: 1 }])
  }
})

test('explain shows the outcome of a notification, in total and on a device', async () => {
  await ok('devices', 'register', '--device', 'explained', '--user', 'cli-explain', '--json')
  const { id } = await ok('send', '--user', 'cli-explain', '--title', 'x', '--json')
  const whole = await ok('explain', id, '--json')
  assert.equal(whole.counts.kept, 1)
  assert.match(await ok('explain', id), /kept/)
  const device = await ok('explain', id, 'explained', '--json')
  assert.deepEqual(device.steps.map((step) => step.outcome), ['kept'])
  assert.match(await ok('explain', id, 'explained'), /inbox/)
})

test('devices, topics and presence are shown as tables and as JSON', async () => {
  await ok('devices', 'register', '--device', 'shown', '--user', 'cli-show', '--topic', 'cli-topic', '--tag', 'plan=paid', '--json')
  assert.match(await ok('devices', 'list', '--user', 'cli-show'), /shown/)
  assert.deepEqual((await ok('devices', 'show', 'shown', '--json')).tags, { plan: 'paid' })
  await ok('send', '--topic', 'cli-topic', '--title', 'notice', '--retain', '--json')
  assert.equal((await ok('topics', 'show', 'cli-topic', '--json')).subscribers, 1)
  assert.match(await ok('topics', 'retained', 'cli-topic'), /notice/)
  await ok('topics', 'clear', 'cli-topic')
  assert.match(await ok('presence', 'cli-show'), /offline/)
  await ok('devices', 'delete', 'shown')
  assert.equal((await node.cli('devices', 'show', 'shown')).code, 1)
})

test('devices are imported from a file; rejected lines are saved with their reasons', async () => {
  const file = join(folder, 'devices.ndjson')
  const tokens = join(folder, 'tokens.ndjson')
  const lines = Array.from({ length: 2_500 }, (_, i) => JSON.stringify({ device: `import-${i}`, user: `import-user-${i}` }))
  writeFileSync(file, [...lines, '', '{"device":"bad","platfrom":"web"}'].join('\n'))
  const { code, stdout } = await node.cli('import', 'devices', file, '--tokens', tokens, '--json')
  assert.equal(code, 1, 'some were refused')
  const summary = JSON.parse(stdout)
  assert.deepEqual([summary.imported, summary.refused], [2_500, 1])
  assert.match(readFileSync(summary.rejects, 'utf8'), /platfrom/)
  assert.equal(statSync(tokens).mode & 0o077, 0, 'only the owner can read tokens')
  const { token } = JSON.parse(readFileSync(tokens, 'utf8').split('\n')[1_234])
  assert.equal((await node.api.me(token).show()).user, 'import-user-1234')
})

test('exit codes reflect failures', async () => {
  assert.equal((await cli(['send', '--user', 'u', '--title', 't', '--server', 'http://127.0.0.1:9'], { NOROSHI_KEY: 'k' })).code, 69)
  assert.equal((await cli(['send', '--user', 'u', '--title', 't', '--server', node.http], { NOROSHI_KEY: 'wrong' })).code, 77)
  assert.equal((await node.cli('send', '--title', 'to nobody')).code, 2)
  assert.equal((await node.cli('explain', '01890a5d-ac96-774b-bcce-b302099a8057')).code, 1)
  assert.equal((await node.cli('config', 'check')).code, 0)
})

test('shell completions and a configuration are printed', async () => {
  assert.match(await ok('completions', 'bash'), /complete/)
  assert.match(await ok('config', 'print'), /ping_interval/)
})
