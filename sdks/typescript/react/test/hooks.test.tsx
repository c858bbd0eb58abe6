/** @vitest-environment happy-dom */
/** The hooks in StrictMode, with a client and a service in this process. */

import assert from 'node:assert/strict'
import { useMemo, useState } from 'react'
import { afterEach, beforeEach, test } from 'vitest'

import type { Message } from '@noroshi/client'
import { Service, id, settle } from '../../inbox/test/service.js'
import {
  NoroshiProvider,
  useConnectionState,
  useInbox,
  useMessage,
  useNoroshi,
  usePreferences,
  useTopic,
  useUnread,
  useVariant,
  type UseInbox,
  type UsePreferences,
} from '../src/index.js'
import { acted, mount } from './mount.js'

let service: Service
let client: ReturnType<Service['client']>
beforeEach(() => {
  service = new Service()
  client = service.client()
})
const unmounts: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const unmount of unmounts.splice(0)) await unmount()
  client.close()
})

async function show(children: React.ReactNode) {
  const mounted = await mount(<NoroshiProvider client={client}>{children}</NoroshiProvider>)
  unmounts.push(mounted.unmount)
  return { ...mounted, render: (children: React.ReactNode) => mounted.render(<NoroshiProvider client={client}>{children}</NoroshiProvider>) }
}
const frames = (type: string) => service.requests.filter((one) => one.startsWith(`frame ${type}`))
const message = (number: number, topic?: string) => ({ t: 'msg', id: `m${number}`, data: number, sent_at: '', ack: true, ...(topic && { topic, epoch: 'e', offset: number }) })

test('a provider connects once in StrictMode, and closes when it is unmounted', async () => {
  const State = () => <p>{useConnectionState().state}</p>
  const states: string[] = []
  client.on('state', ({ state }) => states.push(state))
  const { text, unmount, complaints } = await show(<State />)
  assert.equal(text(), 'connected')
  assert.deepEqual(states, ['connecting', 'connected'])
  assert.equal(frames('connect').length, 1)
  await unmount()
  await settle()
  assert.equal(client.state.state, 'closed')
  assert.deepEqual(complaints, [])
})

test('another client replaces the connection', async () => {
  const other = service.client()
  const State = () => <p>{useConnectionState().state}</p>
  const { render, unmount } = await mount(<NoroshiProvider client={client}><State /></NoroshiProvider>)
  await render(<NoroshiProvider client={other}><State /></NoroshiProvider>)
  assert.deepEqual([client.state.state, other.state.state], ['closed', 'connected'])
  await unmount()
})

test('hooks need a provider', async () => {
  const Alone = () => <>{String(useNoroshi())}</>
  const errors: string[] = []
  const { createRoot } = await import('react-dom/client')
  const { Component } = await import('react')
  class Boundary extends Component<{ children: React.ReactNode }> {
    override state = { failed: false }
    static getDerivedStateFromError = () => ({ failed: true })
    override componentDidCatch = (error: Error) => void errors.push(error.message)
    override render = () => (this.state.failed ? null : this.props.children)
  }
  const log = console.error
  console.error = () => {}
  const root = createRoot(document.createElement('div'))
  await acted(() => root.render(<Boundary><Alone /></Boundary>))
  console.error = log
  assert.deepEqual(errors, ['no <NoroshiProvider> above this component'])
})

test('useInbox: pages, a change at once, rollback, reports', async () => {
  service.add(3)
  let inbox!: UseInbox
  let renders = 0
  const List = () => {
    inbox = useInbox({ limit: 2 })
    renders++
    return <>{inbox.items.map(({ id, state, notification }) => <i key={id}>{`${notification!.title} ${state};`}</i>)}{inbox.hasMore ? 'more' : 'end'}</>
  }
  const { text, complaints } = await show(<List />)
  assert.equal(text(), 'Title 3 unread;Title 2 unread;more')
  await acted(() => inbox.loadMore())
  assert.equal(text(), 'Title 3 unread;Title 2 unread;Title 1 unread;end')
  service.isHeld = true
  service.failures = [503]
  let failure: unknown
  await acted(() => void inbox.markRead(id(3)).catch(({ code }) => (failure = code)))
  assert.equal(text(), 'Title 3 read;Title 2 unread;Title 1 unread;end')
  assert.equal(inbox.unread, 2)
  await acted(() => service.release())
  assert.equal(text(), 'Title 3 unread;Title 2 unread;Title 1 unread;end')
  assert.deepEqual([failure, inbox.error?.code, inbox.unread], ['unavailable', 'unavailable', 3])
  service.items[0]!.state = 'archived'
  await acted(() => service.report('archived', [id(1)]))
  assert.equal(text(), 'Title 3 unread;Title 2 unread;end')
  const before = [renders, inbox] as const
  await acted(() => service.report('read', []))
  await acted(() => inbox.refresh())
  assert.equal(inbox.items, before[1].items)
  assert.equal(inbox.markRead, before[1].markRead)
  assert.deepEqual(complaints, [])
})

test('no component renders again when nothing has changed', async () => {
  service.add(1)
  const renders = { inbox: 0, unread: 0, state: 0, topic: 0 }
  const values = new Set<unknown>()
  const Inbox = () => (renders.inbox++, values.add(useInbox()), null)
  const Unread = () => (renders.unread++, values.add(useUnread()), null)
  const State = () => (renders.state++, useConnectionState(), null)
  const News = () => (renders.topic++, useTopic('news'), null)
  const Parent = () => {
    const [count, setCount] = useState(0)
    tick = () => setCount(count + 1)
    return useMemo(() => <><Inbox /><Unread /><State /><News /></>, [])
  }
  let tick!: () => void
  await show(<Parent />)
  const before = { ...renders }
  const objects = values.size
  await acted(() => service.report('read', []))
  await acted(() => service.send(message(1)))
  await acted(() => service.send(message(1, 'other')))
  await acted(() => tick())
  assert.deepEqual(renders, before)
  await acted(() => void (service.add(1), service.report('added', [])))
  assert.ok(renders.unread > before.unread)
  assert.deepEqual([renders.topic, renders.state], [before.topic, before.state])
  assert.ok(values.size > objects)
})

test('components with the same options share one list', async () => {
  service.add(2)
  const One = () => <>{useInbox({ limit: 5 }).items.length}</>
  const { text } = await show(<><One /><One /></>)
  assert.equal(text(), '22')
  const lists = service.requests.filter((one) => one.startsWith('GET /v1/me/items?')).length
  assert.ok(lists <= 2, service.requests.join('\n'))
})

test('useUnread counts what arrives', async () => {
  service.add(2, { category: 'orders' })
  const Count = () => {
    const { unread, categories } = useUnread()
    return <>{`${unread} ${JSON.stringify(categories)}`}</>
  }
  const { text } = await show(<Count />)
  assert.equal(text(), '2 {"orders":2}')
  service.add(1)
  await acted(() => service.report('added', [id(3)]))
  assert.equal(text(), '3 {"orders":2}')
  assert.equal(service.requests.filter((one) => one.startsWith('GET /v1/me/items?')).length, 0)
})

test('useTopic: subscribed once for several components, until the last one is unmounted', async () => {
  const seen: unknown[] = []
  const News = ({ name }: { name: string }) => {
    const { message } = useTopic<number>('news', { recover: true, onMessage: ({ data }) => void seen.push(`${name} ${data}`) })
    return <>{`${name} ${message?.data ?? '-'};`}</>
  }
  const { text, render, complaints } = await show(<><News name="a" /><News name="b" /></>)
  assert.equal(text(), 'a -;b -;')
  assert.deepEqual(frames('sub'), ['frame sub news'])
  await acted(() => service.send(message(1, 'news')))
  assert.equal(text(), 'a 1;b 1;')
  assert.deepEqual(seen, ['a 1', 'b 1'])
  await acted(() => settle())
  await new Promise((resolve) => setTimeout(resolve, 150))
  assert.deepEqual(frames('ack'), ['frame ack m1'])
  await render(<News name="b" />)
  assert.equal(text(), 'b 1;')
  assert.deepEqual(frames('unsub'), [])
  await render(null)
  await acted(() => new Promise((resolve) => setTimeout(resolve, 150)))
  assert.deepEqual(frames('unsub'), ['frame unsub news'])
  await render(<News name="c" />)
  await acted(() => new Promise((resolve) => setTimeout(resolve, 150)))
  assert.equal(text(), 'c -;')
  assert.equal(frames('sub').length, 2)
  assert.deepEqual(complaints, [])
})

test('useTopic: a component that replaces another one keeps the subscription and its message', async () => {
  const News = () => <>{useTopic<number>('news').message?.data ?? '-'}</>
  const { text, render } = await show(<News key="a" />)
  await acted(() => service.send(message(1, 'news')))
  await render(<News key="b" />)
  await acted(() => new Promise((resolve) => setTimeout(resolve, 150)))
  assert.equal(text(), '1')
  assert.deepEqual([frames('sub'), frames('unsub')], [['frame sub news'], []])
})

test('useTopic: refusals and gaps', async () => {
  const gaps: unknown[] = []
  const News = () => {
    const { denied, recovered } = useTopic('news', { recover: true, onRecovered: ({ complete }) => void gaps.push(complete) })
    return <>{`${denied?.reason} ${recovered?.complete}`}</>
  }
  const { text } = await show(<News />)
  // The answer to the subscription, which has no position, is not reported (CONTRACT.md R4).
  await acted(() => service.send({ t: 'recovered', topic: 'news', complete: true, epoch: 'ccaa8904', offset: 1 }))
  assert.deepEqual(gaps, [])
  await acted(() => service.send({ t: 'recovered', topic: 'news', complete: false }))
  assert.deepEqual([text(), gaps], ['undefined false', [false]])
  await acted(() => service.send({ t: 'error', code: 'topic_forbidden', message: 'no', topic: 'news', reason: 'no_rule' }))
  assert.equal(text(), 'no_rule false')
})

test('useMessage calls the newest listener once per message', async () => {
  const seen: string[] = []
  const Log = ({ name }: { name: string }) => (useMessage(({ data }: Message) => void seen.push(`${name} ${data}`)), null)
  const { render } = await show(<Log name="a" />)
  await acted(() => service.send(message(1)))
  await render(<Log name="b" />)
  await acted(() => service.send(message(2)))
  assert.deepEqual(seen, ['a 1', 'b 2'])
})

test('useVariant: the exposure is reported once, after the variant was shown', async () => {
  service.me.experiments = { checkout: { variant: 'green', data: { colour: '#0a0' } } }
  const exposures: unknown[] = []
  service.routes['POST /v1/me/exposures'] = (body) => (exposures.push(body.experiments), {})
  const shown: unknown[] = []
  const Checkout = ({ name }: { name: string }) => {
    const { variant, data, isLoading } = useVariant<{ colour: string }>(name)
    shown.push(variant)
    return <>{isLoading ? 'loading' : `${variant} ${data?.colour}`}</>
  }
  Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => visibility })
  let visibility = 'hidden'
  const { text, render, complaints } = await show(<><Checkout name="checkout" /><Checkout name="checkout" /></>)
  assert.equal(text(), 'green #0a0green #0a0')
  assert.deepEqual(exposures, [])
  visibility = 'visible'
  await acted(() => document.dispatchEvent(new Event('visibilitychange')))
  assert.deepEqual(exposures, [['checkout']])
  await render(<Checkout name="other" />)
  assert.equal(text(), 'undefined undefined')
  await render(<Checkout name="checkout" />)
  assert.equal(text(), 'green #0a0')
  assert.deepEqual(exposures, [['checkout']])
  assert.equal(service.requests.filter((one) => one === 'GET /v1/me').length, 1)
  assert.deepEqual(complaints, [])
})

test('useVariant: with an element, once it is in view', async () => {
  service.me.experiments = { checkout: { variant: 'green' } }
  const exposures: unknown[] = []
  service.routes['POST /v1/me/exposures'] = (body) => (exposures.push(body.experiments), {})
  const observers: { callback: (entries: { isIntersecting: boolean }[]) => void; elements: Element[] }[] = []
  const before = globalThis.IntersectionObserver
  ;(globalThis as any).IntersectionObserver = class {
    own: (typeof observers)[number]
    constructor(callback: any) {
      this.own = { callback, elements: [] }
      observers.push(this.own)
    }
    observe = (element: Element) => void this.own.elements.push(element)
    disconnect = () => void observers.splice(observers.indexOf(this.own), 1)
  }
  const Checkout = ({ isHidden = false }) => {
    const { variant, ref } = useVariant('checkout')
    return variant && !isHidden ? <b ref={ref}>{variant}</b> : null
  }
  const { container, render } = await show(<Checkout />)
  await render(<Checkout isHidden />)
  assert.deepEqual([exposures, observers.length], [[], 0])
  await render(<Checkout />)
  assert.deepEqual(exposures, [])
  assert.deepEqual(observers.map(({ elements }) => elements), [[container.querySelector('b')]])
  await acted(() => observers[0]!.callback([{ isIntersecting: false }]))
  assert.deepEqual(exposures, [])
  await acted(() => observers[0]!.callback([{ isIntersecting: true }]))
  assert.deepEqual([exposures, observers.length], [[['checkout']], 0])
  globalThis.IntersectionObserver = before
})

test('useVariant: an error, and no exposure if the application reports it', async () => {
  service.failures = [500]
  const Checkout = () => {
    const { error, isLoading } = useVariant('checkout', { expose: false })
    return <>{isLoading ? 'loading' : String((error as { code: string }).code)}</>
  }
  const mounted = await mount(<NoroshiProvider client={client} connect={false}><Checkout /></NoroshiProvider>)
  assert.equal(mounted.text(), 'unavailable')
  await mounted.unmount()
})

test('usePreferences: read, saved at once, rolled back', async () => {
  let stored: object = { channels: ['inbox'] }
  service.routes['GET /v1/me/user/preferences'] = () => stored
  service.routes['PUT /v1/me/user/preferences'] = (body) => (stored = body)
  service.routes['DELETE /v1/me/user/preferences'] = () => void (stored = {})
  let preferences!: UsePreferences
  const Form = () => <>{JSON.stringify((preferences = usePreferences('user')).values)}</>
  const { text, complaints } = await show(<Form />)
  assert.equal(text(), '{"channels":["inbox"]}')
  service.isHeld = true
  service.failures = [503]
  let failure: unknown
  await acted(() => void preferences.save({ channels: [] }).catch(({ code }) => (failure = code)))
  assert.equal(text(), '{"channels":[]}')
  await acted(() => service.release())
  assert.deepEqual([text(), failure, preferences.error?.code], ['{"channels":["inbox"]}', 'unavailable', 'unavailable'])
  await acted(() => Promise.all([preferences.save({ channels: ['push'] }), preferences.save({ channels: ['live'] })]))
  assert.deepEqual([text(), stored, preferences.error], ['{"channels":["live"]}', { channels: ['live'] }, undefined])
  stored = { channels: ['push'] }
  await acted(() => preferences.refresh())
  assert.equal(text(), '{"channels":["push"]}')
  await acted(() => preferences.reset())
  assert.equal(text(), '{}')
  assert.deepEqual(complaints, [])
})
