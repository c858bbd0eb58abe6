/** Tabs without a browser: locks and channels in memory, and a tab that the browser has frozen. */

import assert from 'node:assert/strict'
import { afterEach, beforeEach, test, vi } from 'vitest'

import { Noroshi } from '../src/index.js'
import { Clock, settle } from './vectors/clock.js'
import { LocalWire } from './vectors/wire.js'

/** The part of Web Locks that the library uses. */
class Locks {
  readonly #held = new Map<string, Promise<unknown>>()
  readonly #stolen = new Map<string, (error: Error) => void>()
  readonly #queues = new Map<string, (() => void)[]>()

  async request(name: string, { signal, steal }: { signal?: AbortSignal; steal?: boolean }, callback: () => unknown): Promise<unknown> {
    if (steal) {
      this.#held.delete(name)
      this.#stolen.get(name)?.(new DOMException('stolen', 'AbortError'))
    }
    while (this.#held.has(name)) {
      await new Promise<void>((resolve, reject) => {
        this.#queues.set(name, [...(this.#queues.get(name) ?? []), resolve])
        signal?.addEventListener('abort', () => reject(signal.reason))
      })
    }
    signal?.throwIfAborted()
    const stolen = new Promise<never>((_, reject) => this.#stolen.set(name, (error) => thawed.then(() => reject(error))))
    const held = Promise.resolve().then(callback)
    this.#held.set(name, held)
    return Promise.race([held, stolen]).finally(() => {
      if (this.#held.get(name) !== held) return
      this.#held.delete(name)
      for (const wake of this.#queues.get(name) ?? []) wake()
      this.#queues.delete(name)
    })
  }

  query = async () => ({ held: [...this.#held.keys()].map((name) => ({ name })) })
}

/** Until then the tab that hangs does not learn that its lock was stolen. */
let thawed = Promise.resolve()

const channels = new Set<Channel>()
class Channel {
  onmessage: ((event: { data: any }) => void) | null = null
  /** What arrived while the tab hangs. */
  queue: { data: any }[] | undefined
  receive(event: { data: any }): void {
    if (this.queue) this.queue.push(event)
    else this.onmessage?.(event)
  }
  constructor(readonly name: string) {
    channels.add(this)
  }
  postMessage(data: unknown): void {
    const copy = structuredClone(data)
    for (const other of channels) if (other !== this && other.name === this.name) queueMicrotask(() => other.receive({ data: copy }))
  }
  close = () => channels.delete(this)
}

const NAME = 'noroshi:http://service.test::'
let locks: Locks
let wire: LocalWire
let clock: Clock
const open: Noroshi[] = []

beforeEach(() => {
  locks = new Locks()
  wire = new LocalWire()
  clock = new Clock(Array(20).fill(0))
  channels.clear()
  vi.stubGlobal('navigator', { locks })
  vi.stubGlobal('BroadcastChannel', Channel)
})
afterEach(() => {
  for (const one of open.splice(0)) one.close()
  vi.unstubAllGlobals()
})

function tab() {
  const noroshi = new Noroshi({ url: wire.url, getToken: () => 't1', runtime: { ...wire.runtime, ...clock.runtime }, shareTabs: true })
  const shown: string[] = []
  noroshi.on('message', ({ id }) => void shown.push(id))
  open.push(noroshi)
  return { noroshi, shown, start: async () => (noroshi.connect(), settle()) }
}

/** A tab that holds its lock and has announced itself, and answers nothing. */
async function frozenTab() {
  let thaw!: () => void
  void locks.request(`${NAME}:tab:frozen`, {}, () => new Promise<void>((resolve) => (thaw = resolve)))
  const channel = new Channel(NAME)
  const notes: any[] = []
  channel.onmessage = ({ data }) => notes.push(data)
  await settle()
  const say = (note: object) => (channel.postMessage(note), settle())
  await say({ k: 'hello', from: 'frozen', topics: [], hidden: true, positions: [], follows: false })
  return { notes, say, end: () => (channel.close(), thaw(), settle()) }
}

const READY = { t: 'ready', device: 'd1', session: '1', ping_s: 240 }
const LOGIN = [{ open: 'websocket' }, { frame: { t: 'connect', token: 't1' } }]
const message = (id: string) => ({ t: 'msg', id, ack: true, sent_at: '' })
const ack = (...ids: string[]) => ({ frame: { t: 'ack', ids } })

async function logIn() {
  await wire.step({ accept: {} })
  await wire.step({ send: READY })
  await wire.expect(LOGIN)
}

test('N3: a frozen tab is waited for 30 s, and not again until it answers', async () => {
  const one = tab()
  await one.start()
  await logIn()
  const frozen = await frozenTab()
  await wire.step({ send: message('m1') })
  await wire.step({ send: { t: 'pong' } })
  await clock.advance(29_999)
  await wire.expect([])
  await clock.advance(1)
  await wire.expect([ack('m1')])
  await clock.advance(1_000)
  await wire.step({ send: message('m2') })
  await wire.expect([ack('m2')])
  // What arrived waits in its queue; its answer makes it count again.
  const { from, n } = frozen.notes.find(({ k }) => k === 'msg')
  await frozen.say({ k: 'done', to: from, from: 'frozen', n, outcome: 'handled' })
  await clock.advance(1_000)
  await wire.step({ send: message('m3') })
  await wire.expect([])
  await frozen.say({ k: 'done', to: from, from: 'frozen', n: frozen.notes.filter(({ k }) => k === 'msg').at(-1).n, outcome: 'handled' })
  await wire.expect([ack('m3')])
  assert.deepEqual(one.shown, ['m1', 'm2', 'm3'])
})

test('N2: the end of a tab is noticed at once', async () => {
  const one = tab()
  await one.start()
  await logIn()
  const frozen = await frozenTab()
  await wire.step({ send: message('m1') })
  await wire.expect([])
  await frozen.end()
  await wire.expect([ack('m1')])
})

test('a leader waits at most 2 s for tabs that do not announce themselves', async () => {
  void locks.request(`${NAME}:tab:silent`, {}, () => new Promise(() => {}))
  const one = tab()
  await one.start()
  await clock.advance(1_999)
  await wire.expect([])
  await clock.advance(1)
  await logIn()
})

test('N4, N5: a successor recovers from the last position, and shows nothing twice', async () => {
  const [one, two] = [tab(), tab()]
  one.noroshi.topic('news', { recover: true })
  two.noroshi.topic('news', { recover: true })
  await one.start()
  await two.start()
  await wire.step({ accept: {} })
  await wire.step({ send: READY })
  await wire.expect([...LOGIN, { frame: { t: 'sub', topics: ['news'], since: { news: null } } }])
  const news = (id: string, offset: number) => ({ ...message(id), topic: 'news', epoch: 'e', offset })
  await clock.advance(1_000)
  await wire.step({ send: news('m1', 1) })
  await wire.expect([ack('m1')])
  await one.start()
  one.noroshi.close()
  await settle()
  await wire.step({ accept: {} })
  await wire.step({ send: READY })
  await wire.expect([{ close: 1000 }, ...LOGIN, { frame: { t: 'sub', topics: ['news'], since: { news: { epoch: 'e', offset: 1 } } } }])
  await clock.advance(1_000)
  await wire.step({ send: news('m1', 1) })
  await wire.step({ send: news('m2', 2) })
  await clock.advance(100)
  await wire.expect([ack('m1'), ack('m2')])
  assert.deepEqual([one.shown, two.shown], [['m1'], ['m1', 'm2']])
})

test('N4, R7: a successor recovers from the position of a topic without messages', async () => {
  const [one, two] = [tab(), tab()]
  one.noroshi.topic('news', { recover: true })
  two.noroshi.topic('news', { recover: true })
  await one.start()
  await two.start()
  await wire.step({ accept: {} })
  await wire.step({ send: READY })
  await wire.expect([...LOGIN, { frame: { t: 'sub', topics: ['news'], since: { news: null } } }])
  await wire.step({ send: { t: 'recovered', topic: 'news', complete: true, epoch: 'e', offset: 7 } })
  await clock.advance(1_000)
  one.noroshi.close()
  await settle()
  await wire.step({ accept: {} })
  await wire.step({ send: READY })
  await wire.expect([{ close: 1000 }, ...LOGIN, { frame: { t: 'sub', topics: ['news'], since: { news: { epoch: 'e', offset: 7 } } } }])
})

/** Two tabs of which the first one leads, then hangs until the second one has taken over. */
async function takeover(hang: (channel: Channel, page: EventTarget) => () => void) {
  const [one, two] = [tab(), tab()]
  for (const { noroshi } of [one, two]) noroshi.topic('news', { recover: true })
  one.noroshi.topic('alone', { recover: true })
  const page = new EventTarget()
  vi.stubGlobal('document', page)
  await one.start()
  vi.stubGlobal('document', new EventTarget())
  const [channel] = channels
  await two.start()
  await wire.step({ accept: {} })
  await wire.step({ send: READY })
  await wire.expect([...LOGIN, { frame: { t: 'sub', topics: ['news', 'alone'], since: { news: null, alone: null } } }])
  await wire.step({ send: { t: 'recovered', topic: 'alone', complete: true, epoch: 'e', offset: 4 } })
  const news = (id: string, offset: number) => ({ ...message(id), topic: 'news', epoch: 'e', offset })
  await clock.advance(1_000)
  await wire.step({ send: news('m1', 1) })
  await wire.expect([ack('m1')])
  const states: string[] = []
  for (const { noroshi } of [one, two]) noroshi.on('state', ({ state }) => states.push(state))
  const thaw = hang(channel!, page)
  await settle()
  return { one, two, channel: channel!, news, states, thaw }
}

test('N10: a leader that hangs loses its lock, and follows when it returns', async () => {
  const { one, two, channel, news, states, thaw } = await takeover((channel) => {
    channel.queue = []
    let resolve = () => {}
    thawed = new Promise((done) => (resolve = done))
    return resolve
  })
  // Two questions, and two seconds for the tab that does not announce itself.
  await clock.advance(12_999)
  await wire.expect([])
  await clock.advance(1)
  await wire.step({ accept: {} })
  await wire.step({ send: READY })
  await wire.expect([...LOGIN, { frame: { t: 'sub', topics: ['news'], since: { news: { epoch: 'e', offset: 1 } } } }])
  await clock.advance(1_000)
  await wire.step({ send: news('m2', 2) })
  await wire.expect([ack('m2')])
  assert.deepEqual([one.shown, two.shown], [['m1'], ['m1', 'm2']])
  thaw()
  await settle()
  for (const event of channel.queue!.splice(0)) channel.onmessage?.(event)
  channel.queue = undefined
  await clock.advance(1_000)
  await wire.expect([{ close: 1000 }, { frame: { t: 'unsub', topics: ['news'] } }, { frame: { t: 'sub', topics: ['news', 'alone'], since: { news: { epoch: 'e', offset: 2 }, alone: { epoch: 'e', offset: 4 } } } }])
  await wire.step({ send: news('m2', 2) })
  await wire.step({ send: news('m3', 3) })
  await clock.advance(100)
  await wire.expect([ack('m2'), ack('m3')])
  assert.deepEqual([one.shown, two.shown], [['m1', 'm2', 'm3'], ['m1', 'm2', 'm3']])
  assert.deepEqual([one.noroshi.state.state, two.noroshi.state.state], ['connected', 'connected'])
  assert.ok(!states.includes('closed'), states.join())
})

test('N10: a leader whose page is frozen gives up its lock', async () => {
  const { one, two, channel, news, thaw } = await takeover((channel, page) => {
    page.dispatchEvent(new Event('freeze'))
    channel.queue = []
    return () => page.dispatchEvent(new Event('resume'))
  })
  await clock.advance(2_000)
  await wire.step({ accept: {} })
  await wire.step({ send: READY })
  await wire.expect([{ close: 1000 }, ...LOGIN, { frame: { t: 'sub', topics: ['news'], since: { news: { epoch: 'e', offset: 1 } } } }])
  await clock.advance(1_000)
  await wire.step({ send: news('m2', 2) })
  await wire.expect([ack('m2')])
  thaw()
  for (const event of channel.queue!.splice(0)) channel.onmessage?.(event)
  channel.queue = undefined
  await clock.advance(1_000)
  assert.deepEqual([one.shown, two.shown], [['m1', 'm2'], ['m1', 'm2']])
  assert.equal(one.noroshi.state.state, 'connected')
})

test('N10: a leader that answers keeps its lock', async () => {
  const [one, two] = [tab(), tab()]
  await one.start()
  await two.start()
  await logIn()
  for (let n = 0; n < 6; n++) {
    await clock.advance(10_000)
    await wire.step({ send: { t: 'pong' } })
  }
  await wire.expect([])
})

test('N6, N7: topics are those of all tabs, and the device is active if one tab is', async () => {
  const [one, two] = [tab(), tab()]
  one.noroshi.topic('a')
  await one.start()
  await wire.step({ accept: {} })
  await wire.step({ send: READY })
  await wire.expect([...LOGIN, { frame: { t: 'sub', topics: ['a'] } }])
  await clock.advance(1_000)
  two.noroshi.topic('b')
  await two.start()
  await wire.expect([{ frame: { t: 'sub', topics: ['b'] } }])
  await wire.step({ send: { ...message('m1'), topic: 'b', epoch: 'e', offset: 1 } })
  await clock.advance(1_000)
  await wire.expect([ack('m1')])
  assert.deepEqual([one.shown, two.shown], [[], ['m1']])
  one.noroshi.presence = 'idle'
  await settle()
  await clock.advance(20_000)
  await wire.expect([])
  two.noroshi.presence = 'idle'
  await settle()
  await clock.advance(10_000)
  await wire.expect([{ frame: { t: 'presence', state: 'idle' } }])
  two.noroshi.close()
  await settle()
  await clock.advance(1_000)
  await wire.expect([{ frame: { t: 'unsub', topics: ['b'] } }])
})

test('N9: at most 1,000 messages wait in a tab that hangs; the others go on', async () => {
  const [one, two] = [tab(), tab()]
  const errors: string[] = []
  two.noroshi.on('message', () => new Promise(() => {}))
  two.noroshi.on('error', ({ code }) => errors.push(code))
  await one.start()
  await two.start()
  await logIn()
  // The leader has 64 messages on their way at a time; 30 s later it no longer waits for the other tab.
  await wire.step({ send_many: { count: 900, frame: message('m#') } })
  await clock.advance(31_000)
  for (let minute = 0; minute < 2; minute++) {
    await wire.step({ send: { t: 'pong' } })
    await clock.advance(20_000)
  }
  await wire.step({ send_many: { count: 200, frame: message('n#') } })
  await wire.step({ send: { t: 'pong' } })
  await clock.advance(1_000)
  await settle()
  assert.equal(one.shown.length, 1_100)
  assert.deepEqual([...new Set(errors)], ['queue_full'])
})

test('S4: a tab that closes drops what waits for its listeners', async () => {
  const one = tab()
  const seen: string[] = []
  let finish = () => {}
  one.noroshi.on('message', ({ id }) => {
    seen.push(id)
    return new Promise<void>((resolve) => (finish = resolve))
  })
  await one.start()
  await logIn()
  await wire.step({ send: message('m1') })
  await wire.step({ send: message('m2') })
  one.noroshi.close()
  finish()
  await settle()
  assert.deepEqual(seen, ['m1'])
  await wire.expect([{ close: 1000 }])
  await one.start()
  await logIn()
  await wire.step({ send: message('m1') })
  await wire.step({ send: message('m2') })
  finish()
  await settle()
  assert.deepEqual(seen, ['m1', 'm2'])
  await clock.advance(100)
  await wire.expect([ack('m1'), ack('m2')])
})

test('without Web Locks an error says that tabs do not share the connection', async () => {
  vi.stubGlobal('navigator', {})
  const one = tab()
  const errors: string[] = []
  one.noroshi.on('error', ({ code }) => errors.push(code))
  await one.start()
  assert.deepEqual(errors, ['tabs_unavailable'])
  await logIn()
})
