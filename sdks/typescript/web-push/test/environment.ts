/** A service worker's and a page's globals, and a service whose answers a test decides. */

import 'fake-indexeddb/auto'

export interface Request {
  method: string
  path: string
  token: string | null
  body: any
}

export const settle = async () => {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setTimeout(resolve))
}

/** Answers in order: a status, headers with it, or an error of the network. The last one is repeated. */
export function service(...answers: (number | [number, Record<string, string>] | Error)[]) {
  const requests: Request[] = []
  globalThis.fetch = (async (url: URL, init: RequestInit) => {
    requests.push({ method: init.method!, path: url.pathname + url.search, token: new Headers(init.headers).get('authorization'), body: JSON.parse(String(init.body)) })
    const answer = answers.length > 1 ? answers.shift()! : (answers[0] ?? 200)
    if (answer instanceof Error) throw answer
    const [status, headers] = typeof answer === 'number' ? [answer, {}] : answer
    return new Response(status === 204 ? null : '{}', { status, headers })
  }) as unknown as typeof fetch
  return requests
}

export const subscription = (endpoint: string, key: ArrayBuffer = new ArrayBuffer(65)) => ({
  endpoint,
  options: { applicationServerKey: key },
  getKey: () => new ArrayBuffer(16),
  unsubscribe: async () => true,
})

/** The worker's scope: what was shown, and its listeners. */
export function scope() {
  const listeners = new Map<string, (event: any) => void>()
  const shown: [string, any][] = []
  const synced: string[] = []
  const badges: number[] = []
  const state = { subscription: null as any, subscribed: [] as any[], refuses: false }
  Object.assign(globalThis, {
    registration: {
      scope: 'https://app.test/',
      showNotification: async (title: string, options: any) => void shown.push([title, options]),
      sync: { register: async (tag: string) => void synced.push(tag) },
      pushManager: {
        getSubscription: async () => state.subscription,
        subscribe: async (options: any) => {
          if (state.refuses) throw new DOMException('no', 'NotAllowedError')
          state.subscribed.push(options)
          return (state.subscription = subscription('https://push.test/new'))
        },
      },
    },
    location: new URL('https://app.test/worker.js'),
    clients: { matchAll: async () => [], openWindow: async () => {} },
    addEventListener: (type: string, listener: any) => listeners.set(type, listener),
  })
  Object.defineProperty(globalThis, 'navigator', {
    configurable: true,
    value: { setAppBadge: async (count: number) => void badges.push(count), clearAppBadge: async () => void badges.push(0) },
  })
  const dispatch = async (type: string, event: object = {}) => {
    let waiting: Promise<unknown> = Promise.resolve()
    listeners.get(type)!({ ...event, waitUntil: (promise: Promise<unknown>) => (waiting = promise) })
    return waiting
  }
  return {
    shown,
    synced,
    badges,
    state,
    dispatch,
    push: (payload: unknown, event = {}) => dispatch('push', { data: payload === null ? null : { text: () => (typeof payload === 'string' ? payload : JSON.stringify(payload)) }, ...event }),
    click: (id: string, action = '') => dispatch('notificationclick', { action, notification: { close() {}, data: { noroshi: { id, url: 'https://app.test/x', actions: {}, data: null } } } }),
  }
}
