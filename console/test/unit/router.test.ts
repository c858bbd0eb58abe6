import { expect, test } from 'vitest'

import { address, parse } from '../../src/app/router'

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
