/** Chromium for the end-to-end test: pages with a language, a theme and a width; errors of the page fail the test. */

import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

import { PASSWORD } from './fake/stack.mjs'

const PATH = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync)
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
/** A folder for screenshots, if wanted. */
const PICTURES = process.env.NOROSHI_CONSOLE_PICTURES

export const hasBrowser = PATH !== undefined
export const launch = () => chromium.launch({ executablePath: PATH, args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'] })

export class Visitor {
  static async open(browser, origin, { language = 'en', theme = 'light', width = 1280, height = 860 } = {}) {
    const context = await browser.newContext({ locale: language === 'ja' ? 'ja-JP' : 'en-GB', colorScheme: theme, viewport: { width, height }, reducedMotion: 'reduce' })
    const visitor = new this()
    Object.assign(visitor, { origin, context, language, theme, width, complaints: [], findings: [] })
    visitor.page = await context.newPage()
    visitor.page.setDefaultTimeout(20_000)
    visitor.page.on('pageerror', (error) => visitor.complaints.push(String(error)))
    // Chromium reports each answer of 4xx as an error of the console; only others are faults of the page.
    visitor.page.on('console', (message) => message.type() === 'error' && !/Failed to load resource/.test(message.text()) && visitor.complaints.push(message.text()))
    return visitor
  }

  async go(path) {
    await this.page.goto(`${this.origin}/console/${path}`)
  }

  async signIn(email, path = '') {
    await this.go(path)
    await this.page.locator('input[type=email]').fill(email)
    await this.page.locator('input[type=password]').fill(PASSWORD)
    await this.page.keyboard.press('Enter')
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

  /** Collects the findings of axe (WCAG 2.2 AA and best practices); `close` fails for them. */
  async checkAccess(what) {
    // Playwright evaluates outside of the page's policy, so axe needs no exception from it.
    await this.page.evaluate(AXE)
    const { violations } = await this.page.evaluate(() => globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }))
    const found = violations.map(({ id, help, nodes }) => `${id}: ${help}\n${nodes.slice(0, 4).map(({ html, failureSummary }) => `    ${html.slice(0, 160)}\n    ${failureSummary.replaceAll('\n', ' ')}`).join('\n')}`)
    if (found.length > 0) this.findings.push(`${what} (${this.language}, ${this.theme}, ${this.width} px)\n${found.join('\n')}`)
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
