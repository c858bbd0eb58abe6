/** An example's server, a node behind a proxy that can lose the network, and four tabs of a browser. */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { chromium } from 'playwright-core'

import { freePort, JWT_SECRET, KEY, Node } from '../../../e2e/lib/node.mjs'
import { Proxy } from '../../../e2e/lib/proxy.mjs'
import { until } from '../../../e2e/lib/until.mjs'

const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find(existsSync)
export const skip = executablePath || process.env.CI ? false : 'no Chromium (Debian package chromium)'
const TABS = 4
/** Without a network. A minute; quick checks have less time. */
export const OFFLINE_MS = Number(process.env.NOROSHI_EXAMPLES_OFFLINE ?? 60) * 1_000

export class Example {
  /** Requests of the tabs to the example's server, by path. */
  requests = new Map()
  failures = []
  tabs = []

  static async start(name) {
    const example = new Example()
    example.node = await Node.start()
    example.proxy = await Proxy.start(example.node.httpPort)
    const port = await freePort()
    example.url = `http://localhost:${port}`
    const env = {
      ...process.env,
      NOROSHI_URL: example.node.http,
      NOROSHI_PUBLIC_URL: `http://127.0.0.1:${example.proxy.port}`,
      NOROSHI_KEY: KEY,
      NOROSHI_JWT_SECRET: JWT_SECRET,
      // Expires several times, also while the tabs are offline.
      TOKEN_SECONDS: String(Math.max(4, Math.floor(OFFLINE_MS / 2_500))),
      PORT: String(port),
    }
    const program = fileURLToPath(new URL(`../${name}/server.mjs`, import.meta.url))
    example.server = spawn(process.execPath, [program], { env, stdio: ['ignore', 'pipe', 'inherit'] })
    await new Promise((resolve, reject) => {
      example.server.stdout.once('data', resolve)
      example.server.once('exit', (code) => reject(new Error(`the example ended with ${code}`)))
    })
    const shared = process.env.NOROSHI_CHROMIUM
    example.browser = shared ? await chromium.connect(shared) : await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--no-first-run'] })
    example.context = await example.browser.newContext()
    return example
  }

  /** A tab whose person is signed in: the first one signs in. */
  async tab(name) {
    const page = await this.context.newPage()
    page.on('pageerror', (error) => this.failures.push(String(error)))
    page.on('request', (request) => {
      const { pathname } = new URL(request.url())
      this.requests.set(pathname, (this.requests.get(pathname) ?? 0) + 1)
    })
    await page.goto(this.url)
    if (this.tabs.length === 0) {
      await page.getByLabel('Name').fill(name)
      await page.getByRole('button', { name: 'Sign in' }).click()
    }
    await page.getByText(`${name}: connected`).waitFor()
    this.tabs.push(page)
    return page
  }

  async openTabs(name) {
    while (this.tabs.length < TABS) await this.tab(name)
  }

  /** A second person, who acts without a browser. */
  async signIn(name) {
    const call = async (path, body) => {
      const headers = { 'content-type': 'application/json', ...(cookie && { cookie }) }
      const response = await fetch(this.url + path, { method: 'POST', headers, body: JSON.stringify(body) })
      assert.equal(response.status, 200, await response.clone().text())
      return response
    }
    let cookie
    cookie = (await call('/sign-in', { name })).headers.get('set-cookie').split(';')[0]
    return call
  }

  /** The tab that has the connection: the first one that is still open. */
  async killLeader() {
    const leader = this.tabs.shift()
    await leader.goto('chrome://crash').catch(() => {})
    await leader.close()
  }

  async killNode() {
    await this.node.kill()
    await this.node.spawn()
  }

  /** Every open tab shows what is expected. */
  async all(what, read, expected) {
    for (const tab of this.tabs) {
      await until(`a tab to show ${what}`, async () => JSON.stringify(await tab.evaluate(read)) === JSON.stringify(expected)).catch(async (error) => {
        assert.deepEqual(await tab.evaluate(read), expected, error.message)
      })
    }
  }

  async stop() {
    await this.browser?.close()
    this.server?.kill()
    await this.proxy?.stop()
    await this.node?.kill()
    this.node?.removeData()
    assert.deepEqual(this.failures, [])
  }
}
