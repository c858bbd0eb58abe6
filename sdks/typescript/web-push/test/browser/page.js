/** The page: a client, and the functions of the package for the test to call. */

import { Noroshi } from '@noroshi/client'
import { onOpened, permission, subscribe, unsubscribe, WebPushError } from '@noroshi/web-push'

const query = new URLSearchParams(location.search)
const noroshi = new Noroshi({ url: query.get('url'), getToken: async () => (await fetch(`/token?device=${query.get('device')}`)).text() })

const key = async () => (await fetch('/vapid-key')).text()
const code = async (promise) => {
  try {
    return (await promise)?.endpoint
  } catch (error) {
    if (!(error instanceof WebPushError)) throw error
    return error.code
  }
}

Object.assign(window, {
  permission,
  opened: [],
  subscribe: (prompt = true) => code(subscribe({ noroshi, serviceWorker: `/worker.js?${query}`, applicationServerKey: key, prompt })),
  unsubscribe: async () => unsubscribe({ noroshi, serviceWorker: await navigator.serviceWorker.ready }),
  request: (...args) => noroshi.request(...args),
  listen: (answer) => onOpened((opened) => (window.opened.push(opened), answer)),
})
