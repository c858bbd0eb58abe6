/** The first call of an app: experiments, maintenance notices and changes, from definition to device. */

import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

let node, folder
before(async () => {
  node = await Node.start()
  folder = mkdtempSync(join(tmpdir(), 'noroshi-first-call-'))
})
after(async () => {
  await node?.stop()
  rmSync(folder, { recursive: true, force: true })
})

async function ok(...args) {
  const { code, stdout, stderr } = await node.cli(...args)
  assert.equal(code, 0, `${args.join(' ')}: ${stdout}${stderr}`)
  return args.includes('--json') ? stdout.trim().split('\n').map((line) => JSON.parse(line)).at(-1) : stdout
}

const inSeconds = (seconds) => new Date(Date.now() + seconds * 1000).toISOString()

test('a file of experiments and notices is applied, and devices see their variants', async () => {
  const file = join(folder, 'definitions.toml')
  writeFileSync(file, `
[[experiments]]
name = "button"
variants = [{ name = "control", weight = 1 }, { name = "green", weight = 1, data = { colour = "#0a0" } }]
audience = { devices = { platforms = ["ios"] } }
overrides = { users = { tester = "green" } }

[[notices]]
name = "payments"
starts_at = ${inSeconds(-60)}
ends_at = ${inSeconds(3600)}
notification = { title = "Payments rest" }
locales = { ja = { notification = { title = "決済は休止中" } } }
`)
  const applied = await ok('experiment', 'apply', file)
  assert.match(applied, /experiments button: running/)
  assert.match(applied, /notices payments: active/)

  const ios = await node.api.register({ user: 'u1', platform: 'ios', locale: 'ja-JP' })
  const other = await node.api.register({ user: 'u1', platform: 'ios' })
  const web = await node.api.register({ user: 'u2', platform: 'web' })
  const tester = await node.api.register({ user: 'tester', platform: 'web' })
  const [mine, same, left, named] = await Promise.all(
    [ios, other, web, tester].map(({ token }) => node.api.me(token).show()),
  )
  assert.match(mine.experiments.button.variant, /^(control|green)$/)
  assert.deepEqual(same.experiments, mine.experiments, 'a user gets the same on every device')
  assert.deepEqual(left.experiments, {}, 'not of the audience')
  assert.deepEqual(named.experiments.button, { variant: 'green', data: { colour: '#0a0' } })
  assert.equal(mine.maintenance[0].notification.title, '決済は休止中')
  assert.equal(left.maintenance[0].notification.title, 'Payments rest')
  assert.ok(mine.connect.websocket.startsWith('ws://'))

  const told = await ok('experiment', 'variant', 'button', ios.device, '--json')
  assert.deepEqual([told.variant, told.running], [mine.experiments.button.variant, true])
  const exposed = await node.api.call('POST', '/v1/me/exposures', { token: ios.token, body: { experiments: ['button', 'x'] } })
  assert.deepEqual(exposed, { exposed: { button: told.variant } })

  await ok('experiment', 'kill', 'button')
  assert.deepEqual((await node.api.me(tester.token).show()).experiments, {})
  await ok('experiment', 'revive', 'button')
  assert.equal((await node.api.me(tester.token).show()).experiments.button.variant, 'green')
  await ok('experiment', 'archive', 'button')
  assert.deepEqual((await node.api.me(tester.token).show()).experiments, {})
  assert.match(await ok('experiment', 'list', '--archived'), /button +archived/)
})

test('an unchanged answer is 304, a changed one is sent', async () => {
  const { token } = await node.api.register({ user: 'etag' })
  const first = await node.api.raw('GET', '/v1/me', { token })
  const tag = first.headers.get('etag')
  const again = () => node.api.raw('GET', '/v1/me', { token, headers: { 'if-none-match': tag } })
  assert.deepEqual([(await again()).status, (await again()).text], [304, ''])
  const { id } = await node.api.publish({ to: { users: ['etag'] }, data: 'news' })
  const changed = await again()
  assert.equal(changed.status, 200)
  assert.deepEqual([changed.body.inbox, changed.body.messages[0].id], [1, id])
  await node.api.me(token).ack(id)
  assert.equal((await node.api.me(token).show()).inbox, 0)
})

test('an ack on a connection is in the next first call', async () => {
  const { token, device } = await node.api.register({ user: 'acks' })
  const { id } = await node.api.publish({ to: { users: ['acks'] }, data: 1 })
  assert.equal((await node.api.me(token).show()).inbox, 1)
  const connection = await Device.connect(node.ws, token)
  assert.equal((await connection.msg()).id, id)
  assert.equal((await node.api.me(token).show()).presence, 'active')
  connection.send({ t: 'ack', ids: [id] })
  await until('the ack', async () => (await node.api.me(token).show()).inbox === 0)
  await connection.leave()
  await until('offline', async () => (await node.api.me(token).show()).presence === 'offline')
  assert.ok(device)
})

test('a maintenance notice is published on its topic when it begins, changes and ends', async () => {
  const { token } = await node.api.register()
  await node.api.me(token).subscribe('$maintenance')
  const device = await Device.connect(node.ws, token)
  /** The next message about the notice. */
  async function told() {
    for (;;) {
      const msg = await device.msg()
      assert.equal(msg.topic, '$maintenance')
      const notice = msg.data.notices.find((one) => one.name === 'search')
      if (notice || msg.data.notices.every((one) => one.name !== 'search')) return notice
    }
  }
  const put = (...more) => ok('notice', 'put', 'search', '--ends-at', inSeconds(3600), ...more)
  await put('--starts-at', inSeconds(1800), '--title', 'Search will rest')
  let notice
  do notice = await told()
  while (!notice)
  assert.deepEqual([notice.state, notice.notification.title], ['announced', 'Search will rest'])
  await put('--starts-at', inSeconds(2), '--title', 'Search rests')
  do notice = await told()
  while (notice.state !== 'active')
  assert.equal(notice.notification.title, 'Search rests')
  await ok('notice', 'end', 'search')
  assert.equal(await told(), undefined)
  await device.leave()
  await assert.rejects(node.api.publish({ to: { topic: '$maintenance' }, data: 1 }), { status: 400 })
})
