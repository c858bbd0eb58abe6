/** The admin API of a node, with the operator's token from its data folder. */

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { api } from './api.mjs'

export function operator(node) {
  const token = readFileSync(join(node.data, 'operator.token'), 'utf8').trim()
  const { raw: ask } = api(`http://127.0.0.1:${node.adminPort}`, token)
  const raw = (method, path, body) => ask(method, path, { body })
  return {
    raw,
    /** Creates an app; returns its provider API, with a key of all scopes. */
    async app(name, settings = {}) {
      const made = await raw('POST', '/v1/apps', { name, ...settings })
      assert.equal(made.status, 201, made.text)
      const key = await raw('POST', `/v1/apps/${name}/keys`, { name: 'all', scopes: ['publish', 'devices', 'read', 'admin'] })
      assert.equal(key.status, 201, key.text)
      return { api: api(node.http, key.body.key) }
    },
    async change(name, settings) {
      const changed = await raw('PATCH', `/v1/apps/${name}`, settings)
      assert.equal(changed.status, 200, changed.text)
    },
  }
}
