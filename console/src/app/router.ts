/**
 * Addresses of pages: `/console/PAGE?app=…&id=…`.
 *
 * The path names the page only. Ids of users, devices and topics are in the query, because the server answers paths
 * with a dot in the last part as files, and ids may contain dots and slashes.
 */

import { signal } from '@preact/signals'

export const BASE = '/console/'

/** Here the console has the API; a log-in with a provider begins with a link to it. */
const API = `${BASE}api/`

export interface Place { page: string; query: URLSearchParams; hash: string }

export function parse(url: URL): Place | undefined {
  if (!url.pathname.startsWith(BASE) && url.pathname !== BASE.slice(0, -1)) return undefined
  if (url.pathname.startsWith(API)) return undefined
  const page = url.pathname.slice(BASE.length).replace(/\/+$/, '')
  return { page: page || 'overview', query: url.searchParams, hash: url.hash }
}

export function address(page: string, values: Record<string, string | undefined> = {}): string {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(values)) if (value !== undefined && value !== '') query.set(name, value)
  const text = query.toString()
  return `${BASE}${page === 'overview' ? '' : page}${text && `?${text}`}`
}

const current = (): Place => (typeof location === 'undefined' ? undefined : parse(new URL(location.href))) ??
  { page: 'overview', query: new URLSearchParams(), hash: '' }

export const place = signal<Place>(current())

/**
 * Grows when another page, or the page of another thing, is opened. A page that gives itself an id with `amend`, as a draft
 * does that was saved for the first time, stays the same one: mounted again it would lose what a person types.
 */
export const visit = signal(0)

function show(next: Place, how: 'open' | 'amend'): void {
  const { page, query } = place.value
  if (next.page !== page || (how === 'open' && next.query.get('id') !== query.get('id'))) visit.value += 1
  place.value = next
}

export function go(to: string, how: 'push' | 'replace' = 'push'): void {
  history[how === 'push' ? 'pushState' : 'replaceState'](null, '', to)
  show(current(), how === 'push' ? 'open' : 'amend')
  if (how === 'push') scrollTo(0, 0)
}

/** Changes parameters of the present address, such as the chosen tab, without an entry in the history. */
export function amend(values: Record<string, string | undefined>): void {
  const query = Object.fromEntries(place.value.query)
  go(address(place.value.page, { ...query, ...values }), 'replace')
}

/** Follows links inside of the console without loading the page again. Returns how to stop. */
export function follow(): () => void {
  const click = (event: MouseEvent): void => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return
    const link = (event.target as Element).closest?.('a')
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return
    const to = new URL(link.href)
    if (!parse(to) || (to.pathname === location.pathname && to.search === location.search && to.hash)) return
    event.preventDefault()
    go(to.href)
  }
  const pop = (): void => show(current(), 'open')
  document.addEventListener('click', click)
  addEventListener('popstate', pop)
  return () => {
    document.removeEventListener('click', click)
    removeEventListener('popstate', pop)
  }
}
