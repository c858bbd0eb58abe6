/** A client whose requests and answers are compared with the OpenAPI document, and a device. */

import { KEY } from '../../../../../e2e/lib/node.mjs'
import { until } from '../../../../../e2e/lib/until.mjs'
import { Noroshi } from '../../dist/index.js'
import { checkAnswer, checkRequest } from '../openapi.mjs'

/** Operations that were called, by their ids. */
export const called = new Set()

export function client(node, options = {}) {
  const checked = async (address, init = {}) => {
    const url = new URL(address)
    const headers = new Headers(init.headers)
    const text = init.body === undefined ? undefined : typeof init.body === 'string' ? init.body : new TextDecoder().decode(init.body)
    if (url.searchParams.has('dry_run')) headers.set('idempotency-key', 'ignored')
    // Tests also send wrong requests: the service rejects these.
    const operation = options.isLoose ? undefined : checkRequest(init.method, url, headers, text)
    const response = await fetch(address, init)
    if (!operation) return response
    called.add(operation.operationId)
    const answer = await response.clone().text()
    checkAnswer(operation, response.status, response.headers.get('content-type') ?? '', answer)
    return response
  }
  return new Noroshi({ url: node.http, key: KEY, fetch: checked, ...options })
}

export async function collect(results) {
  const all = []
  for await (const result of results) all.push(result)
  return all
}

/** A device that shows messages from server-sent events. */
export function device(node, token) {
  const abort = new AbortController()
  const shown = []
  let isReady = false
  const streaming = (async () => {
    const response = await fetch(`${node.http}/v1/events`, { headers: { authorization: `Bearer ${token}` }, signal: abort.signal })
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`)
    isReady = true
    let rest = ''
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      const parts = (rest + chunk).split('\n\n')
      rest = parts.pop()
      for (const part of parts) {
        const data = part.split('\n').find((line) => line.startsWith('data:'))
        if (!data) continue
        const frame = JSON.parse(data.slice(5))
        if (frame.t === 'msg') shown.push(frame)
      }
    }
  })()
  streaming.catch(() => {})
  const close = () => abort.abort()
  open.add(close)
  return {
    shown,
    ready: () => Promise.race([until('the device to be connected', () => isReady), streaming]),
    shows: (count) => until(`${count} messages`, () => shown.length >= count),
    close,
  }
}

/** Streams that keep a test process, and a node that drains, from ending. */
const open = new Set()
export const closeDevices = () => open.forEach((close) => close())
