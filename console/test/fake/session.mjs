/** Sessions, people, invitations and the audit log, in memory. Only for tests; the contract is the server's. */

import { createHash, randomBytes, randomUUID } from 'node:crypto'

import { fields, Problem } from './problem.mjs'
import { demand, isRole, permissionsOf } from './role.mjs'
import { series } from './series.mjs'
import { isCode, newSecret } from './totp.mjs'

const CONFIRMED_MS = 600_000
const SESSION_MS = 12 * 3_600_000
const PASSWORD_MIN = 12
const token = () => randomBytes(32).toString('base64url')
const hash = (text) => createHash('sha256').update(text).digest('hex')

export class Console {
  constructor(apps) {
    this.apps = apps
    this.people = []
    this.sessions = new Map()
    this.tickets = new Map()
    this.links = new Map()
    this.invitations = []
    this.audit = []
  }

  addPerson({ email, name, password, roles, totp }) {
    const person = { id: randomUUID(), email, name, password, roles, totp, pending: undefined, created_at: Date.now(), last_seen_at: null, disabled: false }
    this.people.push(person)
    return person
  }

  addLink(person) {
    const secret = token()
    this.links.set(hash(secret), person)
    return secret
  }

  open(person, request) {
    const cookie = token()
    const session = {
      id: randomUUID(), person, csrf: token(), created_at: Date.now(), last_seen_at: Date.now(),
      confirmed_until: Date.now() + CONFIRMED_MS, expires_at: Date.now() + SESSION_MS,
      address: request.address, agent: request.agent,
    }
    person.last_seen_at = Date.now()
    this.sessions.set(hash(cookie), session)
    request.setCookie(`noroshi_session=${cookie}; HttpOnly; SameSite=Strict; Path=/`)
    return this.view(session)
  }

  /** The session of a request, checked as the server does: cookie, expiry, CSRF. */
  enter(request) {
    const cookie = /(?:^|; )noroshi_session=([\w-]+)/.exec(request.cookie ?? '')?.[1]
    const session = cookie && this.sessions.get(hash(cookie))
    if (!session || session.expires_at < Date.now() || session.person.disabled) throw new Problem(401, 'unauthorized', 'sign in first')
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      const site = request.header('sec-fetch-site')
      if (request.header('noroshi-csrf') !== session.csrf || (site && site !== 'same-origin')) throw new Problem(403, 'csrf', 'the request did not come from the console')
    }
    session.last_seen_at = Date.now()
    return session
  }

  confirmed(session) {
    if (session.confirmed_until < Date.now()) throw new Problem(403, 'confirm_login', 'this needs a login within the last 10 minutes')
  }

  view({ person, csrf, confirmed_until, expires_at }) {
    const { id, email, name, totp, roles } = person
    const everywhere = roles.some(({ app }) => app === '*')
    return {
      person: { id, email, name, totp: totp !== undefined },
      roles, permissions: permissionsOf(roles),
      apps: everywhere ? this.apps : roles.map(({ app }) => app),
      csrf, confirmed_until, expires_at,
    }
  }

  record(session, { action, target, app = null, before = null, after = null }, request) {
    const { id, email } = session.person
    this.audit.unshift({ id: randomUUID(), at: new Date().toISOString(), person: { id, email }, by: 'person', app, action, target, before, after, address: request.address, request_id: request.id })
  }

  /** Answers a route of the console: `[status, body]`, or `undefined` if it is not one. */
  answer(request) {
    const { method, path } = request
    const route = `${method} ${path}`
    const open = PUBLIC[route]
    if (open) return open.call(this, request)
    for (const [pattern, handle] of ROUTES) {
      const match = pattern.exec(route)
      if (match) return handle.call(this, { ...request, session: this.enter(request), id: match[1] && decodeURIComponent(match[1]), part: match[2] && decodeURIComponent(match[2]), request })
    }
    return undefined
  }

  personBy(id) {
    const person = this.people.find((one) => one.id === id)
    if (!person) throw new Problem(404, 'not_found', 'no such person')
    return person
  }
}

const shown = ({ id, email, name, totp, roles, disabled, created_at, last_seen_at }) => ({ id, email, name, totp: totp !== undefined, disabled, roles, created_at, last_seen_at })
const wrong = () => new Problem(401, 'unauthorized', 'e-mail, password or code is wrong')

function checkedRoles(roles, apps) {
  for (const { app, role } of roles) {
    if (!isRole(role)) throw new Problem(400, 'invalid_field', 'no such role', 'roles')
    if (app !== '*' && !apps.includes(app)) throw new Problem(400, 'invalid_field', 'no such app', 'roles')
  }
  return roles
}

/** Routes without a session. */
const PUBLIC = {
  'GET /v1/session/methods'() {
    return [200, { password: true, oidc: [{ name: 'corp', title: 'Example SSO' }] }]
  },
  'GET /v1/session/oidc/corp'(request) {
    request.redirect('/v1/session/oidc/corp/callback')
    return [303]
  },
  'GET /v1/session/oidc/corp/callback'(request) {
    this.open(this.people[0], request)
    request.redirect('/console/')
    return [303]
  },
  'POST /v1/session'(request) {
    const { email, password } = fields(request.body, { email: 'string', password: 'string' })
    const person = this.people.find((one) => one.email === email && one.password === password && !one.disabled)
    if (!person) throw wrong()
    if (!person.totp) return [200, this.open(person, request)]
    const ticket = token()
    this.tickets.set(ticket, person)
    return [200, { next: 'totp', ticket }]
  },
  'POST /v1/session/totp'(request) {
    const { ticket, code } = fields(request.body, { ticket: 'string', code: 'string' })
    const person = this.tickets.get(ticket)
    if (!person || !isCode(person.totp, code)) throw wrong()
    this.tickets.delete(ticket)
    return [200, this.open(person, request)]
  },
  'POST /v1/session/link'(request) {
    const { token: secret } = fields(request.body, { token: 'string' })
    const person = this.links.get(hash(secret))
    if (!person) throw new Problem(401, 'unauthorized', 'the link was used or has expired')
    this.links.delete(hash(secret))
    return [200, this.open(person, request)]
  },
  'POST /v1/invitations/accept'(request) {
    const { token: secret, name, password } = fields(request.body, { token: 'string', name: 'string', password: 'string' })
    const invitation = this.invitations.find((one) => one.secret === hash(secret))
    if (!invitation) throw new Problem(401, 'unauthorized', 'the invitation was used or has expired')
    if (password.length < PASSWORD_MIN) throw new Problem(400, 'invalid_field', `the password needs ${PASSWORD_MIN} characters`, 'password')
    this.invitations.splice(this.invitations.indexOf(invitation), 1)
    return [200, this.open(this.addPerson({ email: invitation.email, name, password, roles: invitation.roles }), request)]
  },
}

/** Routes with a session. */
const ROUTES = [
  [/^GET \/v1\/session$/, function ({ session }) { return [200, this.view(session)] }],
  [/^DELETE \/v1\/session$/, function ({ session, request }) {
    for (const [key, one] of this.sessions) if (one === session) this.sessions.delete(key)
    request.setCookie('noroshi_session=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0')
    return [204]
  }],
  [/^POST \/v1\/session\/confirm$/, function ({ session, body }) {
    const { password, code } = fields(body, { 'password?': 'string', 'code?': 'string' })
    const { person } = session
    const right = code !== undefined ? person.totp && isCode(person.totp, code) : person.password === password
    if (!right) throw wrong()
    session.confirmed_until = Date.now() + CONFIRMED_MS
    return [200, this.view(session)]
  }],
  [/^PUT \/v1\/session\/password$/, function ({ session, body }) {
    const { current, new: next } = fields(body, { current: 'string', new: 'string' })
    if (session.person.password !== current) throw new Problem(400, 'invalid_field', 'the current password is wrong', 'current')
    if (next.length < PASSWORD_MIN) throw new Problem(400, 'invalid_field', `the password needs ${PASSWORD_MIN} characters`, 'new')
    session.person.password = next
    for (const [key, one] of this.sessions) if (one.person === session.person && one !== session) this.sessions.delete(key)
    return [204]
  }],
  [/^POST \/v1\/session\/totp-secret$/, function ({ session }) {
    session.person.pending = newSecret()
    const { pending, email } = session.person
    return [200, { secret: pending, uri: `otpauth://totp/Noroshi:${encodeURIComponent(email)}?secret=${pending}&issuer=Noroshi` }]
  }],
  [/^PUT \/v1\/session\/totp-secret$/, function ({ session, body }) {
    const { code } = fields(body, { code: 'string' })
    if (!session.person.pending || !isCode(session.person.pending, code)) throw new Problem(400, 'invalid_field', 'the code is wrong', 'code')
    session.person.totp = session.person.pending
    return [200, { recovery_codes: Array.from({ length: 8 }, () => randomBytes(5).toString('hex')) }]
  }],
  [/^DELETE \/v1\/session\/totp-secret$/, function ({ session }) {
    this.confirmed(session)
    session.person.totp = undefined
    return [204]
  }],
  [/^GET \/v1\/sessions$/, function ({ session }) {
    const own = [...this.sessions.values()].filter(({ person }) => person === session.person)
    return [200, { sessions: own.map(({ id, created_at, last_seen_at, address, agent }) => ({ id, created_at, last_seen_at, address, agent, current: id === session.id })) }]
  }],
  [/^DELETE \/v1\/sessions\/([^/]+)$/, function ({ session, id }) {
    for (const [key, one] of this.sessions) if (one.id === id && one.person === session.person) this.sessions.delete(key)
    return [204]
  }],
  [/^GET \/v1\/people$/, function ({ session, query }) {
    demand(session.person, 'people')
    const limit = Number(query.get('limit') ?? 50)
    const start = Number(query.get('cursor') ?? 0)
    const page = this.people.slice(start, start + limit)
    return [200, { people: page.map(shown), next: start + limit < this.people.length ? String(start + limit) : null }]
  }],
  [/^GET \/v1\/people\/([^/]+)$/, function ({ session, id }) {
    demand(session.person, 'people')
    return [200, shown(this.personBy(id))]
  }],
  [/^PATCH \/v1\/people\/([^/]+)$/, function ({ session, id, body, request }) {
    demand(session.person, 'people')
    const change = fields(body, { 'name?': 'string', 'disabled?': 'boolean' })
    const person = this.personBy(id)
    const before = Object.fromEntries(Object.keys(change).map((name) => [name, person[name]]))
    Object.assign(person, change)
    this.record(session, { action: 'person.change', target: person.email, before, after: change }, request)
    return [200, shown(person)]
  }],
  [/^DELETE \/v1\/people\/([^/]+)$/, function ({ session, id, request }) {
    demand(session.person, 'people')
    const person = this.personBy(id)
    this.people.splice(this.people.indexOf(person), 1)
    for (const [key, one] of this.sessions) if (one.person === person) this.sessions.delete(key)
    this.record(session, { action: 'person.delete', target: person.email, before: { roles: person.roles } }, request)
    return [204]
  }],
  [/^PUT \/v1\/people\/([^/]+)\/roles\/([^/]+)$/, function ({ session, id, part, body, request }) {
    demand(session.person, 'people')
    const { role } = fields(body, { role: 'string' })
    const app = part === 'all' ? '*' : part
    checkedRoles([{ app, role }], this.apps)
    this.confirmed(session)
    const person = this.personBy(id)
    const before = person.roles
    person.roles = [...before.filter((one) => one.app !== app), { app, role }]
    this.record(session, { action: 'person.role', target: person.email, app, before: { roles: before }, after: { roles: person.roles } }, request)
    return [200, shown(person)]
  }],
  [/^DELETE \/v1\/people\/([^/]+)\/roles\/([^/]+)$/, function ({ session, id, part, request }) {
    demand(session.person, 'people')
    this.confirmed(session)
    const app = part === 'all' ? '*' : part
    const person = this.personBy(id)
    const before = person.roles
    person.roles = before.filter((one) => one.app !== app)
    this.record(session, { action: 'person.role', target: person.email, app, before: { roles: before }, after: { roles: person.roles } }, request)
    return [204]
  }],
  [/^GET \/v1\/invitations$/, function ({ session }) {
    demand(session.person, 'people')
    return [200, { invitations: this.invitations.map(({ secret, ...rest }) => rest) }]
  }],
  [/^POST \/v1\/invitations$/, function ({ session, body, request }) {
    demand(session.person, 'people')
    const { email, roles } = fields(body, { email: 'string', roles: 'array' })
    checkedRoles(roles, this.apps)
    const secret = token()
    const invitation = { id: randomUUID(), email, roles, created_at: Date.now(), expires_at: Date.now() + 7 * 86_400_000, secret: hash(secret) }
    this.invitations.push(invitation)
    this.record(session, { action: 'invitation.create', target: email, after: { roles } }, request)
    return [201, { id: invitation.id, link: `${request.origin}/console/invitation#token=${secret}`, expires_at: invitation.expires_at }]
  }],
  [/^DELETE \/v1\/invitations\/([^/]+)$/, function ({ session, id }) {
    demand(session.person, 'people')
    this.invitations = this.invitations.filter((one) => one.id !== id)
    return [204]
  }],
  [/^GET \/v1\/audit$/, function ({ session, query }) {
    const app = query.get('app')
    demand(session.person, 'read', app)
    const limit = Number(query.get('limit') ?? 50)
    const start = Number(query.get('cursor') ?? 0)
    const fits = (entry) =>
      (!app || entry.app === app) && (!query.get('person') || entry.person?.email.includes(query.get('person'))) &&
      (!query.get('action') || entry.action.includes(query.get('action'))) &&
      (!query.get('since') || entry.at >= query.get('since')) && (!query.get('until') || entry.at < query.get('until'))
    const entries = this.audit.filter(fits)
    return [200, { entries: entries.slice(start, start + limit), next: start + limit < entries.length ? String(start + limit) : null }]
  }],
  [/^GET \/v1\/series$/, function ({ session, query }) {
    demand(session.person, 'read', query.get('app'))
    return [200, series(query)]
  }],
]
