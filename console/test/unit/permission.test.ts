import { expect, test } from 'vitest'

import type { Session } from '../../src/api/session'
import { allowed, app, can, refusal, session } from '../../src/app/session'

const person = (permissions: Session['permissions'], apps: string[]): Session => ({
  person: { id: '1', email: 'a@example.com', name: 'A', totp: false },
  roles: [], permissions, apps, csrf: 'c', confirmed_until: 0, expires_at: 0,
})

test('a permission holds for its app only', () => {
  const one = person({ dev: ['read', 'devices'] }, ['dev', 'shop'])
  expect(allowed(one, 'devices', 'dev')).toBe(true)
  expect(allowed(one, 'devices', 'shop')).toBe(false)
  expect(allowed(one, 'read', '*')).toBe(false)
})

test('a permission for all apps holds for each of them and for the cluster', () => {
  const one = person({ '*': ['read', 'admin'] }, ['dev'])
  expect(allowed(one, 'admin', 'dev')).toBe(true)
  expect(allowed(one, 'admin', '*')).toBe(true)
  expect(allowed(one, 'people', 'dev')).toBe(false)
})

test('nobody may do anything without a session', () => {
  expect(allowed(null, 'read', 'dev')).toBe(false)
  expect(allowed(undefined, 'read', 'dev')).toBe(false)
})

test('a refused action names the missing permission', () => {
  session.value = person({ dev: ['read'] }, ['dev'])
  expect(app.value).toBe('dev')
  expect(can('read')).toBe(true)
  expect(refusal('read')).toBeUndefined()
  expect(refusal('publish')).toContain('send messages')
  session.value = undefined
})
