import { expect, test } from 'vitest'

import { PAGES } from '../../src/app/routes'
import { allowed, app, can, mayOpen, refusal, type Session, session } from '../../src/app/session'

const person = (permissions: Session['permissions'], apps: string[]): Session => ({
  person: { id: '1', email: 'a@example.com', name: 'A', password: true, totp: false, openid: null },
  roles: [], permissions, apps, front: false, csrf: 'c', confirmed_until: '2026-11-27T12:00:00Z', expires_at: '2026-11-27T12:00:00Z',
})

test('a permission holds for its app only', () => {
  const one = person({ dev: ['read', 'devices'] }, ['dev', 'shop'])
  expect(allowed(one, 'devices', 'dev')).toBe(true)
  expect(allowed(one, 'devices', 'shop')).toBe(false)
  expect(allowed(one, 'read', '*')).toBe(false)
})

test('a permission for all apps holds for each of them and for the cluster', () => {
  const one = person({ '*': ['read', 'manage'] }, ['dev'])
  expect(allowed(one, 'manage', 'dev')).toBe(true)
  expect(allowed(one, 'manage', '*')).toBe(true)
  expect(allowed(one, 'own', 'dev')).toBe(false)
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
  expect(refusal('publish')).toContain('send notifications')
  session.value = undefined
})

test.each<[string, Session['permissions'], string[]]>([
  ['a viewer of one app', { dev: ['read'] }, []],
  ['an operator of one app', { dev: ['read', 'manage'] }, ['audit']],
  ['an owner of one app', { dev: ['read', 'manage', 'own'] }, ['people', 'audit']],
  ['a viewer of all apps', { '*': ['read'] }, ['nodes', 'doctor', 'queues']],
  ['an operator of all apps', { '*': ['read', 'manage'] }, ['nodes', 'audit', 'doctor', 'queues', 'configuration', 'profile']],
])('%s opens the pages of the role', (_, permissions, beyond) => {
  session.value = person(permissions, ['dev'])
  const special = ['nodes', 'people', 'audit', 'doctor', 'queues', 'configuration', 'profile']
  expect(PAGES.filter(mayOpen).map(({ name }) => name).filter((name) => special.includes(name))).toEqual(beyond)
  session.value = undefined
})

test('a front of cells has its own pages, and none of what only cells have', () => {
  const names = (front: boolean): string[] => {
    session.value = { ...person({ '*': ['read', 'devices', 'publish', 'define', 'manage', 'own'] }, ['dev']), front }
    return PAGES.filter(mayOpen).map(({ name }) => name)
  }
  const [front, node] = [names(true), names(false)]
  expect(front.filter((name) => !node.includes(name))).toEqual(['cells'])
  expect(node.filter((name) => !front.includes(name))).toEqual(['live', 'campaigns', 'activities', 'channels', 'experiments', 'notices', 'credentials'])
  session.value = undefined
})
