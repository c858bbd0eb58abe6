/**
 * Serves `dist` as the node will: strict Content-Security-Policy, every path without a file extension is the page.
 * Answers the console's routes from memory and forwards all others to a real node.
 */

import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { extname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { Problem } from './problem.mjs'
import { demand, isOfOperator, isTestMessage, needOf } from './role.mjs'
import { Console } from './session.mjs'

export const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; font-src 'self'; " +
  "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

const DIST = fileURLToPath(new URL('../../dist', import.meta.url))
const TYPES = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.webmanifest': 'application/manifest+json' }

async function asset(path, response) {
  const file = path.slice('/console/'.length)
  const name = extname(file) ? file : 'index.html'
  const text = await readFile(join(DIST, name)).catch(() => undefined)
  if (!text || name.includes('..')) return response.writeHead(404).end()
  return response.writeHead(200, {
    'content-type': TYPES[extname(name)] ?? 'application/octet-stream', 'content-security-policy': CSP, 'x-content-type-options': 'nosniff',
  }).end(text)
}

async function bodyOf(request) {
  const parts = []
  for await (const part of request) parts.push(part)
  return Buffer.concat(parts)
}

/** `node` is `{http, admin, operator, keys: {app: key}}`; returns `{origin, console, requests, stop}`. */
export async function serve(node) {
  const service = new Console(Object.keys(node.keys))
  const requests = []

  async function forward(request, session) {
    const { method, path, query } = request
    const app = request.header('noroshi-app')
    const [permission, where] = needOf(method, path, app)
    if (!isOfOperator(path) && !node.keys[app]) throw new Problem(400, 'invalid_parameter', 'the header Noroshi-App is missing')
    if (!isTestMessage(session.person, request, app)) demand(session.person, permission, where)
    if (method === 'POST' && /^\/v1\/apps\/[^/]+\/keys$/.test(path)) service.confirmed(session)
    if (method === 'DELETE' && /^\/v1\/apps\/[^/]+$/.test(path)) service.confirmed(session)
    const base = isOfOperator(path) ? node.admin : node.http
    const text = query.toString()
    const answer = await fetch(`${base}${request.rawPath}${text && `?${text}`}`, {
      method,
      headers: {
        authorization: `Bearer ${isOfOperator(path) ? node.operator : node.keys[app]}`,
        ...(request.raw.length > 0 ? { 'content-type': request.header('content-type') } : {}),
      },
      ...(request.raw.length > 0 ? { body: request.raw } : {}),
    })
    if (answer.ok && path === '/v1/apps' && method === 'POST') service.apps.push(request.body.name)
    if (answer.ok && method === 'DELETE' && /^\/v1\/apps\/[^/]+$/.test(path)) service.apps.splice(service.apps.indexOf(path.split('/')[3]), 1)
    if (answer.ok && method !== 'GET' && path !== '/v1/presence') {
      const own = /^\/v1\/apps\/([^/]+)/.exec(path)?.[1] ?? app ?? null
      service.record(session, { action: `${path.split('/')[own === app || !path.startsWith('/v1/apps') ? 2 : 4] ?? 'apps'}.${method.toLowerCase()}`, target: decodeURIComponent(path), app: own, after: request.body ?? null }, request)
    }
    return answer
  }

  const server = createServer(async (message, response) => {
    const url = new URL(message.url, 'http://console')
    if (url.pathname === '/' || url.pathname === '/console') return response.writeHead(303, { location: '/console/' }).end()
    if (url.pathname.startsWith('/console/')) return asset(url.pathname, response)
    const raw = await bodyOf(message)
    const headers = {}
    const request = {
      method: message.method, path: decodeURI(url.pathname), rawPath: url.pathname, query: url.searchParams, raw, id: randomUUID().replaceAll('-', ''),
      cookie: message.headers.cookie, address: message.socket.remoteAddress, agent: message.headers['user-agent'] ?? '',
      origin: `http://${message.headers.host}`,
      header: (name) => message.headers[name],
      setCookie: (cookie) => void (headers['set-cookie'] = cookie),
      redirect: (to) => void (headers.location = to),
    }
    requests.push({ method: request.method, path: request.rawPath, headers: message.headers })
    try {
      if (raw.length > 0) {
        try {
          request.body = JSON.parse(raw)
        } catch {
          throw new Problem(400, 'invalid_json', 'the body is not JSON')
        }
      }
      const own = service.answer(request)
      if (own) {
        const [status, body] = own
        return response.writeHead(status, { ...headers, ...(body && { 'content-type': 'application/json' }), 'x-request-id': request.id }).end(body && JSON.stringify(body))
      }
      const answer = await forward(request, service.enter(request))
      const text = Buffer.from(await answer.arrayBuffer())
      return response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? 'text/plain', 'x-request-id': answer.headers.get('x-request-id') ?? request.id }).end(text)
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(502, 'unavailable', String(error))
      return response.writeHead(problem.status, { 'content-type': 'application/problem+json', 'x-request-id': request.id }).end(JSON.stringify(problem.body(request.id)))
    }
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    console: service,
    requests,
    stop() {
      server.close()
      server.closeAllConnections()
    },
  }
}
