/** Webhooks that a real node signs: events, questions of topic rules, pushes to a provider. */

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { JWT_SECRET, Node } from '../../../../../e2e/lib/node.mjs'
import { operatorToken } from '../../../../../e2e/lib/push.mjs'
import { until } from '../../../../../e2e/lib/until.mjs'
import { JwtSigner, webhookNodeHandler } from '../../dist/index.js'
import { discard } from '../../../test/discard.mjs'
import { client, closeDevices } from './lib.mjs'

const secret = `whsec_${randomBytes(32).toString('base64')}`
const folder = mkdtempSync(join(tmpdir(), 'noroshi-webhook-'))
const events = []
const errors = []
const onError = (error) => errors.push(error)
const questions = []
const pushes = []
/** How often the receiver of events fails. */
let failures = 1

const handlers = {
  '/events': webhookNodeHandler({ secret, onError }, (webhook) => {
    if (failures-- > 0) throw new Error('the receiver is not ready')
    events.push(...webhook.lines())
  }),
  '/topics': webhookNodeHandler({ secret, onError }, (webhook) => {
    const question = webhook.json()
    questions.push(question)
    return { allow: question.topic === 'room/open', expires_in: '1m' }
  }),
  '/push': webhookNodeHandler({ secret, onError }, (webhook) => {
    const { messages } = webhook.json()
    pushes.push(...messages)
    const results = messages.flatMap(({ recipients }) => recipients).filter(({ token }) => token.startsWith('gone')).map(({ id }) => ({ id, result: 'invalid_token' }))
    return { results }
  }),
  '/foreign': webhookNodeHandler({ secret: `whsec_${randomBytes(32).toString('base64')}`, onError }, () => assert.fail('it has no valid signature')),
}

let node, noroshi, server, origin
before(async () => {
  server = createServer((request, response) => handlers[request.url](request, response))
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  origin = `http://127.0.0.1:${server.address().port}`
  const keyFile = join(folder, 'events.key')
  writeFileSync(keyFile, `${secret}\n`, { mode: 0o600 })
  node = await Node.start({ args: ['--set', `events.webhook.url=${origin}/events`, '--set', `events.webhook.key_file=${keyFile}`] })
  noroshi = client(node)
})
after(async () => {
  closeDevices()
  await discard(node)
  server?.close()
  rmSync(folder, { recursive: true, force: true })
})

test('events arrive, also those that the receiver rejected first', async () => {
  const { id } = await noroshi.publish({ to: { users: ['u1'] }, data: 1 })
  await until('the event', () => events.some((line) => line.event === 'accepted' && line.id === id))
  assert.equal(events[0].event, 'started')
  assert.equal(events[0].v, 1)
  assert.equal(errors.filter(({ message }) => message === 'the receiver is not ready').length, 1)
  const keys = events.map(({ node, run, n }) => `${node} ${run} ${n}`)
  assert.equal(new Set(keys).size, keys.length)
})

/** Rules with an http URL are the operator's. */
async function setRules(path) {
  const rules = { subscribe: [{ topic: 'room/+', allow: 'ask' }], ask: { url: `${origin}${path}`, secret } }
  const headers = { authorization: `Bearer ${operatorToken(node)}`, 'content-type': 'application/json' }
  const response = await fetch(`http://127.0.0.1:${node.adminPort}/v1/apps/dev/topic-rules`, { method: 'PUT', headers, body: JSON.stringify(rules) })
  assert.equal(response.status, 200, await response.text())
}

test('questions of topic rules are answered', async () => {
  await setRules('/topics')
  const token = await new JwtSigner({ secret: JWT_SECRET, audience: 'dev' }).sign({ user: 'u1', device: 'd1' })
  const subscribe = async (topic) => (await fetch(`${node.http}/v1/me/topics/${encodeURIComponent(topic)}`, { method: 'PUT', headers: { authorization: `Bearer ${token}` } })).status
  assert.equal(await subscribe('room/open'), 204)
  assert.equal(await subscribe('room/closed'), 403)
  assert.deepEqual(questions.map(({ app, device, user, action, topic }) => ({ app, device, user, action, topic })), [
    { app: 'dev', device: 'd1', user: 'u1', action: 'subscribe', topic: 'room/open' },
    { app: 'dev', device: 'd1', user: 'u1', action: 'subscribe', topic: 'room/closed' },
  ])
  await setRules('/foreign')
  assert.equal(await subscribe('room/other'), 403)
  assert.ok(errors.some(({ code }) => code === 'bad_signature'))
  await noroshi.app('dev').topicRules.delete()
})

test('pushes reach a provider', async () => {
  await noroshi.app('dev').pushCredentials.add({ service: 'webhook', name: 'mail', url: `${origin}/push`, secret })
  for (const token of ['ann@example.com', 'gone@example.com']) {
    await noroshi.devices.register({ device: token, user: 'ann', push_token: { service: 'webhook', provider: 'mail', token } })
  }
  const { id } = await noroshi.publish({ to: { users: ['ann'] }, notification: { title: 'Your order has left' }, data: { order: 7 }, push: { mode: 'always', webhook: { template: 'order' } } })
  const counts = await until('both outcomes', async () => {
    const { counts } = await noroshi.notifications.get(id)
    return counts.pushed === 1 && counts.push_token_gone === 1 && counts
  })
  assert.ok(counts)
  assert.deepEqual([pushes[0].notification_id, pushes[0].notification.title, pushes[0].data, pushes[0].options], [id, 'Your order has left', { order: 7 }, { template: 'order' }])
  assert.deepEqual(pushes.flatMap(({ recipients }) => recipients.map(({ token }) => token)).sort(), ['ann@example.com', 'gone@example.com'])
})
