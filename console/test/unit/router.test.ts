import { afterEach, expect, test, vi } from 'vitest'

import { address, amend, go, parse, visit } from '../../src/app/router'

const at = (path: string) => parse(new URL(path, 'https://push.example.com'))

test('the path names the page and the query its values', () => {
  expect(at('/console/user?app=shop&id=alice')?.page).toBe('user')
  expect(at('/console/user?app=shop&id=alice')?.query.get('id')).toBe('alice')
})

test('the root is the overview, with and without a slash', () => {
  expect(at('/console/')?.page).toBe('overview')
  expect(at('/console')?.page).toBe('overview')
})

test('other addresses do not belong to the console', () => {
  expect(at('/docs')).toBeUndefined()
  expect(at('/consoles/')).toBeUndefined()
  expect(at('/console/api/v1/session/oidc/corp?to=%2Fconsole%2F')).toBeUndefined()
})

test.each(['alice@example.com', 'a/b/c', 'a b', 'ユーザー', '100%', '<img src=x>', 'a&b=c#d', '..'])('the id %s survives an address', (id) => {
  const to = address('user', { app: 'dev', id })
  expect(at(to)?.query.get('id')).toBe(id)
  expect(new URL(to, 'https://x').pathname).toBe('/console/user')
})

test('no path has a dot, because the server answers such paths as files', () => {
  expect(address('device', { id: 'evil.device' }).split('?')[0]).not.toContain('.')
})

test('absent values leave no trace in the address', () => {
  expect(address('overview', { app: undefined, q: '' })).toBe('/console/')
})

afterEach(() => vi.unstubAllGlobals())

test('a page that gives itself an id stays mounted; another id or page is a new visit', () => {
  const location = { href: 'https://push.example.com/console/' }
  const move = (_state: unknown, _title: string, to: string): void => void (location.href = new URL(to, location.href).href)
  vi.stubGlobal('location', location)
  vi.stubGlobal('history', { pushState: move, replaceState: move })
  vi.stubGlobal('scrollTo', () => undefined)
  const visits = (act: () => void): number => {
    const before = visit.value
    act()
    return visit.value - before
  }
  expect(visits(() => go(address('new-campaign', { app: 'dev' })))).toBe(1)
  expect(visits(() => amend({ step: 'message' }))).toBe(0)
  expect(visits(() => amend({ id: 'c1' }))).toBe(0)
  expect(location.href).toContain('id=c1')
  expect(visits(() => go(address('new-campaign', { app: 'dev' })))).toBe(1)
  expect(visits(() => go(address('campaign', { app: 'dev', id: 'c1' })))).toBe(1)
  expect(visits(() => go(address('campaign', { app: 'dev', id: 'c1', tab: 'plan' })))).toBe(0)
  expect(visits(() => go(address('campaign', { app: 'dev', id: 'c2' })))).toBe(1)
  expect(visits(() => go(address('search', { q: 'x' }), 'replace'))).toBe(1)
})
