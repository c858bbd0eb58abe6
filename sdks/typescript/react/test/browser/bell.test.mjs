/** The bell in Chromium against a real node: once with React, once as a custom element. The same tests for both. */

import assert from 'node:assert/strict'
import { mkdirSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { after, before, describe, test } from 'node:test'

import { Node } from '../../../../../e2e/lib/node.mjs'
import { until } from '../../../../../e2e/lib/until.mjs'
import { skip } from '../../../test/chromium.mjs'
import { discard } from '../../../test/discard.mjs'
import { bundle, Site } from '../../../test/site.mjs'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
/** A folder for screenshots, to look at. */
const pictures = process.env.NOROSHI_SDK_PICTURES

const html = (name) => `<!doctype html>
<html lang="en">
  <meta charset="utf-8" />
  <meta name="viewport" content="width=device-width" />
  <title>Bell</title>
  <style>
    body { margin: 0; font-family: sans-serif }
    @media (prefers-color-scheme: dark) { body { background: #14161a; color: #eee } }
    a { color: inherit }
    header { display: flex; justify-content: flex-end; align-items: center; gap: 16px; padding: 12px 24px; border-bottom: 1px solid #8884 }
  </style>
  <header><a href="#other">Other</a><div id="bell"></div></header>
  <main><h1>A page</h1><button id="after">After</button></main>
  <script src="/${name}.js"></script>
</html>`

let site
let node
before(async () => {
  if (skip) return
  const files = {}
  for (const [name, file] of [['react', 'react.tsx'], ['element', 'element.ts']]) {
    files[`/${name}`] = { type: 'text/html', text: html(name) }
    files[`/${name}.js`] = { type: 'text/javascript', text: await bundle(new URL(file, import.meta.url)) }
  }
  files['/orders/1'] = { type: 'text/html', text: '<!doctype html><title>Order 1</title>' }
  site = await Site.open(files)
  node = await Node.start()
})
after(async () => {
  await site?.close()
  await discard(node)
})

let users = 0
/** Pages that earlier tests left: a new one takes Chromium three times as long as another address. */
let context
const idle = []
const VIEWPORT = { width: 1280, height: 720 }

for (const name of ['react', 'element']) {
  describe(name, { skip, concurrency: 3 }, () => {
    /** A page of a new user who has these notifications, oldest first. */
    async function open(t, notifications, { viewport = VIEWPORT, colorScheme = 'light', before, ...query } = {}) {
      const device = `bell-${++users}`
      context ??= await site.browser.newContext({ locale: 'en-GB', timezoneId: 'UTC', viewport: VIEWPORT })
      const page = idle.pop() ?? (await context.newPage())
      await page.setViewportSize(viewport)
      await page.emulateMedia({ colorScheme })
      const failures = []
      page.on('pageerror', (error) => failures.push(String(error)))
      page.on('console', (message) => message.type() === 'error' && !/net::ERR|Failed to load/.test(message.text()) && failures.push(message.text()))
      const publish = (notification, item = {}) => node.api.publish({ to: { users: [`user-of-${device}`] }, notification, item })
      const ids = []
      for (const notification of notifications) ids.push((await publish(notification)).id)
      await before?.(page)
      await page.goto(`${site.url}/${name}?${new URLSearchParams({ url: node.http, device, ...query })}`)
      const bell = page.locator('button[aria-haspopup=dialog]')
      await bell.waitFor()
      const panel = page.getByRole('dialog')
      const focused = () =>
        page.evaluate(() => {
          let element = document.activeElement
          while (element?.shadowRoot?.activeElement) element = element.shadowRoot.activeElement
          return element?.getAttribute('aria-label') ?? (element?.getAttribute('role') || element?.querySelector('.title')?.textContent || element?.textContent || element?.tagName)
        })
      const focus = (wanted) => until(`the focus on ${wanted}`, async () => (await focused()) === wanted)
      const label = (wanted) => until(`the button to be called ${wanted}`, async () => (await bell.getAttribute('aria-label')) === wanted)
      t.after(() => {
        assert.deepEqual(failures, [])
        page.removeAllListeners()
        if (!before) idle.push(page)
      })
      return { page, bell, panel, ids, focus, label, publish, failures, rows: panel.getByRole('row'), status: page.locator('[role=status][aria-live]') }
    }

    const titles = (...all) => all.map((title) => ({ title }))

    test('opens with Enter and Space, moves with arrows, closes with Escape and returns the focus', async (t) => {
      const { page, bell, panel, focus, label } = await open(t, titles('One', 'Two', 'Three'))
      await label('Notifications, 3 unread')
      assert.equal(await bell.getAttribute('aria-expanded'), 'false')
      for (const key of ['Enter', 'Space']) {
        await bell.focus()
        await page.keyboard.press(key)
        await panel.waitFor()
        assert.equal(await bell.getAttribute('aria-expanded'), 'true')
        await focus('Three')
        await page.keyboard.press('ArrowDown')
        await focus('Two')
        await page.keyboard.press('ArrowRight')
        await focus('Archive: Two')
        await page.keyboard.press('ArrowDown')
        await focus('Archive: One')
        await page.keyboard.press('ArrowDown')
        await focus('Archive: One')
        await page.keyboard.press('Home')
        await focus('One')
        await page.keyboard.press('Control+Home')
        await focus('Three')
        await page.keyboard.press('PageDown')
        await focus('One')
        await page.keyboard.press('ArrowUp')
        await focus('Two')
        await page.keyboard.press('Escape')
        await panel.waitFor({ state: 'detached' })
        await focus('Notifications, 3 unread')
      }
    })

    test('Tab leaves the panel, which closes; so does a click elsewhere', async (t) => {
      const { page, bell, panel, focus, rows } = await open(t, titles('One', 'Two'))
      await bell.click()
      await rows.first().waitFor()
      await focus('Two')
      await page.keyboard.press('Shift+Tab')
      await focus('Mark all as read')
      await page.keyboard.press('ArrowDown')
      await focus('Two')
      await page.keyboard.press('Tab')
      await focus('After')
      await panel.waitFor({ state: 'detached' })
      await bell.click()
      await panel.waitFor()
      await page.getByRole('heading', { name: 'A page' }).click()
      await panel.waitFor({ state: 'detached' })
      await bell.click()
      await panel.waitFor()
      await panel.getByRole('heading').click()
      assert.equal(await panel.count(), 1)
      await bell.click()
      await panel.waitFor({ state: 'detached' })
    })

    test('what arrives is announced once, shown, and counted', async (t) => {
      const { bell, label, publish, rows, status } = await open(t, titles('One'))
      await label('Notifications, 1 unread')
      assert.equal(await status.textContent(), '')
      await bell.click()
      await until('the item', async () => (await rows.count()) === 1)
      await publish({ title: 'Two' })
      await until('the announcement', async () => (await status.textContent()) === 'Unread notifications: 2')
      await label('Notifications, 2 unread')
      await until('the new item', async () => (await rows.count()) === 2)
      assert.match(await rows.first().textContent(), /Unread\. Two/)
    })

    test('a click marks as read and opens the link; the report and the change survive the page', async (t) => {
      const { page, bell, label, panel, ids } = await open(t, [{ title: 'Order', url: `${site.url}/orders/1` }, { title: 'Script', url: 'javascript:alert(1)' }])
      await label('Notifications, 2 unread')
      await bell.click()
      await panel.getByRole('link', { name: /Order/ }).waitFor()
      assert.equal(await panel.getByRole('link').count(), 1)
      await panel.getByRole('link', { name: /Order/ }).click()
      await page.waitForURL('**/orders/1')
      await page.goBack()
      await label('Notifications, 1 unread')
      await until('the report', async () => (await node.api.notification(ids[0])).counts.opened === 1)
    })

    test('an application opens items itself', async (t) => {
      const { page, bell, panel } = await open(t, [{ title: 'Order', url: `${site.url}/orders/1` }], { prevent: '1' })
      await bell.click()
      await panel.getByRole('link', { name: /Order/ }).click()
      await panel.waitFor({ state: 'detached' })
      assert.deepEqual(await page.evaluate(() => window.page.selected), ['Order'])
      assert.match(page.url(), new RegExp(`/${name}`))
    })

    test('archiving keeps the focus in the list; all are marked as read', async (t) => {
      const { page, bell, rows, focus, label, panel } = await open(t, titles('One', 'Two', 'Three'))
      await bell.click()
      await focus('Three')
      await page.keyboard.press('ArrowDown')
      await page.keyboard.press('ArrowRight')
      await focus('Archive: Two')
      await page.keyboard.press('Enter')
      await focus('Archive: One')
      assert.equal(await rows.count(), 2)
      await label('Notifications, 2 unread')
      await panel.getByRole('button', { name: 'Mark all as read' }).click()
      await label('Notifications')
      await page.keyboard.press('ArrowDown')
      for (const title of ['Three', 'One']) {
        await panel.getByRole('button', { name: `Archive: ${title}` }).click()
      }
      await until('the empty list', async () => (await panel.textContent()).includes('No notifications'))
      await focus('dialog')
      await page.keyboard.press('Escape')
      await focus('Notifications')
    })

    test('pages: more items on request', async (t) => {
      const { bell, panel, rows } = await open(t, titles('1', '2', '3', '4', '5'), { limit: '2' })
      await bell.click()
      const more = panel.getByRole('button', { name: 'Show more' })
      await more.click()
      await until('four items', async () => (await rows.count()) === 4)
      await more.click()
      await until('five items', async () => (await rows.count()) === 5)
      assert.equal(await more.count(), 0)
    })

    test('errors: a list that fails, and a change that is rolled back', async (t) => {
      const { page, bell, panel, rows, label } = await open(t, titles('One'))
      await label('Notifications, 1 unread')
      await page.evaluate(() => window.fail(1))
      await bell.click()
      await until('the error', async () => (await panel.getByRole('alert').textContent()).includes('could not be loaded'))
      await picture(page, name, 'error')
      await panel.getByRole('button', { name: 'Try again' }).click()
      await until('the item', async () => (await rows.count()) === 1)
      assert.equal(await panel.getByRole('alert').count(), 0)
      await page.evaluate(() => window.fail(1))
      await panel.getByRole('button', { name: 'Archive: One' }).click()
      await until('the error', async () => (await panel.getByRole('alert').textContent()).includes('could not be saved'))
      assert.equal(await rows.count(), 1)
    })

    test('axe finds nothing in either theme, open and closed; the panel stays in the window', async (t) => {
      const many = [
        { title: 'Your order has shipped', body: 'It arrives on Monday between 9 and 12.', url: `${site.url}/orders/1` },
        { title: 'Anna', body: 'Are you free for lunch? The new place at the corner has opened, and they say that the noodles are the best in town. I would go at noon. Tell me by eleven, so that I can book a table for us and for the others.' },
        { title: 'Payment received' },
        { title: 'A-very-long-word-'.repeat(12) },
      ]
      const japanese = [
        { title: 'ご注文の商品を発送しました', body: '月曜日の午前9時から12時の間にお届けします。', url: `${site.url}/orders/1` },
        { title: '田中さん', body: '今日のお昼、一緒に行きませんか?' },
        { title: 'お支払いを確認しました' },
      ]
      const cases = [
        ['light', many, {}],
        ['dark', many, { colorScheme: 'dark' }],
        ['dark-attribute', many, { theme: 'dark' }],
        ['narrow', many, { viewport: { width: 360, height: 640 } }],
        ['japanese', japanese, { locale: 'ja' }],
        ['empty', [], {}],
      ]
      // The element has the same view: its shadow tree and its style sheet are checked in both themes.
      for (const [title, notifications, options] of name === 'react' || pictures ? cases : cases.slice(0, 2)) {
        const { page, bell, panel, rows } = await open(t, notifications, options)
        await page.evaluate(axe)
        const findings = async () => (await page.evaluate(() => axe.run(document, { resultTypes: ['violations'] }))).violations.map(({ id, nodes }) => `${title}: ${id} ${nodes[0].html} ${nodes[0].failureSummary}`)
        if (notifications.length) await until('the badge', async () => (await page.locator('.badge').count()) === 1)
        if (title === 'light') assert.deepEqual(await findings(), [])
        await bell.click()
        await until('the items', async () => (await rows.count()) === notifications.length && (await panel.getAttribute('aria-busy')) === 'false')
        if (notifications.length) await panel.getByRole('row').last().getByRole('gridcell').first().hover()
        assert.deepEqual(await findings(), [])
        const { x, width } = await panel.boundingBox()
        const { width: all } = page.viewportSize()
        assert.ok(x >= 0 && x + width <= all, `${title}: ${x} ${width} of ${all}`)
        if (title === 'japanese') {
          assert.equal(await bell.getAttribute('aria-label'), '通知, 未読3件')
          assert.match(await panel.textContent(), /すべて既読にする/)
        }
        await picture(page, name, title)
      }
    })

    test('the panel has a place at both sides of the window', async (t) => {
      const { page, bell, panel } = await open(t, titles('One'), { viewport: { width: 700, height: 600 } })
      await page.addStyleTag({ content: 'header { justify-content: flex-start !important }' })
      await bell.click()
      await panel.waitFor()
      await until('the panel in the window', async () => (await panel.boundingBox()).x >= 7)
    })
  })
}

async function picture(page, name, title) {
  if (!pictures) return
  mkdirSync(pictures, { recursive: true })
  await page.screenshot({ path: `${pictures}/bell-${name}-${title}.png` })
}
