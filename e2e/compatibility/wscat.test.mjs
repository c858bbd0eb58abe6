/** wscat, for inspecting a connection by hand. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const wscat = fileURLToPath(new URL('node_modules/.bin/wscat', import.meta.url))
let node

before(async () => { node = await Node.start() })
after(() => node.stop())

test('wscat shows the messages of a device', async () => {
  const device = await node.api.register({ user: 'u1' })
  const child = spawn(wscat, ['-c', `${node.ws}/v1/connect?token=${device.token}`])
  let printed = ''
  child.stdout.on('data', (data) => { printed += data })
  await until('the ready frame', () => printed.includes('"t":"ready"'))
  const { id } = await node.api.publish({ to: { users: ['u1'] }, notification: { title: 'hello' } })
  await until('the notification', () => printed.includes(`"id":"${id}"`))
  assert.ok(printed.includes('"title":"hello"'), printed)
  child.kill()
})
