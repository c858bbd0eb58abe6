/** A client without a credential. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Node } from '../lib/node.mjs'

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

test('a client without a credential cannot publish, read or register', async () => {
  for (const [method, path] of [
    ['POST', '/v1/notifications'],
    ['POST', '/v1/devices'],
    ['GET', '/v1/topics/news'],
    ['GET', '/v1/me'],
  ]) {
    const answer = await fetch(`${node.http}${path}`, {
      method,
      headers: { 'Content-Type': 'application/json' },
      body: method === 'POST' ? '{}' : undefined,
    })
    assert.equal(answer.status, 401, `${method} ${path}`)
    assert.equal(answer.headers.get('content-type'), 'application/problem+json')
  }
})
