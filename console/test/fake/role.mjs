/** Roles, their permissions, and the permission of every forwarded route. */

import { Problem } from './problem.mjs'

const ROLES = {
  viewer: ['read'],
  support: ['read', 'devices'],
  author: ['read', 'publish'],
  operator: ['read', 'devices', 'publish', 'admin'],
  owner: ['read', 'devices', 'publish', 'admin', 'people'],
}
export const isRole = (role) => Object.hasOwn(ROLES, role)

export const permissionsOf = (roles) => Object.fromEntries(roles.map(({ app, role }) => [app, ROLES[role]]))

const has = (person, permission, app) => {
  const permissions = permissionsOf(person.roles)
  return permissions['*']?.includes(permission) || (app && permissions[app]?.includes(permission))
}

export function demand(person, permission, app) {
  if (has(person, permission, app)) return
  throw new Problem(403, 'forbidden', `this needs the permission ${permission}`)
}

/** People who support users may send to them, but not to topics or everyone. */
export const isTestMessage = (person, { method, path, body }, app) =>
  method === 'POST' && path === '/v1/notifications' && Boolean(body?.to?.users ?? body?.to?.devices) && has(person, 'devices', app)

/** What a forwarded request needs, and for which app: `*` is the cluster. */
export function needOf(method, path, app) {
  const own = /^\/v1\/apps\/([^/]+)(\/.*)?$/.exec(path)
  if (own) {
    const [, name, rest = ''] = own
    if (method === 'GET') return ['read', name]
    if (/^\/(experiments|notices)/.test(rest)) return ['publish', name]
    if (rest === '/quotas') return ['admin', '*']
    if (rest === '' && method === 'DELETE') return ['people', name]
    return ['admin', name]
  }
  if (/^\/v1\/(nodes|drain)$/.test(path)) return [method === 'GET' ? 'read' : 'admin', '*']
  if (path === '/v1/apps') return [method === 'GET' ? 'read' : 'people', '*']
  if (method === 'GET' || path === '/v1/presence') return ['read', app]
  if (/^\/v1\/(users|devices)/.test(path)) return ['devices', app]
  return ['publish', app]
}

export const isOfOperator = (path) => /^\/v1\/(apps|nodes|drain)(\/|$)/.test(path)
