/** What both examples need of a backend: people who sign in, tokens for their devices, JSON over HTTP, and the page. */

import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { fileURLToPath } from 'node:url'
import { JwtSigner, Noroshi } from '@noroshi/server'

const BODY_BYTES_MAX = 16_384

function setting(name) {
  const value = process.env[name]
  if (value) return value
  console.error(`${name} is not set: examples/README.md explains how to start`)
  process.exit(78)
}

const url = process.env.NOROSHI_URL ?? 'http://127.0.0.1:8080'
/** The address that browsers use. */
const publicUrl = process.env.NOROSHI_PUBLIC_URL ?? url
export const noroshi = new Noroshi({ url, key: setting('NOROSHI_KEY') })

// Ten minutes: a device whose user is signed out loses its access soon, and the client renews the token on its own.
const expiresInSeconds = Number(process.env.TOKEN_SECONDS ?? 600)
const jwts = new JwtSigner({ secret: setting('NOROSHI_JWT_SECRET'), audience: process.env.NOROSHI_APP ?? 'dev', expiresInSeconds })

/** Sessions by their cookie. A device is one browser: its tabs have the same session. */
const sessions = new Map()

function sessionOf(request) {
  const cookie = /(?:^|; )session=([\w-]+)/.exec(request.headers.cookie ?? '')
  return cookie && sessions.get(cookie[1])
}

export class HttpError extends Error {
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

async function bodyOf(request) {
  // Other sites cannot send this type without a preflight, which nothing here answers.
  if (!/^application\/json\b/.test(request.headers['content-type'] ?? '')) throw new HttpError(415, 'send JSON')
  const parts = []
  let bytes = 0
  for await (const part of request) {
    bytes += part.length
    if (bytes > BODY_BYTES_MAX) throw new HttpError(413, `at most ${BODY_BYTES_MAX} bytes`)
    parts.push(part)
  }
  try {
    return JSON.parse(Buffer.concat(parts))
  } catch {
    throw new HttpError(400, 'not JSON')
  }
}

/** A text of the body, without spaces around it. */
export function text(body, name, max) {
  const value = body?.[name]
  if (typeof value !== 'string' || !value.trim() || value.length > max) throw new HttpError(400, `${name}: 1 to ${max} characters`)
  return value.trim()
}

/**
 * Serves a page and its API. `routes`: by method and path, such as `"GET /messages"`; each takes the session, the body of a
 * POST, and the query, and returns what is sent as JSON.
 */
export function serve({ folder, port, routes, signedIn = () => {} }) {
  const page = readFileSync(new URL('index.html', folder))
  const client = readFileSync(fileURLToPath(import.meta.resolve('@noroshi/client')))
  const own = {
    async 'POST /sign-in'(_, body, query, response) {
      const session = { user: text(body, 'name', 40), device: randomUUID() }
      const id = randomUUID()
      sessions.set(id, session)
      signedIn(session.user)
      response.setHeader('set-cookie', `session=${id}; HttpOnly; SameSite=Strict; Path=/`)
      return { name: session.user }
    },
    'GET /me': ({ user }) => ({ name: user, url: publicUrl }),
    'POST /token': async ({ user, device }) => ({ token: await jwts.sign({ user, device }) }),
  }
  const all = { ...own, ...routes }
  const server = createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://site')
    try {
      if (request.method === 'GET' && pathname === '/') return response.setHeader('content-type', 'text/html; charset=utf-8').end(page)
      if (request.method === 'GET' && pathname === '/noroshi.js') return response.setHeader('content-type', 'text/javascript').end(client)
      const route = `${request.method} ${pathname}`
      if (!Object.hasOwn(all, route)) throw new HttpError(404, 'there is no such page')
      const session = sessionOf(request)
      if (!session && route !== 'POST /sign-in') throw new HttpError(401, 'sign in first')
      const body = request.method === 'POST' ? await bodyOf(request) : undefined
      const answer = await all[route](session, body, searchParams, response)
      response.setHeader('content-type', 'application/json').end(JSON.stringify(answer ?? {}))
    } catch (error) {
      if (!(error instanceof HttpError)) console.error(error)
      const status = error.status >= 400 && error.status < 500 ? error.status : 502
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ error: error.message }))
    }
  })
  server.listen(port, '127.0.0.1', () => console.log(`open http://localhost:${server.address().port}`))
  return server
}
