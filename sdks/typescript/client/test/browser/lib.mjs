/** Chromium with tabs of one site, which also issues tokens. */

import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'

import { hs256, now } from '../../../../../e2e/lib/jwt.mjs'
import { JWT_SECRET } from '../../../../../e2e/lib/node.mjs'
import { DEADLINE_MS } from '../../../../../e2e/lib/until.mjs'
import { launch } from '../../../test/chromium.mjs'

/** In the page: a question from here takes milliseconds of both processors. */
const POLL = { polling: 50, timeout: DEADLINE_MS }

export class Site {
  asked = []
  /** Answers a device's request for `/hold`: the page that waits for it hangs. */
  holds = new Map()

  static async open() {
    const site = new Site()
    const page = readFileSync(new URL('page.html', import.meta.url))
    const script = readFileSync(new URL('../../dist/index.js', import.meta.url))
    site.server = createServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url, 'http://site')
      if (pathname === '/token') {
        const device = searchParams.get('device')
        const lifetime = Number(searchParams.get('lifetime') ?? 3600)
        site.asked.push({ device, reason: searchParams.get('reason') })
        return response.end(hs256(JWT_SECRET, { sub: `user-of-${device}`, device, iat: now(), exp: now() + lifetime, jti: `${site.asked.length}` }))
      }
      if (pathname === '/hold') return site.holds.set(searchParams.get('device'), () => response.end())
      const isScript = pathname === '/index.js'
      response.writeHead(200, { 'content-type': isScript ? 'text/javascript' : 'text/html' })
      response.end(isScript ? script : page)
    })
    await new Promise((resolve) => site.server.listen(0, '127.0.0.1', resolve))
    site.browser = await launch()
    site.context = await site.browser.newContext()
    return site
  }

  /** A tab that is connected. */
  async tab(url, device, more = {}) {
    const query = new URLSearchParams({ url, device, ...more })
    const page = await this.context.newPage()
    const failures = []
    page.on('pageerror', (error) => failures.push(String(error)))
    await page.goto(`http://127.0.0.1:${this.server.address().port}/?${query}`)
    const tab = {
      page,
      failures,
      get: (name) => page.evaluate((name) => window[name], name),
      state: () => page.evaluate(() => window.noroshi.state.state),
      /** Nothing of the page runs until its hold is released. */
      hang: () =>
        page.evaluate((device) => {
          const request = new XMLHttpRequest()
          request.open('GET', `/hold?device=${device}`, false)
          request.send()
        }, device),
      connected: () => page.waitForFunction(() => window.noroshi?.state.state === 'connected', null, POLL),
      shows: (count) => page.waitForFunction((count) => window.shown.length >= count, count, POLL),
    }
    return tab
  }

  async close() {
    await this.browser.close()
    this.server.closeAllConnections()
    await new Promise((resolve) => this.server.close(resolve))
  }
}
