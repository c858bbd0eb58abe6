/** Plays one vector to the client. The form of vectors is in sdks/vectors/README.md. */

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'

import { Noroshi } from '../../src/index.js'
import { Clock, settle } from './clock.js'
import type { Wire } from './wire.js'

export interface Vector {
  name: string
  rules: string[]
  options?: Record<string, any>
  tokens?: ({ name: string; lifetime_s?: number; iat?: boolean; clock_ahead_s?: number } | { fail: true } | { none: true } | { pending: true })[]
  random?: number[]
  steps: Record<string, any>[]
}

const FOLDER = new URL('../../../../vectors/', import.meta.url)

/** `next`: rules that libraries of other languages do not follow yet. */
export const files = ['', 'next/'].flatMap((folder) =>
  readdirSync(new URL(folder, FOLDER)).filter((file) => file.endsWith('.json') && file !== 'schema.json').sort().map((file) => folder + file),
)

export const vectors: (Vector & { file: string })[] = files
  .flatMap((file) => (JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8')).vectors as Vector[]).map((vector) => ({ file, ...vector })))

const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')

export async function play(vector: Vector, wire: Wire): Promise<void> {
  const clock = new Clock(vector.random)
  const runtime = { ...wire.runtime, ...clock.runtime }
  const local: object[] = []
  const tokens = [...(vector.tokens ?? [{ name: 't1' }])]
  const options = vector.options ?? {}
  const deferred = new Map<string, { resolve: () => void; reject: (error: Error) => void }>()

  const client = new Noroshi({
    url: wire.url,
    runtime: options.websocket === false ? { ...runtime, WebSocket: undefined } : runtime,
    ...(options.app && { app: options.app }),
    ...(options.acknowledge && { acknowledge: options.acknowledge }),
    ...(options.ping_interval_s && { pingInterval: options.ping_interval_s }),
    ...(options.transports && { transports: options.transports }),
    getToken: async ({ reason }) => {
      local.push({ token: reason })
      const next = tokens.shift()
      assert.ok(next, 'the vector has no more tokens')
      if ('fail' in next) throw new Error('the backend is away')
      if ('none' in next) return null
      if ('pending' in next) return new Promise<string>(() => {})
      if (next.lifetime_s === undefined) return next.name
      const iat = Math.floor(clock.now / 1000) + (next.clock_ahead_s ?? 0)
      const claims = { jti: next.name, exp: iat + next.lifetime_s, ...(next.iat === false ? {} : { iat }) }
      return `${encode({ alg: 'none' })}.${encode(claims)}.x`
    },
  })
  const listener = ({ id }: { id: string }) => {
    local.push({ message: id })
    if (options.listener === 'throws') throw new Error('the listener failed')
    if (options.listener === 'deferred') return new Promise<void>((resolve, reject) => deferred.set(id, { resolve, reject }))
  }
  if (options.listener !== 'none') client.on('message', listener)
  client.on('state', ({ state, reason, retryInMs, transport }) =>
    local.push({ state, ...(reason && { reason }), ...(retryInMs !== undefined && { in_ms: retryInMs }), ...(transport && { transport }) }),
  )
  client.on('recovered', ({ topic, complete }) => local.push({ recovered: topic, complete }))
  client.on('denied', ({ topic, code, reason }) => local.push({ denied: topic, code, reason }))
  client.on('error', ({ code }) => local.push({ error: code }))
  client.on('items', ({ event, ids }) => local.push({ items: event, ids }))

  const calls: Record<string, (value: any) => void> = {
    connect: () => client.connect(),
    close: () => client.close(),
    subscribe: ({ topic, recover = false }) => client.topic(topic, { recover }),
    unsubscribe: (topic) => client.topic(topic).unsubscribe(),
    ack: (ids) => client.ack(...ids),
    opened: (ids) => client.opened(...ids),
    presence: (presence) => (client.presence = presence),
    page: (page) => client.pageChanged(page),
    finish: (id) => deferred.get(id)!.resolve(),
    fail: (id) => deferred.get(id)!.reject(new Error('the listener failed')),
    listen_unread: () => client.on('unread', ({ unread, categories }) => local.push({ unread, categories })),
    me: () => client.me().then(({ device }) => local.push({ me: device }), ({ code }) => local.push({ failed: code })),
    variant: (name) => client.variant(name).then((variant) => local.push({ variant: variant?.variant ?? null })),
    mark_read: (ids) => client.inbox.markRead(ids).then(({ changed }) => local.push({ changed }), ({ code }) => local.push({ failed: code })),
  }

  try {
    for (const [index, step] of [...vector.steps, { expect: {} }].entries()) {
      const [[name, value]] = Object.entries(step) as [[string, any]]
      try {
        if (name === 'call') {
          const [[call, argument]] = Object.entries(value) as [[string, any]]
          assert.ok(calls[call], `not a call: ${call}`)
          calls[call](argument)
          await settle()
        } else if (name === 'advance') await clock.advance(value)
        else if (name === 'expect') {
          await wire.expect(value.wire ?? [])
          await settle()
          for (let i = 0; i < 500 && local.length < (value.local?.length ?? 0); i++) await new Promise((resolve) => setTimeout(resolve, 10))
          assert.deepEqual(local.splice(0), value.local ?? [])
        } else await wire.step(step)
      } catch (error) {
        ;(error as Error).message = `step ${index} ${JSON.stringify(step)}\n${(error as Error).message}`
        throw error
      }
    }
    assert.deepEqual(clock.unusedRandom, [], 'random numbers were not used')
    assert.deepEqual(tokens, [], 'tokens were not used')
  } finally {
    client.close()
  }
}
