/**
 * Web Push for Noroshi: the service worker's part.
 *
 * @module
 */

import { WebPushError } from './error.js'
import { decode, OPENED_MAX, OPENED_PATH, TOKEN_PATH, tokenOf } from './key.js'
import { addReport, readState, removeReports, waitingReports, writeState } from './store.js'

export { WebPushError, type WebPushErrorCode } from './error.js'

/** What the app server published. Fields have the names of the API; docs/push.md lists them. */
export interface PushMessage {
  /** The notification's id. Browsers that show a declarative message themselves do not pass it on. */
  id?: string
  notification?: { title?: string; body?: string; url?: string; image?: string; icon?: string; [field: string]: unknown }
  data?: unknown
  /** The number for the app's icon. */
  app_badge?: number
  /** The browser shows it unless the worker shows something else. */
  isDeclared: boolean
  /** The whole payload: an object, or the text if it is no JSON. */
  payload: unknown
}

/** What the worker shows: the arguments of `showNotification`. */
export interface Shown {
  title: string
  options: NotificationOptions & { actions?: { action: string; title: string; icon?: string }[]; [field: string]: unknown }
}

export interface Click {
  id: string | undefined
  /** The address that is opened. */
  url: string
  /** The button, or an empty text. */
  action: string
  data: unknown
}

export interface WorkerOptions {
  /** The public address of the service, such as `https://push.example.com`. */
  url: string
  /** The app, if its JWTs do not name it. */
  app?: string
  /**
   * Returns a token of the device: ask your server, whose session cookie the worker's requests have. It is kept in memory only.
   * `null`: nobody is signed in. Without it, reports wait for the next `subscribe` of a page.
   */
  getToken?: () => string | null | Promise<string | null>
  /** For notifications without a title. Default: the worker's host name. */
  title?: string
  /** Icons, and other options that notifications do not have themselves. */
  defaults?: Shown['options']
  /** Changes the notification. `null` shows nothing; browsers then show a notice of their own, and may end the subscription. */
  show?: (shown: Shown | undefined, message: PushMessage) => Shown | null | undefined | Promise<Shown | null | undefined>
  /** The user clicked. `false`: nothing is opened. */
  onClick?: (click: Click) => boolean | void | Promise<boolean | void>
  /** The page for notifications without an address. Default: the worker's scope. */
  home?: string
  /** What fails in the background. Default: `console.warn`. */
  onError?: (error: WebPushError) => void
}

/** What `self` has in a service worker, as far as it is used here. */
interface Scope {
  registration: ServiceWorkerRegistration & { sync?: { register(tag: string): Promise<void> } }
  location: Location
  navigator: Navigator & { setAppBadge?(count: number): Promise<void>; clearAppBadge?(): Promise<void> }
  clients: {
    matchAll(options: object): Promise<Window[]>
    openWindow(url: string): Promise<unknown>
  }
  addEventListener(type: string, listener: (event: any) => void): void
}
interface Window {
  url: string
  focus(): Promise<unknown>
  postMessage(message: unknown, transfer: Transferable[]): void
}

const SYNC_TAG = 'noroshi-web-push'
const ATTEMPTS = 3
const TIMEOUT_MS = 30_000
/** A page that does not answer within this time does not show the notification. */
const PAGE_MS = 500
/** Browsers allow to open a window for some seconds after a click. */
const ASK_MAX = 3
/** Longer waits are left to the next event. */
const WAIT_MAX_MS = 5_000

/** Handles `push`, `notificationclick`, `pushsubscriptionchange` and `sync`. Call it once, when the worker's script starts. */
export function handlePush(options: WorkerOptions): void {
  const scope = globalThis as unknown as Scope
  const worker = new Worker(scope, options)
  scope.addEventListener('push', (event) => event.waitUntil(worker.pushed(event)))
  scope.addEventListener('notificationclick', (event) => {
    if (event.notification.data?.noroshi) event.waitUntil(worker.clicked(event))
  })
  scope.addEventListener('pushsubscriptionchange', (event) => event.waitUntil(worker.changed(event)))
  scope.addEventListener('activate', (event) => event.waitUntil(worker.send()))
  scope.addEventListener('sync', (event) => {
    if (event.tag === SYNC_TAG) event.waitUntil(worker.send(true))
  })
}

class Worker {
  #token: string | null | undefined
  #sending: Promise<void> | undefined
  #isAgain = false

  constructor(
    private readonly scope: Scope,
    private readonly options: WorkerOptions,
  ) {}

  async pushed(event: { data: { text(): string } | null; notification?: Notification | null }): Promise<void> {
    const message = parse(event)
    const shown = this.#shown(message)
    const { show } = this.options
    let wanted: Shown | null | undefined = message.isDeclared ? undefined : shown
    if (show) {
      try {
        const own = await show(shown, message)
        if (own !== undefined) wanted = own
      } catch (cause) {
        // The user still sees the message.
        this.#failed(new WebPushError('bad_payload', `show failed: ${cause}`, { cause }))
      }
    }
    await Promise.all([this.#badge(message), wanted ? this.scope.registration.showNotification(wanted.title, wanted.options) : this.#unshown(message, wanted)])
    // A push is a chance to send what waits.
    await this.send()
  }

  #unshown(message: PushMessage, wanted: null | undefined): void {
    if (wanted === undefined && !message.isDeclared) this.#failed(new WebPushError('bad_payload', 'a push without a notification, and `show` returned none'))
  }

  async clicked({ notification, action }: { notification: Notification; action: string }): Promise<void> {
    notification.close()
    const { id, url, actions, data } = notification.data.noroshi as Remembered
    const click: Click = { id, url: this.#page(actions[action] ?? url), action, data }
    const reported = id === undefined ? Promise.resolve() : this.#report(id)
    const isOpened = await Promise.resolve(click).then(this.options.onClick).catch((cause: unknown) => this.#failed(new WebPushError('bad_payload', `onClick failed: ${cause}`, { cause })))
    if (isOpened !== false) await this.#open(click)
    await reported
  }

  async changed(event: { oldSubscription?: PushSubscription | null; newSubscription?: PushSubscription | null }): Promise<void> {
    const state = await readState()
    // Nobody is subscribed any more.
    if (!state) return
    const { pushManager } = this.scope.registration
    const old = event.oldSubscription?.endpoint
    let subscription = event.newSubscription ?? (await pushManager.getSubscription())
    try {
      if (!subscription || subscription.endpoint === old) {
        subscription = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: decode(state.key) })
      }
    } catch (cause) {
      return this.#failed(new WebPushError('subscribe_failed', `the browser did not subscribe again: ${cause}`, { cause }))
    }
    await writeState({ ...state, isChanged: true })
    await this.#later()
    await this.send()
  }

  /** Sends what waits. `isLast`: fails if something is left, so that the browser tries again. */
  async send(isLast = false): Promise<void> {
    if (!this.options.getToken) return
    try {
      if (this.#sending) this.#isAgain = true
      await (this.#sending ??= this.#all().finally(() => (this.#sending = undefined)))
    } catch (error) {
      if (isLast) throw error
      this.#failed(error instanceof WebPushError ? error : new WebPushError('unavailable', `${error}`, { cause: error }))
    }
  }

  async #all(): Promise<void> {
    do {
      this.#isAgain = false
      const state = await readState()
      const subscription = state?.isChanged ? await this.scope.registration.pushManager.getSubscription() : null
      if (state && subscription) {
        if (!(await this.#request('PUT', TOKEN_PATH, tokenOf(subscription)))) return
        await writeState({ ...state, isChanged: false })
      }
      const ids = (await waitingReports(Date.now())).slice(0, OPENED_MAX)
      if (!ids.length) continue
      if (!(await this.#request('POST', OPENED_PATH, { ids }))) return
      await removeReports(ids)
      this.#isAgain ||= ids.length === OPENED_MAX
    } while (this.#isAgain)
  }

  /** False if nobody is signed in. Throws after some attempts. */
  async #request(method: string, path: string, body: object): Promise<boolean> {
    const { url, app, getToken } = this.options
    let isRejected = false
    for (let attempt = 1; ; attempt++) {
      const address = new URL(url.replace(/\/+$/, '') + path)
      if (app) address.searchParams.set('app', app)
      let wait = 500 * 2 ** (attempt - 1) * (0.5 + Math.random() / 2)
      let failure: WebPushError
      try {
        const token = (this.#token ??= await getToken!())
        if (token === null) return false
        const { status, headers } = await fetch(address, {
          method,
          headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
          body: JSON.stringify(body),
          credentials: 'omit',
          signal: AbortSignal.timeout(TIMEOUT_MS),
        })
        if (status >= 200 && status < 300) return true
        failure = new WebPushError('unavailable', `${method} ${path}: status ${status}`, { status })
        if (status === 401) {
          this.#token = undefined
          if (!isRejected) {
            // It has expired while the worker slept: another one at once.
            isRejected = true
            attempt--
            continue
          }
        }
        if (status < 500 && ![401, 408, 425, 429].includes(status)) {
          // CONTRACT.md O4: it cannot succeed.
          this.#failed(new WebPushError('rejected', `${method} ${path}: status ${status}`, { status }))
          return true
        }
        const after = headers.get('retry-after')
        if (after) wait = Math.max(wait, /^\d+$/.test(after) ? Number(after) * 1_000 : Date.parse(after) - Date.now())
      } catch (cause) {
        failure = new WebPushError('unavailable', `${method} ${path}: ${cause}`, { cause })
      }
      if (attempt >= ATTEMPTS || !(wait <= WAIT_MAX_MS)) throw failure
      await new Promise((resolve) => setTimeout(resolve, wait))
    }
  }

  async #report(id: string): Promise<void> {
    await addReport(id, Date.now())
    await this.#later()
    await this.send()
  }

  /** Background Sync, where the browser has it, sends the rest when the network returns. */
  async #later(): Promise<void> {
    try {
      await this.scope.registration.sync?.register(SYNC_TAG)
    } catch {
      // The next push, click or page sends it.
    }
  }

  #badge({ app_badge: count }: PushMessage): Promise<void> | undefined {
    const { navigator } = this.scope
    if (count === undefined) return undefined
    return (count ? navigator.setAppBadge?.(count) : navigator.clearAppBadge?.())?.catch(() => {}) // no icon to put it on
  }

  #shown({ id, notification, data, isDeclared }: PushMessage): Shown | undefined {
    if (!notification) return undefined
    const { title, url, actions = [], ...rest } = notification as any
    const options: Shown['options'] = { ...this.options.defaults }
    for (const [name, value] of Object.entries(rest)) {
      const option = OPTIONS[name]
      if (option && value !== null) options[option] = value
    }
    const remembered: Remembered = { id, url, actions: {}, data }
    if (Array.isArray(actions) && actions.length) {
      options.actions = actions.map(({ action, id = action, title, icon, navigate, url = navigate }) => {
        if (url) remembered.actions[id] = url
        return { action: id, title, ...(icon && { icon }) }
      })
    }
    // The same push twice is shown once.
    if (id !== undefined) options.tag ??= id
    options.data = { ...options.data, noroshi: remembered }
    // Instead of a declared notification, WebKit shows only one that has an address itself.
    if (isDeclared) options['navigate'] = url
    return { title: title || (this.options.title ?? this.scope.location.hostname), options }
  }

  /** A web address; a page opens no other. */
  #page(url: string | undefined): string {
    const home = new URL(this.options.home ?? this.scope.registration.scope, this.scope.location.href).href
    try {
      const { protocol, href } = new URL(url ?? home, home)
      return /^https?:$/.test(protocol) ? href : home
    } catch {
      return home
    }
  }

  /** Focuses the page with this address, or one that shows the notification itself; otherwise opens a window. */
  async #open(click: Click): Promise<void> {
    const { clients, location } = this.scope
    if (new URL(click.url).origin === location.origin) {
      const all = await clients.matchAll({ type: 'window', includeUncontrolled: true })
      const same = all.find(({ url }) => url === click.url)
      if (same) return void (await same.focus())
      // The most recently used ones come first.
      for (const page of all.slice(0, ASK_MAX)) {
        if (await ask(page, click)) return void (await page.focus())
      }
    }
    await clients.openWindow(click.url)
  }

  #failed(error: WebPushError): void {
    const { onError = (error) => console.warn(String(error)) } = this.options
    onError(error)
  }
}

interface Remembered {
  id: string | undefined
  url: string | undefined
  actions: Record<string, string>
  data: unknown
}

/** Names of the push message and those of `NotificationOptions`. */
const OPTIONS: Record<string, string> = {
  body: 'body',
  icon: 'icon',
  image: 'image',
  lang: 'lang',
  dir: 'dir',
  silent: 'silent',
  tag: 'tag',
  renotify: 'renotify',
  timestamp: 'timestamp',
  vibrate: 'vibrate',
  requireInteraction: 'requireInteraction',
  require_interaction: 'requireInteraction',
}

function parse({ data, notification }: { data: { text(): string } | null; notification?: Notification | null }): PushMessage {
  if (!data && notification) {
    // Push API: a declarative message that the worker may change.
    const { title, body, lang, dir, icon, tag, silent } = notification
    const { navigate, image } = notification as any
    const known = { title, body, lang, dir, icon, tag, silent, image, url: navigate }
    const given = Object.fromEntries(Object.entries(known).filter(([, value]) => value !== undefined && value !== null && value !== ''))
    return { notification: given, data: notification.data, isDeclared: true, payload: undefined }
  }
  const text = data?.text() ?? ''
  let payload: any = text
  try {
    payload = JSON.parse(text)
  } catch {
    // a text of the application's own
  }
  const isOurs = typeof payload === 'object' && payload !== null
  const { id, notification: shown, data: own, app_badge } = isOurs ? payload : ({} as any)
  return {
    ...(typeof id === 'string' && { id }),
    ...(typeof shown === 'object' && shown && { notification: shown }),
    ...(own !== undefined && { data: own }),
    ...(typeof app_badge === 'number' && { app_badge }),
    isDeclared: false,
    payload,
  }
}

function ask(page: Window, opened: Click): Promise<boolean> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel()
    const timer = setTimeout(() => resolve(false), PAGE_MS)
    port1.onmessage = ({ data }) => {
      clearTimeout(timer)
      port1.close()
      resolve(data === true)
    }
    page.postMessage({ type: 'noroshi-opened', opened }, [port2])
  })
}
