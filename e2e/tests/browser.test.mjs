/**
 * A page in Chromium, served from another origin, that registers, listens over WebSocket and EventSource,
 * and acknowledges. Saves a screenshot in .cache/browser.png.
 */

import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { chromium } from 'playwright-core'

import { hs256, now } from '../lib/jwt.mjs'
import { CACHE, JWT_SECRET, Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync)

test('a page of another origin receives over WebSocket and EventSource, and its acknowledgements take effect', async (t) => {
  if (!executablePath) {
    assert.ok(!process.env.CI, 'no Chromium (Debian package chromium)')
    return t.skip('no Chromium (Debian package chromium)')
  }
  const node = await Node.start()
  const page = readFileSync(new URL('../browser/page.html', import.meta.url))
  const site = createServer((request, response) => {
    response.setHeader('content-type', 'text/html')
    response.end(page)
  })
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve))
  // prettier-ignore
  const args = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync']
  const browser = await chromium.launch({ executablePath, headless: true, args })
  try {
    const tokens = ['socket', 'events'].map((device) =>
      hs256(JWT_SECRET, { sub: 'visitor', device: `browser-${device}`, exp: now() + 600 }),
    )
    const tab = await browser.newPage()
    const complaints = []
    tab.on('console', (message) => message.type() === 'error' && complaints.push(message.text()))
    tab.on('pageerror', (error) => complaints.push(String(error)))
    const query = new URLSearchParams({ base: node.http, jwt: tokens.join(',') })
    await tab.goto(`http://127.0.0.1:${site.address().port}/?${query}`)
    await until('the page to be connected', async () => {
      const state = await tab.textContent('#state')
      assert.doesNotMatch(state, /failed/, `${state}\n${complaints.join('\n')}`)
      return state === 'ready'
    })

    const sent = []
    for (const n of [1, 2, 3]) {
      const notification = { title: `狼煙 ${n}` }
      sent.push((await node.api.publish({ to: { users: ['visitor'] }, notification, data: { n } })).id)
    }
    for (const list of ['websocket', 'events']) {
      await until(`three messages over ${list}`, async () => (await tab.locator(`#${list} li`).count()) === 3)
      const ids = await tab.locator(`#${list} li`).evaluateAll((items) => items.map((item) => item.dataset.id))
      assert.deepEqual(ids, sent)
    }
    assert.equal(await tab.locator('#websocket li').first().textContent(), '狼煙 1: {"n":1}')
    await tab.screenshot({ path: join(CACHE, 'browser.png') })
    await until('both devices to have acknowledged all', async () => {
      const states = await Promise.all(sent.map((id) => node.api.notification(id)))
      return states.every((state) => state.counts.acked === 2)
    })
    assert.deepEqual(complaints, [])
  } finally {
    await browser.close()
    site.close()
    site.closeAllConnections()
  }
  await node.stop()
})
