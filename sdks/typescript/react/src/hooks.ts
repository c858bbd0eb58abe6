/** The hooks. */

import type { AnyMessage, Message, Noroshi, PreferenceValues, Recovered, State, SubscribeOptions, Variant, Which } from '@noroshi/client'
import { useCallback, useEffect, useMemo, useRef, useState, useSyncExternalStore } from 'react'

import { INITIAL, InboxStore, type InboxOptions, type InboxSnapshot } from '../../inbox/src/store.js'
import { NO_PREFERENCES, PreferencesStore, type PreferencesSnapshot } from './preferences.js'
import { sharedOf, useNoroshi } from './provider.js'
import { NO_TOPIC, TopicStore, type TopicSnapshot } from './topic.js'

/** A function that is always the same and calls the newest one. */
function useLatest<Arguments extends unknown[], Result>(callback: ((...args: Arguments) => Result) | undefined): (...args: Arguments) => Result | undefined {
  const latest = useRef(callback)
  useEffect(() => {
    latest.current = callback
  })
  return useCallback((...args: Arguments) => latest.current?.(...args), [])
}

const IDLE: State = { state: 'idle' }

/** The state of the connection. */
export function useConnectionState(): State {
  const client = useNoroshi()
  const subscribe = useCallback((changed: () => void) => client.on('state', changed), [client])
  return useSyncExternalStore(subscribe, () => client.state, () => IDLE)
}

const inboxOf = (client: Noroshi<any>, { state, category, limit }: InboxOptions): InboxStore =>
  sharedOf(client).store(`inbox ${JSON.stringify([state, category, limit])}`, () => new InboxStore(client, { state, category, limit }))

const topicOf = (client: Noroshi<any>, topic: string): TopicStore =>
  sharedOf(client).store(`topic ${topic}`, (remove) => new TopicStore(client, topic, remove))

const preferencesOf = (client: Noroshi<any>, of: 'device' | 'user'): PreferencesStore =>
  sharedOf(client).store(`preferences ${of}`, () => new PreferencesStore(of === 'user' ? client.preferences.user : client.preferences))

/** One first call for the experiments of all components. */
const firstCall = (client: Noroshi<any>) => sharedOf(client).store('me', (remove) => client.me().catch((error: unknown) => (remove(), Promise.reject(error))))

/** Unread items of the user; `unread` is `undefined` until the service has reported them. */
export function useUnread(): { readonly unread: number | undefined; readonly categories: Readonly<Record<string, number>> } {
  // The counts of every inbox are the same, and include changes that are on their way.
  const store = inboxOf(useNoroshi(), {})
  const subscribe = store.subscribe
  const unread = useSyncExternalStore(subscribe, () => store.getSnapshot().unread, () => undefined)
  const categories = useSyncExternalStore(subscribe, () => store.getSnapshot().categories, () => INITIAL.categories)
  return useMemo(() => ({ unread, categories }), [unread, categories])
}

export interface UseInbox extends InboxSnapshot {
  /** The next page of older items. */
  loadMore(): Promise<void>
  refresh(): Promise<void>
  /** Each of the four is visible at once. If the service refuses, it is rolled back and the promise rejected; nobody has to handle it. */
  markRead(which: Which): Promise<void>
  markUnread(which: Which): Promise<void>
  archive(which: Which): Promise<void>
  unarchive(which: Which): Promise<void>
}

/** The user's notification centre. Components with the same options share one list. */
export function useInbox({ state, category, limit }: InboxOptions = {}): UseInbox {
  const client = useNoroshi()
  const store = useMemo(() => inboxOf(client, { state, category, limit }), [client, state, category, limit])
  const snapshot = useSyncExternalStore(store.subscribe, store.getSnapshot, () => INITIAL)
  useEffect(store.show, [store])
  return useMemo(() => {
    const { loadMore, refresh, markRead, markUnread, archive, unarchive } = store
    return { ...snapshot, loadMore, refresh, markRead, markUnread, archive, unarchive }
  }, [store, snapshot])
}

export interface UseTopicOptions<Data> extends SubscribeOptions {
  /** Called for each message; it is acknowledged after this has returned, and its promise is resolved. */
  onMessage?: ((message: Message<Data>) => unknown) | undefined
  /** Called after a reconnection. Unless `complete` is `true`, read the current state from your backend. */
  onRecovered?: ((event: Recovered) => void) | undefined
}

/** Subscribes while the component is mounted. React may skip messages that arrive at once; `onMessage` gets each of them. */
export function useTopic<Data = unknown>(topic: string, { recover = false, onMessage, onRecovered }: UseTopicOptions<Data> = {}): TopicSnapshot<Data> {
  const client = useNoroshi()
  const message = useLatest(onMessage)
  const recovered = useLatest(onRecovered)
  const store = useMemo(() => ({
    subscribe: (changed: () => void) => topicOf(client, topic).subscribe(changed),
    getSnapshot: (): TopicSnapshot<Data> => topicOf(client, topic).getSnapshot(),
  }), [client, topic])
  const snapshot = useSyncExternalStore(store.subscribe, store.getSnapshot, () => NO_TOPIC)
  useEffect(() => topicOf(client, topic).join({ message, recovered }, { recover }), [client, topic, recover, message, recovered])
  return snapshot
}

/** Calls the listener for every message while the component is mounted. The message is acknowledged after it has returned. */
export function useMessage<Topics extends object = Record<string, unknown>>(listener: (message: AnyMessage<Topics>) => unknown): void {
  const client: Noroshi<Topics> = useNoroshi<Topics>()
  const latest = useLatest(listener)
  useEffect(() => client.on('message', latest), [client, latest])
}

export interface UseVariant<Data> {
  /** `undefined` while it is loading, after an error, and if the device does not participate. */
  readonly variant: string | undefined
  readonly data: Data | undefined
  readonly isLoading: boolean
  readonly error: unknown
  /** Optional: the element that shows the variant. The exposure is then reported when half of it is in view. */
  readonly ref: (element: Element | null) => void
}

interface VariantState {
  of?: unknown
  variant?: Variant<any> | undefined
  error?: unknown
}

const canObserve = (): boolean => typeof IntersectionObserver === 'function'

/**
 * The device's variant of an experiment. The exposure is reported once the component has shown it on a visible page, or, with
 * `ref`, once the element is in view. `expose: false` leaves the report to `client.variant`.
 */
export function useVariant<Data = unknown>(experiment: string, { expose = true }: { expose?: boolean } = {}): UseVariant<Data> {
  const client = useNoroshi()
  const [result, setResult] = useState<VariantState>({})
  const [element, setElement] = useState<Element | null>(null)
  // The effect that follows the first commit sees the element before the state has it.
  const held = useRef<{ element: Element | null; isUsed: boolean }>({ element: null, isUsed: false })
  const ref = useCallback((element: Element | null) => {
    held.current = { element, isUsed: true }
    setElement(element)
  }, [])
  const key = useMemo(() => ({ client, experiment }), [client, experiment])
  const current = result.of === key ? result : undefined

  useEffect(() => {
    let isOver = false
    firstCall(client)
      .then(() => client.variant(experiment, { expose: false }))
      .then((variant) => ({ of: key, variant }), (error: unknown) => ({ of: key, error }))
      .then((state) => isOver || setResult(state))
    return () => void (isOver = true)
  }, [client, experiment, key])

  const variant = current?.variant
  useEffect(() => {
    const { element, isUsed } = held.current
    if (!expose || !variant || (isUsed && !element)) return
    return whenSeen(element, () => void client.variant(experiment).catch(() => {}))
  }, [client, experiment, expose, variant, element])

  return useMemo(
    () => ({ variant: variant?.variant, data: variant?.data as Data | undefined, isLoading: !current, error: current?.error, ref }),
    [variant, current, ref],
  )
}

/** Calls back once the page is visible, and half of the element, if there is one. */
function whenSeen(element: Element | null, seen: () => void): () => void {
  let observer: IntersectionObserver | undefined
  const stop = () => {
    document.removeEventListener('visibilitychange', look)
    observer?.disconnect()
  }
  const done = () => {
    stop()
    seen()
  }
  const look = () => {
    if (document.visibilityState === 'hidden' || observer) return
    if (!element || !canObserve()) return done()
    observer = new IntersectionObserver((entries) => entries.some(({ isIntersecting }) => isIntersecting && document.visibilityState !== 'hidden') && done(), { threshold: 0.5 })
    observer.observe(element)
  }
  document.addEventListener('visibilitychange', look)
  look()
  return stop
}

export interface UsePreferences extends PreferencesSnapshot {
  /** Replaces them: visible at once, rolled back if the service refuses. Nobody has to handle the promise. */
  save(values: PreferenceValues): Promise<void>
  /** Removes them: the defaults apply. */
  reset(): Promise<void>
  refresh(): Promise<void>
}

/** The preferences of the device, or those of its user. */
export function usePreferences(of: 'device' | 'user' = 'device'): UsePreferences {
  const client = useNoroshi()
  const store = preferencesOf(client, of)
  const snapshot = useSyncExternalStore(store.subscribe, store.getSnapshot, () => NO_PREFERENCES)
  return useMemo(() => ({ ...snapshot, save: store.save, reset: store.reset, refresh: store.refresh }), [store, snapshot])
}
