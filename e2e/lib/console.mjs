/** The web console of a node: people with sessions, and pages of Chromium that report each fault. */

import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { after, before } from 'node:test'
import { chromium } from 'playwright-core'

import { operator } from './operator.mjs'
import { DevPush } from './push.mjs'
import { openShop } from './shop.mjs'

export const PASSWORD = 'correct horse battery staple'
const DIST = fileURLToPath(new URL('../../console/dist/', import.meta.url))
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']
const DEADLINE_MS = 30_000
/** More widths, themes, languages and dialogs. */
export const LONG = process.env.NOROSHI_CONSOLE_LONG === 'true'
/** A folder for screenshots, if wanted. */
const PICTURES = process.env.NOROSHI_CONSOLE_PICTURES
/** The files of console/dist instead of those in the binary, with the node's headers: no build after each change. */
const FROM_DIST = process.env.NOROSHI_CONSOLE_DIST === 'true'

const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync)
export const hasBrowser = executablePath !== undefined
export const launch = () =>
  chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'] })

export const button = (page, name) => page.getByRole('button', { name, exact: true })
export const heading = (page, name) => page.getByRole('heading', { level: 1, name })

export const originOf = (node) => `http://127.0.0.1:${node.adminPort}`

/** The binary must contain the page that the repository has. */
async function checkBuild(node) {
  if (FROM_DIST) return
  const served = await (await fetch(`${originOf(node)}/console/`)).text()
  const committed = readFileSync(join(DIST, 'index.html'), 'utf8')
  assert.equal(served, committed, 'the binary contains another build of console/dist: cargo build, or NOROSHI_CONSOLE_DIST=true')
}

/** Invites a person and accepts; returns `{id, email, cookie}`. */
export async function person(node, email, name, ...roles) {
  const invited = await operator(node).raw('POST', '/v1/console/invitations', { email, roles: roles.map(([app, role]) => ({ app, role })) })
  assert.equal(invited.status, 201, invited.text)
  const token = invited.body.link.split('#token=')[1]
  const accepted = await fetch(`${originOf(node)}/console/api/v1/invitations/accept`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ token, name, password: PASSWORD }),
  })
  const session = await accepted.json()
  assert.equal(accepted.status, 200, JSON.stringify(session))
  const cookie = /noroshi_session=([^;]+)/.exec(accepted.headers.get('set-cookie'))[1]
  return { id: session.person.id, email, cookie }
}

/**
 * For the tests of a file: a node (with these `args` of `serve`) with the data of a shop (`values` for `openShop`), the fakes
 * of the push services, Chromium, and people.
 */
export function shopConsole({ args = [], values } = {}) {
  const shop = { people: {} }
  before(async () => {
    if (!hasBrowser) return
    shop.push = await DevPush.start()
    shop.node = await shop.push.node({ services: ['apns', 'fcm'], args })
    await checkBuild(shop.node)
    shop.ids = await openShop(shop.node, shop.push, values)
    shop.browser = await launch()
    const add = async (key, ...described) => (shop.people[key] = await person(shop.node, ...described))
    await add('ada', 'ada@example.com', 'Ada Lovelace', ['*', 'owner'])
    await add('vera', 'vera@example.com', 'Vera Rubin', ['dev', 'viewer'])
    await add('sam', 'sam@example.com', 'Sam Carter', ['dev', 'support'])
    await add('mika', 'mika@example.com', '佐藤 美佳', ['shop', 'author'], ['dev', 'author'])
    await add('olga', 'olga@example.com', 'Olga Ladyzhenskaya', ['shop', 'owner'])
  })
  after(async () => {
    await shop.browser?.close()
    await shop.node?.stop()
    await shop.push?.stop()
  })
  /** The body of a test: a window of the person `as`, which must report no fault. */
  shop.visit = (options, use) => async (t) => {
    if (!hasBrowser) {
      assert.ok(!process.env.CI, 'no Chromium (Debian package chromium)')
      return t.skip('no Chromium (Debian package chromium)')
    }
    const visitor = await Visitor.open(shop.browser, originOf(shop.node), { ...options, as: shop.people[options.as] })
    await use(visitor, visitor.page)
    await visitor.close()
  }
  return shop
}

export class Visitor {
  /** `as` is a person who is logged in. */
  static async open(browser, origin, { as, language = 'en', theme = 'light', width = 1280, height = 860 } = {}) {
    const context = await browser.newContext({
      locale: language === 'ja' ? 'ja-JP' : 'en-GB',
      colorScheme: theme,
      viewport: { width, height },
      reducedMotion: 'reduce',
    })
    const visitor = new this()
    Object.assign(visitor, { origin, context, language, theme, width, complaints: [], findings: [] })
    if (as) {
      const session = { name: 'noroshi_session', value: as.cookie, domain: '127.0.0.1', path: '/console' }
      await context.addCookies([{ ...session, httpOnly: true, sameSite: 'Strict' }])
    }
    await context.exposeFunction('reportViolation', (text) => visitor.complaints.push(text))
    await context.addInitScript(() => {
      const report = ({ violatedDirective, blockedURI }) => globalThis.reportViolation(`Content-Security-Policy: ${violatedDirective} ${blockedURI}`)
      document.addEventListener('securitypolicyviolation', report)
    })
    if (FROM_DIST) await context.route(/\/console\/(?!api\/)/, fulfil)
    visitor.page = await context.newPage()
    visitor.page.setDefaultTimeout(DEADLINE_MS)
    visitor.page.on('pageerror', (error) => visitor.complaints.push(String(error)))
    // Chromium reports each answer of 4xx as an error of the console; only others are faults of the page.
    visitor.page.on('console', (message) => {
      if (message.type() === 'error' && !/Failed to load resource/.test(message.text())) visitor.complaints.push(message.text())
    })
    return visitor
  }

  async go(path) {
    await this.page.goto(`${this.origin}/console/${path}`)
  }

  /** Opens a page and waits until it has loaded what it shows. */
  async visit(path) {
    await this.go(path)
    await this.settled()
  }

  async settled() {
    await this.page.locator('#content h1').waitFor()
    await this.page.waitForFunction(() => !document.querySelector('#content .skeleton:not(.section .split .skeleton)'))
  }

  async logIn(email, path = '') {
    await this.go(path)
    await this.page.locator('input[type=email]').fill(email)
    await this.page.locator('input[type=password]').fill(PASSWORD)
    await this.page.keyboard.press('Enter')
  }

  /** Collects the findings of axe (WCAG 2.2 AA and best practices); `close` fails for them. */
  async checkAccess(what) {
    // Playwright evaluates outside of the page's policy, so axe needs no exception from it.
    await this.page.evaluate(AXE)
    const { violations } = await this.page.evaluate((values) => globalThis.axe.run(document, { runOnly: values, resultTypes: ['violations'] }), RULES)
    for (const { id, help, nodes } of violations) {
      const places = nodes.slice(0, 4).map(({ html, failureSummary }) => `    ${html.slice(0, 160)}\n    ${failureSummary.replaceAll('\n', ' ')}`)
      this.findings.push([`${what} (${this.language}, ${this.theme}, ${this.width} px) ${id}: ${help}`, ...places].join('\n'))
    }
  }

  async checkWidth(what) {
    const over = await this.page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    assert.ok(over <= 0, `${what} is ${over} px wider than the screen`)
  }

  async picture(name) {
    if (!PICTURES) return
    mkdirSync(PICTURES, { recursive: true })
    await this.page.screenshot({ path: join(PICTURES, `${name}-${this.language}-${this.theme}-${this.width}.png`) })
  }

  async close() {
    assert.equal(this.findings.join('\n'), '', 'axe')
    assert.deepEqual(this.complaints, [], 'the page reported errors')
    assert.equal(await this.page.evaluate(() => globalThis.pwned), undefined, 'a script from the data ran')
    await this.context.close()
  }
}

let policy

async function fulfil(route) {
  const { origin, pathname } = new URL(route.request().url())
  const name = pathname.slice('/console/'.length)
  const file = /\.\w+$/.test(name) ? name : 'index.html'
  policy ??= (await route.fetch({ url: `${origin}/console/` })).headers()['content-security-policy']
  await route.fulfill({ path: join(DIST, file), headers: { 'content-security-policy': policy } })
}
