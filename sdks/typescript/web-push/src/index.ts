/**
 * Web Push for Noroshi: the page's part. The service worker's part is `@noroshi/web-push/worker`.
 *
 * @module
 */

import { WebPushError } from './error.js'
import { decode, encode, OPENED_MAX, OPENED_PATH, TOKEN_PATH, tokenOf, type Token } from './key.js'
import { clear, readState, removeReports, waitingReports, writeState } from './store.js'

export { WebPushError, type WebPushErrorCode } from './error.js'

/** Sends requests of the device's API: a `Noroshi` of `@noroshi/client`. */
export interface Api {
  request<Body>(method: string, path: string, options?: { body?: unknown }): Promise<Body>
}

/**
 * Whether the page may show notifications. `install`: on iOS and iPadOS the user must first add the page to the Home Screen.
 * `unsupported`: the browser has no Web Push, or the page is not secure.
 */
export type Permission = 'default' | 'granted' | 'denied' | 'install' | 'unsupported'

export interface SubscribeOptions {
  noroshi: Api
  /** The worker's registration, or the address of its script to be registered. */
  serviceWorker: ServiceWorkerRegistration | string
  /** The public key of the app's VAPID key pair (base64url), or a function that gets it from your server. */
  applicationServerKey: string | (() => string | Promise<string>)
  /** `false`: does not ask the user, and returns `undefined` unless the permission is granted. Call it so at each start of the page. */
  prompt?: boolean
}

export function permission(): Permission {
  const { navigator, Notification, PushManager } = globalThis as any
  if (!navigator?.serviceWorker || !PushManager || !Notification) return navigator?.standalone === false ? 'install' : 'unsupported'
  return Notification.permission
}

/** Calls the listener when the user changes the permission in the browser's settings; returns a function that removes it. */
export function watchPermission(listener: (permission: Permission) => void): () => void {
  let status: PermissionStatus | undefined
  let isOver = false
  const changed = () => listener(permission())
  globalThis.navigator?.permissions
    ?.query({ name: 'notifications' })
    .then((found) => {
      if (isOver) return
      status = found
      status.addEventListener('change', changed)
    })
    .catch(() => {}) // a browser that does not know the name has no such event
  return () => {
    isOver = true
    status?.removeEventListener('change', changed)
  }
}

/**
 * Subscribes the browser and registers the subscription as the device's push token. Call it in an event of the user, and with
 * `prompt: false` at each start: it subscribes again if the VAPID key or the device has changed, registers again if the service
 * has lost or suspended the token, and sends reports that wait.
 */
export async function subscribe({ noroshi, serviceWorker, applicationServerKey, prompt = true }: SubscribeOptions): Promise<PushSubscription | undefined> {
  let granted = permission()
  if (granted === 'install' || granted === 'unsupported') {
    if (!prompt) return undefined
    throw new WebPushError('unsupported', `Web Push is not available: ${granted}`)
  }
  if (granted === 'default' && prompt) {
    // First of all: browsers want it in the user's event.
    granted = await Notification.requestPermission()
    if (granted === 'default') throw new WebPushError('permission_dismissed', 'the user did not answer')
  }
  if (granted !== 'granted') {
    if (!prompt) return undefined
    throw new WebPushError('permission_denied', 'the user does not allow notifications')
  }
  const key = await publicKey(applicationServerKey)
  const registration = await activated(typeof serviceWorker === 'string' ? await navigator.serviceWorker.register(serviceWorker) : serviceWorker)
  const [state, me] = await Promise.all([readState(), noroshi.request<Me>('GET', '/v1/me')])
  let subscription = await registration.pushManager.getSubscription()
  const isOfOther = state !== undefined && state.device !== me.device
  if (isOfOther) await clear() // its reports too
  const current = subscription?.options?.applicationServerKey
  if (subscription && (isOfOther || (current ? encode(current) : state?.key) !== key)) {
    // Another device's messages must not arrive here, nor those of a key that is no longer used.
    await subscription.unsubscribe()
    subscription = null
  }
  try {
    subscription ??= await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: decode(key) })
  } catch (cause) {
    throw new WebPushError('subscribe_failed', `the browser did not subscribe: ${cause}`, { cause })
  }
  const token = tokenOf(subscription)
  await writeState({ device: me.device, key, isChanged: !isKnown(me, token) })
  if (!isKnown(me, token)) {
    await noroshi.request('PUT', TOKEN_PATH, { body: token })
    await writeState({ device: me.device, key, isChanged: false })
  }
  await sendReports(noroshi)
  return subscription
}

/** Ends the subscription in the browser and at the service. Call it when the user signs out. */
export async function unsubscribe({ noroshi, serviceWorker }: Pick<SubscribeOptions, 'noroshi'> & { serviceWorker: ServiceWorkerRegistration }): Promise<void> {
  const subscription = await serviceWorker.pushManager.getSubscription()
  // The browser first: then nothing arrives even if the service cannot be reached.
  await subscription?.unsubscribe()
  try {
    await sendReports(noroshi)
    await noroshi.request('DELETE', TOKEN_PATH)
  } finally {
    await clear()
  }
}

/** A notification was opened that a page may show itself. */
export interface Opened {
  /** The notification's id. */
  id: string | undefined
  url: string
  /** The button, or an empty text. */
  action: string
  data: unknown
}

/**
 * The page can show notifications without being loaded again: the listener gets what the user opened. Return `false` if the page
 * does not show this one; it is then opened in a window of its own. Returns a function that removes the listener.
 */
export function onOpened(listener: (opened: Opened) => boolean | void): () => void {
  const received = ({ data, ports }: MessageEvent) => {
    if (data?.type === 'noroshi-opened') ports[0]?.postMessage(listener(data.opened) !== false)
  }
  const { serviceWorker } = navigator
  serviceWorker?.addEventListener('message', received)
  serviceWorker?.startMessages()
  return () => serviceWorker?.removeEventListener('message', received)
}

interface Me {
  device: string
  push_token: (Partial<Token> & { service: string }) | null
  push_suspect: unknown
}

const isKnown = ({ push_token, push_suspect }: Me, { endpoint, keys }: Token): boolean =>
  !push_suspect && push_token?.endpoint === endpoint && push_token.keys?.p256dh === keys.p256dh && push_token.keys.auth === keys.auth

async function publicKey(key: SubscribeOptions['applicationServerKey']): Promise<string> {
  const text = typeof key === 'function' ? await key() : key
  try {
    const bytes = decode(text.trim())
    if (bytes.length === 65 && bytes[0] === 4) return encode(bytes.buffer)
  } catch {
    // reported below
  }
  throw new WebPushError('invalid_key', 'applicationServerKey is not an uncompressed P-256 point in base64url')
}

/** The registration with an active worker, which a subscription needs. */
async function activated(registration: ServiceWorkerRegistration): Promise<ServiceWorkerRegistration> {
  const worker = registration.installing ?? registration.waiting
  if (registration.active || !worker) return registration
  await new Promise<void>((resolve, reject) => {
    const changed = () => {
      if (worker.state === 'activated') resolve()
      else if (worker.state === 'redundant') reject(new WebPushError('subscribe_failed', 'the service worker could not be installed'))
    }
    worker.addEventListener('statechange', changed)
    changed()
  })
  return registration
}

/** Reports that the worker could not send. The service counts each once, also if the worker sends it at the same time. */
async function sendReports(noroshi: Api): Promise<void> {
  const ids = await waitingReports(Date.now())
  for (let from = 0; from < ids.length; from += OPENED_MAX) {
    const some = ids.slice(from, from + OPENED_MAX)
    await noroshi.request('POST', OPENED_PATH, { body: { ids: some } })
    await removeReports(some)
  }
}
