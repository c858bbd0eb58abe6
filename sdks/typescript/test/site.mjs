/** Chromium with the pages of a site, which also issues tokens. */

import { createServer } from 'node:http'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

import { hs256, now } from '../../../e2e/lib/jwt.mjs'
import { JWT_SECRET } from '../../../e2e/lib/node.mjs'
import { launch } from './chromium.mjs'

/** A program for browsers, with everything it imports. */
export async function bundle(path, options = {}) {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(path)],
    bundle: true,
    format: 'iife',
    target: 'es2022',
    jsx: 'automatic',
    write: false,
    define: { 'process.env.NODE_ENV': '"production"' },
    ...options,
  })
  return outputFiles[0].text
}

export class Site {
  /** Requests for tokens. */
  asked = []
  /** Whether somebody is signed in: the pages have a session, the token's lifetime is short. */
  isSignedIn = true

  /** `files`: path to `{type, text}`. */
  static async open(files) {
    const site = new Site()
    site.files = files
    site.server = createServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url, 'http://site')
      if (pathname === '/token') {
        const device = searchParams.get('device')
        site.asked.push({ device, cookie: request.headers.cookie, worker: request.headers['x-worker'] })
        if (!site.isSignedIn) return response.writeHead(401).end()
        return response.end(hs256(JWT_SECRET, { sub: `user-of-${device}`, device, iat: now(), exp: now() + 600, jti: `${site.asked.length}` }))
      }
      const file = site.files[pathname]
      if (!file) return response.writeHead(404).end()
      response.writeHead(200, { 'content-type': file.type, 'cache-control': 'no-store', ...file.headers })
      response.end(file.text)
    })
    await new Promise((resolve) => site.server.listen(0, '127.0.0.1', resolve))
    site.url = `http://127.0.0.1:${site.server.address().port}`
    site.browser = await launch()
    return site
  }

  async close() {
    await this.browser.close()
    this.server.closeAllConnections()
    await new Promise((resolve) => this.server.close(resolve))
  }
}
