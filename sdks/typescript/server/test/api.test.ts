/** Every operation that an API key may call has a method, which sends what the OpenAPI document describes. */

import assert from 'node:assert/strict'
import { expect, test } from 'vitest'

import { Noroshi, Pages } from '../src/index.js'
import type { paths } from '../src/paths.js'
import { checkRequest, operationOf, operations } from './openapi.mjs'

type OperationKey = { [P in keyof paths]: `${Uppercase<Extract<keyof paths[P], string>>} ${P}` }[keyof paths]

/** A body from the document's examples. */
function example(key: OperationKey): never {
  const content = operations.get(key)!.requestBody!.content['application/json']!
  return (content.example ?? Object.values(content.examples!)[0]!.value) as never
}

async function drain(results: AsyncIterable<unknown>): Promise<unknown[]> {
  const all = []
  for await (const result of results) all.push(result)
  return all
}

const registration = { device: 'd1', user: 'u1' }

/** A missing operation does not compile. */
const calls: Record<OperationKey, (noroshi: Noroshi) => unknown> = {
  'POST /v1/notifications': (n) => n.publish(example('POST /v1/notifications')),
  'GET /v1/notifications': (n) => n.notifications.list({ user: 'u1', urgency: 'high' }),
  'POST /v1/notifications/batch': (n) => drain(n.publishBatch([{ to: { users: ['u1'] }, data: 1 }])),
  'GET /v1/notifications/{id}': (n) => n.notifications.get('n1'),
  'DELETE /v1/notifications/{id}': (n) => n.notifications.cancel('n1'),
  'GET /v1/notifications/{id}/devices/{device}': (n) => n.notifications.explain('n1', 'd1'),
  'POST /v1/presence': (n) => n.presence(['u1']),
  'GET /v1/topics': (n) => n.topics.list(),
  'GET /v1/topics/{topic}': (n) => n.topics.get('news'),
  'GET /v1/topics/{topic}/retained': (n) => n.topics.retained('news'),
  'DELETE /v1/topics/{topic}/retained': (n) => n.topics.deleteRetained('news'),
  'POST /v1/devices': (n) => n.devices.register(registration),
  'GET /v1/devices': (n) => n.devices.list({ user: 'u1' }),
  'POST /v1/devices/batch': (n) => drain(n.devices.registerBatch([registration])),
  'GET /v1/devices/{device}': (n) => n.devices.get('d1'),
  'DELETE /v1/devices/{device}': (n) => n.devices.delete('d1'),
  'POST /v1/devices/{device}/revoke': (n) => n.devices.revoke('d1'),
  'GET /v1/devices/{device}/push-tokens': (n) => n.devices.pushTokens.list('d1'),
  'PUT /v1/devices/{device}/push-tokens/{kind}': (n) => n.devices.pushTokens.set('d1', 'fcm', { token: 't' }),
  'DELETE /v1/devices/{device}/push-tokens/{kind}': (n) => n.devices.pushTokens.delete('d1', 'fcm'),
  'PUT /v1/devices/{device}/push-tokens/{kind}/{name}': (n) => n.devices.pushTokens.set('d1', 'webhook', { token: 't' }, { name: 'mail' }),
  'DELETE /v1/devices/{device}/push-tokens/{kind}/{name}': (n) => n.devices.pushTokens.delete('d1', 'webhook', { name: 'mail' }),
  'POST /v1/users/{user}/revoke': (n) => n.users.revoke('u1'),
  'GET /v1/users/{user}/items': (n) => n.users.items.list('u1', { state: 'unread' }),
  'DELETE /v1/users/{user}/items': (n) => n.users.items.delete('u1'),
  'GET /v1/users/{user}/items/counts': (n) => n.users.items.counts('u1'),
  'GET /v1/users/{user}/preferences': (n) => n.users.preferences.get('u1'),
  'PUT /v1/users/{user}/preferences': (n) => n.users.preferences.set('u1', example('PUT /v1/users/{user}/preferences')),
  'DELETE /v1/users/{user}/preferences': (n) => n.users.preferences.delete('u1'),
  'GET /v1/devices/{device}/preferences': (n) => n.devices.preferences.get('d1'),
  'PUT /v1/devices/{device}/preferences': (n) => n.devices.preferences.set('d1', example('PUT /v1/devices/{device}/preferences')),
  'DELETE /v1/devices/{device}/preferences': (n) => n.devices.preferences.delete('d1'),
  'GET /v1/devices/{device}/endpoints': (n) => n.devices.endpoints.list('d1'),
  'DELETE /v1/devices/{device}/endpoints/{id}': (n) => n.devices.endpoints.delete('d1', 'e1'),
  'GET /v1/devices/{device}/topics/{topic}/permission': (n) => n.devices.topicPermission('d1', 'news', { action: 'publish' }),
  'GET /v1/apps/{app}': (n) => n.app('shop').get(),
  'PATCH /v1/apps/{app}': (n) => n.app('shop').change(example('PATCH /v1/apps/{app}')),
  'GET /v1/apps/{app}/keys': (n) => n.app('shop').keys.list(),
  'POST /v1/apps/{app}/keys': (n) => n.app('shop').keys.create({ name: 'backend', scopes: ['publish'] }),
  'DELETE /v1/apps/{app}/keys/{key}': (n) => n.app('shop').keys.revoke('k1'),
  'GET /v1/apps/{app}/quotas': (n) => n.app('shop').quotas(),
  'GET /v1/apps/{app}/push': (n) => n.app('shop').pushCredentials.list(),
  'POST /v1/apps/{app}/push': (n) => n.app('shop').pushCredentials.add(example('POST /v1/apps/{app}/push'), { replace: true }),
  'DELETE /v1/apps/{app}/push/{id}': (n) => n.app('shop').pushCredentials.delete('1'),
  'POST /v1/apps/{app}/push/{id}/test': (n) => n.app('shop').pushCredentials.test('1', { device: 'd1' }),
  'POST /v1/apps/{app}/push/{id}/rotate': (n) => n.app('shop').pushCredentials.rotate('1', { credential: { key: 'k' }, device: 'd1' }),
  'POST /v1/apps/{app}/push/{id}/restore': (n) => n.app('shop').pushCredentials.restoreTokens('1', { reason: 'BadDeviceToken' }),
  'GET /v1/apps/{app}/experiments': (n) => n.app('shop').experiments.list({ archived: true }),
  'GET /v1/apps/{app}/experiments/{name}': (n) => n.app('shop').experiments.get('checkout'),
  'PUT /v1/apps/{app}/experiments/{name}': (n) => n.app('shop').experiments.put('checkout', example('PUT /v1/apps/{app}/experiments/{name}')),
  'PATCH /v1/apps/{app}/experiments/{name}': async (n) => [await n.app('shop').experiments.kill('checkout'), await n.app('shop').experiments.revive('checkout')],
  'DELETE /v1/apps/{app}/experiments/{name}': (n) => n.app('shop').experiments.archive('checkout'),
  'GET /v1/apps/{app}/experiments/{name}/devices/{device}': (n) => n.app('shop').experiments.assigned('checkout', 'd1'),
  'GET /v1/apps/{app}/notices': (n) => n.app('shop').notices.list(),
  'GET /v1/apps/{app}/notices/{name}': (n) => n.app('shop').notices.get('payments'),
  'PUT /v1/apps/{app}/notices/{name}': (n) => n.app('shop').notices.put('payments', example('PUT /v1/apps/{app}/notices/{name}')),
  'DELETE /v1/apps/{app}/notices/{name}': (n) => n.app('shop').notices.end('payments'),
  'GET /v1/apps/{app}/topic-rules': (n) => n.app('shop').topicRules.get(),
  'PUT /v1/apps/{app}/topic-rules': (n) => n.app('shop').topicRules.set(example('PUT /v1/apps/{app}/topic-rules')),
  'DELETE /v1/apps/{app}/topic-rules': (n) => n.app('shop').topicRules.delete(),
  'GET /v1/apps/{app}/series': (n) => n.app('shop').series({ names: 'published', step: '1m' }),
  'POST /v1/campaigns': async (n) => [
    await n.campaigns.create(example('POST /v1/campaigns')),
    await n.campaigns.createDraft(example('POST /v1/campaigns')),
    await n.campaigns.count(example('POST /v1/campaigns')),
  ],
  'GET /v1/campaigns': (n) => n.campaigns.list({ state: 'running,paused' }),
  'GET /v1/campaigns/{id}': (n) => n.campaigns.get('c1'),
  'PATCH /v1/campaigns/{id}': (n) => n.campaigns.change('c1', { revision: 3, name: 'Spring' }),
  'DELETE /v1/campaigns/{id}': (n) => n.campaigns.delete('c1'),
  'POST /v1/campaigns/{id}/estimate': (n) => n.campaigns.estimate('c1'),
  'GET /v1/campaigns/{id}/recipients/{user}': (n) => n.campaigns.recipient('c1', 'u1'),
  'POST /v1/campaigns/{id}/recipients': (n) => drain(n.campaigns.uploadRecipients('c1', [{ user: 'u1', variables: { name: 'Ana' } }])),
  'POST /v1/campaigns/{id}/start': (n) => n.campaigns.start('c1', { revision: 3 }),
  'POST /v1/campaigns/{id}/pause': (n) => n.campaigns.pause('c1'),
  'POST /v1/campaigns/{id}/resume': (n) => n.campaigns.resume('c1'),
  'POST /v1/campaigns/{id}/abort': (n) => n.campaigns.abort('c1'),
  'POST /v1/activities': (n) => n.activities.start(example('POST /v1/activities')),
  'GET /v1/activities': (n) => n.activities.list(),
  'GET /v1/activities/{id}': (n) => n.activities.get('a1'),
  'PATCH /v1/activities/{id}': (n) => n.activities.update('a1', example('PATCH /v1/activities/{id}')),
  'DELETE /v1/activities/{id}': (n) => n.activities.end('a1', example('DELETE /v1/activities/{id}')),
  'GET /v1/activities/{id}/devices/{device}': (n) => n.activities.explain('a1', 'd1'),
  'GET /v1/push/invalidations': (n) => n.invalidations({ after: '7' }),
  'GET /v1/push/channels': (n) => n.channels.list(),
  'POST /v1/push/channels': (n) => n.channels.create(example('POST /v1/push/channels')),
  'GET /v1/push/channels/{name}': (n) => n.channels.get('final'),
  'PATCH /v1/push/channels/{name}': (n) => n.channels.change('final', { topic: null }),
  'DELETE /v1/push/channels/{name}': (n) => n.channels.delete('final', { forget: true }),
  'POST /v1/push/channels/{name}/broadcasts': (n) => n.channels.broadcast('final', example('POST /v1/push/channels/{name}/broadcasts')),
  'GET /v1/push/broadcasts/{id}': (n) => n.channels.broadcastState('b1'),
  'GET /v1/push/apns-channels': (n) => n.channels.atApple.list({ environment: 'sandbox' }),
  'DELETE /v1/push/apns-channels/{id}': (n) => n.channels.atApple.delete('x==', { environment: 'sandbox' }),
}

test('the document has no other operations', () => {
  assert.deepEqual([...operations.keys()].sort(), Object.keys(calls).sort())
})

test.each(Object.keys(calls) as OperationKey[])('%s', async (key) => {
  const sent: string[] = []
  const answer = (method: string, url: URL) => {
    const [, { responses }] = operationOf(method, url.pathname)
    const [status, { content = {} }] = Object.entries(responses).find(([status]) => status < '300')!
    const [type, of] = Object.entries(content)[0] ?? []
    if (type === undefined) return new Response(null, { status: Number(status) })
    const text = type === 'application/json' ? JSON.stringify(of!.example ?? {}) : (of!.example as string).split('\n')[0]!
    return new Response(text, { status: Number(status), headers: { 'content-type': type } })
  }
  const noroshi = new Noroshi({
    url: 'http://service.test',
    key: 'k',
    fetch: async (address, { method, headers, body } = {}) => {
      const url = new URL(address as string)
      const text = body === undefined ? undefined : typeof body === 'string' ? body : new TextDecoder().decode(body as Uint8Array)
      // A dry run takes no key, because it creates nothing.
      const given = new Headers(headers)
      if (url.searchParams.has('dry_run')) given.set('idempotency-key', 'ignored')
      checkRequest(method!, url, given, text)
      sent.push(operationOf(method!, url.pathname)[0])
      return answer(method!, url)
    },
  })
  const result = calls[key](noroshi)
  const value = result instanceof Pages ? await result.page() : await result
  assert.ok(sent.length >= 1 && sent.every((one) => one === key), sent.join())
  const [status] = Object.keys(operations.get(key)!.responses)
  if (status === '204') expect(value).toBeUndefined()
  else expect(value).toBeDefined()
})
