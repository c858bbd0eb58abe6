/**
 * Types of the console's own routes: sessions, people, invitations, audit log, time series.
 *
 * Written by hand until the OpenAPI document has these routes. They have the shape of a generated `paths`, so that
 * the generated types replace them without a change elsewhere.
 */

import type { Permission, Role } from './permission'

/** A moment: milliseconds since 1970, or RFC 3339 as in the rest of the API. */
export type Moment = number | string

export interface Session {
  person: { id: string; email: string; name: string; totp: boolean }
  roles: { app: string; role: Role }[]
  /** By app; `*` holds permissions for routes of the whole cluster. */
  permissions: Record<string, Permission[]>
  apps: string[]
  csrf: string
  /** Dangerous actions need no further confirmation until then. */
  confirmed_until: number
  expires_at: number
}

/** The password was right; the second factor is missing. */
export interface NextFactor { next: 'totp'; ticket: string }

export interface Methods { password: boolean; oidc: { name: string; title: string }[] }

export interface OwnSession {
  id: string
  created_at: Moment
  last_seen_at: Moment
  address: string
  agent: string
  current: boolean
}

export interface Person {
  id: string
  email: string
  name: string
  totp?: boolean
  disabled?: boolean
  created_at?: Moment
  last_seen_at?: Moment | null
  roles: { app: string; role: Role }[]
}

export interface Invitation {
  id: string
  email: string
  roles: { app: string; role: Role }[]
  created_at?: Moment
  expires_at: Moment
}

export interface NewInvitation { email: string; roles: { app: string; role: Role }[] }

/** The only answer that contains the link. */
export interface CreatedInvitation { id: string; link: string; expires_at: Moment }

export interface AuditEntry {
  id: string
  at: Moment
  person: { id: string; email: string } | null
  by: 'person' | 'key' | 'operator_token'
  app: string | null
  action: string
  target: string | null
  before: unknown
  after: unknown
  address: string | null
  request_id: string | null
}

export interface Series { name: string; labels: Record<string, string>; points: (number | null)[] }
export interface SeriesAnswer { step_seconds: number; from: Moment; series: Series[] }

interface Parameters<Path, Query> { query?: Query; path: Path; header?: never; cookie?: never }
interface Json<T> { content: { 'application/json': T } }
type Answers<Status extends number, T> = {
  [status in Status]: T extends undefined ? { content?: never } : Json<T>
}
interface Call<Status extends number, Answer, Body = undefined, Path = undefined, Query = never> {
  parameters: Path extends undefined
    ? { query?: Query; path?: never; header?: never; cookie?: never }
    : Parameters<Path, Query>
  requestBody: Body extends undefined ? never : Json<Body>
  responses: Answers<Status, Answer>
}

/** A call without a body. */
type Plain<Status extends number, Answer, Path = undefined, Query = never> =
  Omit<Call<Status, Answer, undefined, Path, Query>, 'requestBody'> & { requestBody?: never }

interface Id { id: string }
interface Page { limit?: number; cursor?: string }

export interface paths {
  '/v1/session': {
    get: Plain<200, Session>
    post: Call<200, Session | NextFactor, { email: string; password: string }>
    delete: Plain<204, undefined>
  }
  '/v1/session/totp': { post: Call<200, Session, { ticket: string; code: string }> }
  '/v1/session/link': { post: Call<200, Session, { token: string }> }
  '/v1/session/confirm': { post: Call<200, Session, { password: string } | { code: string }> }
  '/v1/session/methods': { get: Plain<200, Methods> }
  '/v1/session/password': { put: Call<204, undefined, { current: string; new: string }> }
  '/v1/session/totp-secret': {
    post: Plain<200, { secret: string; uri: string }>
    put: Call<200, { recovery_codes: string[] }, { code: string }>
    delete: Plain<204, undefined>
  }
  '/v1/sessions': { get: Plain<200, { sessions: OwnSession[] }> }
  '/v1/sessions/{id}': { delete: Plain<204, undefined, Id> }
  '/v1/people': { get: Plain<200, { people: Person[]; next: string | null }, undefined, Page> }
  '/v1/people/{id}': {
    get: Plain<200, Person, Id>
    patch: Call<200, Person, { name?: string; disabled?: boolean }, Id>
    delete: Plain<204, undefined, Id>
  }
  '/v1/people/{id}/roles/{app}': {
    put: Call<200, Person, { role: Role }, { id: string; app: string }>
    delete: Plain<204, undefined, { id: string; app: string }>
  }
  '/v1/invitations': {
    get: Plain<200, { invitations: Invitation[] }>
    post: Call<201, CreatedInvitation, NewInvitation>
  }
  '/v1/invitations/{id}': { delete: Plain<204, undefined, Id> }
  '/v1/invitations/accept': { post: Call<200, Session, { token: string; name: string; password: string }> }
  '/v1/audit': {
    get: Plain<200, { entries: AuditEntry[]; next: string | null }, undefined,
      Page & { app?: string; person?: string; action?: string; since?: string; until?: string }>
  }
  '/v1/series': {
    get: Plain<200, SeriesAnswer, undefined, { app?: string; names: string; from: number; until: number; step?: number }>
  }
}
