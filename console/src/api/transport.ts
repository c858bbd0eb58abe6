/**
 * The one way out to the server: adds `Noroshi-Csrf`, `Noroshi-App` and `Noroshi-Background`, turns failures into errors, and repeats a
 * request after the person confirmed their login.
 */

import { ApiError, problemOf, Unreachable } from './error'

export interface Context {
  csrf(): string | undefined
  app(): string | undefined
  /** A person has used the page within the last minutes. */
  attended(): boolean
  /** Asks for the login again; false if the person gave up. */
  confirmLogin(): Promise<boolean>
  /** The session ended. */
  signedOut(): void
}

/** Routes that answer 401 for a wrong password, code or link, not only for a missing session. */
const CREDENTIALS = /\/v1\/(session(\/(totp|link|confirm|password|totp-secret))?|invitations\/accept)$/
/** A request that has it keeps it: the app of a draft, saved after the person has opened another app. */
export const APP_HEADER = 'Noroshi-App'
const NAMES_ITS_APP = /\/v1\/apps(\/|$)/

export function prepare(request: Request, context: Pick<Context, 'csrf' | 'app' | 'attended'>): Request {
  const headers = new Headers(request.headers)
  const csrf = context.csrf()
  if (request.method !== 'GET' && request.method !== 'HEAD' && csrf) headers.set('Noroshi-Csrf', csrf)
  if (!context.attended()) headers.set('Noroshi-Background', 'true')
  const app = context.app()
  if (app && !headers.has(APP_HEADER) && !NAMES_ITS_APP.test(new URL(request.url).pathname)) headers.set(APP_HEADER, app)
  return new Request(request, { headers })
}

/** Any answer of the server, also one that refuses. */
export function exchanger(context: Context, fetch: typeof globalThis.fetch = globalThis.fetch) {
  return function exchange(request: Request): Promise<Response> {
    // The app of the page that asks, also if the person opens another one before they confirm.
    const app = context.app()
    return attempt(request, { ...context, app: () => app })
  }

  async function attempt(request: Request, of: Parameters<typeof prepare>[1]): Promise<Response> {
    const spare = request.clone()
    const response = await fetch(prepare(request, of)).catch((error: unknown) => {
      if (error instanceof DOMException && error.name === 'AbortError') throw error
      throw new Unreachable(error)
    })
    if (response.ok) return response

    const { code } = await problemOf(response.clone())
    if (code === 'confirm_log_in' && (await context.confirmLogin())) return attempt(spare, of)
    if (response.status === 401 && !CREDENTIALS.test(new URL(request.url).pathname)) context.signedOut()
    return response
  }
}

export function transport(context: Context, fetch: typeof globalThis.fetch = globalThis.fetch) {
  const exchange = exchanger(context, fetch)
  return async function send(request: Request): Promise<Response> {
    const response = await exchange(request)
    if (response.ok) return response
    throw new ApiError(await problemOf(response))
  }
}
