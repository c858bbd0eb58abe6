/** Chromium with tabs of one site, which also issues tokens. */

import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { chromium } from 'playwright-core'

import { hs256, now } from '../../../../../e2e/lib/jwt.mjs'
import { JWT_SECRET } from '../../../../../e2e/lib/node.mjs'
import { until } from '../../../../../e2e/lib/until.mjs'

export const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync)

export class Site {
  /** Seconds for which a token is valid. */
  lifetime = 3600
  asked = []
  /** Answers the request for `/hold`: a page that waits for it hangs. */
  release = () => {}

  static async open() {
    const site = new Site()
    const page = readFileSync(new URL('page.html', import.meta.url))
    const script = readFileSync(new URL('../../dist/index.js', import.meta.url))
    site.server = createServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url, 'http://site')
      if (pathname === '/token') {
        const device = searchParams.get('device')
        site.asked.push(searchParams.get('reason'))
        return response.end(hs256(JWT_SECRET, { sub: `user-of-${device}`, device, iat: now(), exp: now() + site.lifetime, jti: `${site.asked.length}` }))
      }
      if (pathname === '/hold') {
        site.release = () => response.end()
        return
      }
      const isScript = pathname === '/index.js'
      response.writeHead(200, { 'content-type': isScript ? 'text/javascript' : 'text/html' })
      response.end(isScript ? script : page)
    })
    await new Promise((resolve) => site.server.listen(0, '127.0.0.1', resolve))
    const args = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update']
    site.browser = await chromium.launch({ executablePath, args })
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
      /** Nothing of the page runs until `site.release()`. */
      hang: () =>
        page.evaluate(() => {
          const request = new XMLHttpRequest()
          request.open('GET', '/hold', false)
          request.send()
        }),
      connected: () => until('a tab to be connected', async () => (await tab.state()) === 'connected'),
      shows: (count) => until(`a tab to show ${count} messages`, async () => (await page.evaluate(() => window.shown.length)) >= count),
    }
    return tab
  }

  async close() {
    await this.browser.close()
    this.server.closeAllConnections()
    await new Promise((resolve) => this.server.close(resolve))
  }
}
