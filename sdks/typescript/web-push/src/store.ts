/** What page and worker remember in IndexedDB: reports that wait, and for whom the browser is subscribed. No credential. */

const NAME = 'noroshi-web-push'
/** CONTRACT.md O2. */
const REPORTS_MAX = 1_000
/** No notification is known for longer. */
const AGE_MAX_MS = 28 * 86_400_000

export interface State {
  /** The device for which the browser is subscribed. */
  device: string
  /** The public VAPID key of the subscription, base64url. */
  key: string
  /** The subscription has changed, and the service does not know the new one. */
  isChanged: boolean
}

const settled = <Result>(request: IDBRequest<Result>): Promise<Result> =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })

async function transaction<Result>(mode: IDBTransactionMode, use: (reports: IDBObjectStore, state: IDBObjectStore) => Promise<Result>): Promise<Result> {
  const opening = indexedDB.open(NAME, 1)
  opening.onupgradeneeded = () => {
    opening.result.createObjectStore('opened')
    opening.result.createObjectStore('state')
  }
  const database = await settled(opening)
  try {
    const all = database.transaction(['opened', 'state'], mode)
    const done = new Promise<void>((resolve, reject) => {
      all.oncomplete = () => resolve()
      all.onabort = all.onerror = () => reject(all.error)
    })
    done.catch(() => {})
    const result = await use(all.objectStore('opened'), all.objectStore('state'))
    await done
    return result
  } finally {
    database.close()
  }
}

/** An opened notification that the service does not know yet. The oldest one gives way. */
export const addReport = (id: string, now: number): Promise<unknown> =>
  transaction('readwrite', async (reports) => {
    await settled(reports.put(now, id))
    const [ids, times] = await Promise.all([settled(reports.getAllKeys()), settled(reports.getAll() as IDBRequest<number[]>)])
    if (ids.length <= REPORTS_MAX) return
    const oldest = times.indexOf(Math.min(...times))
    await settled(reports.delete(ids[oldest]!))
  })

/** The notifications whose report waits. */
export const waitingReports = (now: number): Promise<string[]> =>
  transaction('readwrite', async (reports) => {
    const [ids, times] = await Promise.all([settled(reports.getAllKeys()), settled(reports.getAll() as IDBRequest<number[]>)])
    const isOld = (index: number) => now - times[index]! > AGE_MAX_MS
    for (const [index, id] of ids.entries()) if (isOld(index)) reports.delete(id)
    return ids.filter((_, index) => !isOld(index)) as string[]
  })

export const removeReports = (ids: readonly string[]): Promise<unknown> =>
  transaction('readwrite', async (reports) => {
    for (const id of ids) reports.delete(id)
  })

export const readState = (): Promise<State | undefined> => transaction('readonly', (_, state) => settled(state.get('state')))

export const writeState = (value: State): Promise<unknown> => transaction('readwrite', (_, state) => settled(state.put(value, 'state')))

/** Everything: the reports belong to the device that is left. */
export const clear = (): Promise<unknown> =>
  transaction('readwrite', async (reports, state) => {
    reports.clear()
    state.clear()
  })
