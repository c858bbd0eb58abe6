/**
 * The provider and consumer API over plain `fetch`. Methods return the parsed body and throw `ApiError`
 * for any other status than expected.
 */

import { DEADLINE_MS } from './until.mjs'

export class ApiError extends Error {
  constructor(method, path, status, body) {
    super(`${method} ${path} -> ${status} ${typeof body === 'string' ? body : JSON.stringify(body)}`)
    this.status = status
    this.body = body
  }
}

export function api(base, key, { deadlineMs = DEADLINE_MS } = {}) {
  /** One request; `body` is sent as JSON unless it is a string. */
  async function raw(method, path, { body, token = key, headers = {} } = {}) {
    const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body)
    const response = await fetch(base + path, {
      method,
      body: text,
      signal: AbortSignal.timeout(deadlineMs),
      headers: {
        ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        ...(text === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
    })
    const answer = await response.text()
    const type = response.headers.get('content-type') ?? ''
    const json = /^application\/(problem\+)?json/.test(type)
    return { status: response.status, headers: response.headers, type, text: answer, body: json ? JSON.parse(answer) : answer }
  }

  async function call(method, path, options = {}) {
    const answer = await raw(method, path, options)
    const wanted = options.status ?? (answer.status >= 200 && answer.status < 300 ? answer.status : 200)
    if (answer.status !== wanted) throw new ApiError(method, path, answer.status, answer.body)
    return answer.body
  }

  const ndjson = (path) => async (lines) => {
    const body = lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n') + '\n'
    const text = await call('POST', path, { body, headers: { 'content-type': 'application/x-ndjson' } })
    return text.trimEnd().split('\n').map((line) => JSON.parse(line))
  }

  return {
    raw,
    call,
    /** Publishes a notification; returns its `{id, targets}`. */
    publish: (notification, headers) =>
      call('POST', '/v1/notifications', { body: notification, headers, status: 202 }),
    publishBatch: ndjson('/v1/notifications/batch'),
    notification: (id) => call('GET', `/v1/notifications/${id}`),
    trace: (id, device) => call('GET', `/v1/notifications/${id}/devices/${encodeURIComponent(device)}`),
    cancel: (id) => call('DELETE', `/v1/notifications/${id}`),
    /** Returns `{device, token, connect}`. */
    register: (device = {}) => call('POST', '/v1/devices', { body: device, status: 201 }),
    registerBatch: ndjson('/v1/devices/batch'),
    presence: async (...users) => (await call('POST', '/v1/presence', { body: { users } })).users,
    /** The requests of a device about itself. */
    me: (token) => ({
      show: () => call('GET', '/v1/me', { token }),
      change: (body) => call('PATCH', '/v1/me', { token, body }),
      remove: () => call('DELETE', '/v1/me', { token }),
      subscribe: (topic) => call('PUT', `/v1/me/topics/${encodeURIComponent(topic)}`, { token }),
      unsubscribe: (topic) => call('DELETE', `/v1/me/topics/${encodeURIComponent(topic)}`, { token }),
      presence: (state) => call('PUT', '/v1/me/presence', { token, body: { state } }),
      inbox: (limit = 100) => call('GET', `/v1/me/inbox?limit=${limit}`, { token }),
      ack: (...ids) => call('POST', '/v1/me/inbox/ack', { token, body: { ids } }),
    }),
  }
}
