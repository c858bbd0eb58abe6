/** What both pages of the bell have in common. */

import type { Noroshi, NoroshiOptions } from '@noroshi/client'

const query = new URLSearchParams(location.search)

let failures = 0

export const options: NoroshiOptions = {
  url: query.get('url')!,
  getToken: async () => (await fetch(`/token?device=${query.get('device')}`)).text(),
  runtime: {
    // The next `fail` requests that change or list items find no server.
    fetch: (input, init) => (String(input).includes('/v1/me/items?') || init?.method === 'PATCH') && failures-- > 0 ? Promise.reject(new TypeError('no network')) : fetch(input, init),
  },
}

function start(noroshi: Noroshi): Noroshi {
  Object.assign(window, { noroshi, fail: (count: number) => (failures = count) })
  if (query.get('connect') !== 'no') noroshi.connect()
  return noroshi
}

export const page = Object.assign(start, {
  theme: (query.get('theme') ?? 'auto') as 'light' | 'dark' | 'auto',
  locale: query.get('locale') ?? 'en',
  limit: Number(query.get('limit') ?? 20),
  prevents: query.has('prevent'),
  selected: [] as (string | undefined)[],
})
Object.assign(window, { page })
