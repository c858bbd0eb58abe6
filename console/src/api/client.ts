/** Typed clients of the three parts of the API. Every call resolves with its body or throws. */

import createClient from 'openapi-fetch'

import type { components as AdminComponents, paths as AdminPaths } from './admin'
import type { components, paths as ProviderPaths } from './provider'
import type { components as SessionComponents, paths as SessionPaths } from './session'
import { type Context, exchanger, transport } from './transport'

export type Schemas = components['schemas']
export type AdminSchemas = AdminComponents['schemas']
export type SessionSchemas = SessionComponents['schemas']

/** Where the console has the API: sessions work only there. */
export const API = '/console/api'

/** Set once at start; the clients themselves know nothing about the page. */
let context: Context = {
  csrf: () => undefined,
  app: () => undefined,
  attended: () => true,
  confirmLogin: async () => false,
  signedOut: () => undefined,
}
export function connect(to: Context): void {
  context = to
}

const present: Context = {
  csrf: () => context.csrf(),
  app: () => context.app(),
  attended: () => context.attended(),
  confirmLogin: () => context.confirmLogin(),
  signedOut: () => context.signedOut(),
}
const send = transport(present)
/** A request that a person wrote: below `API`, with the session; resolves with any answer. */
export const exchange = exchanger(present)
const options = { baseUrl: (globalThis.location?.origin ?? 'http://localhost') + API, fetch: send }

/** Routes for apps: notifications, devices, campaigns and so on. */
export const provider = createClient<ProviderPaths>(options)
/** Routes of the admin listener: apps, nodes, drains. */
export const admin = createClient<AdminPaths>(options)
/** Routes of the console: sessions, people, audit log. */
export const session = createClient<SessionPaths>(options)

/** The body of an answer; failures have thrown before. */
export async function body<T>(call: Promise<{ data?: T }>): Promise<T> {
  return (await call).data as T
}
