/** A page in Chromium from another origin than the node's, with one library loaded. */

import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { chromium } from 'playwright-core'

const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync)
const args = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking']

/** Calls `use` with a function that opens a page; `library` is a file in node_modules. Skips the test without Chromium. */
export async function withPages(t, library, use) {
  if (!executablePath) {
    assert.ok(!process.env.CI, 'no Chromium (Debian package chromium)')
    return t.skip('no Chromium (Debian package chromium)')
  }
  const script = readFileSync(new URL(`../node_modules/${library}`, import.meta.url))
  const site = createServer((request, response) => {
    response.setHeader('content-type', request.url === '/library.js' ? 'text/javascript' : 'text/html')
    response.end(request.url === '/library.js' ? script : '<!doctype html><script src="/library.js"></script>')
  })
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve))
  const browser = await chromium.launch({ executablePath, headless: true, args })
  try {
    await use(async () => {
      const tab = await browser.newPage()
      const complaints = []
      tab.on('console', (message) => message.type() === 'error' && complaints.push(message.text()))
      await tab.goto(`http://127.0.0.1:${site.address().port}/`)
      return { tab, complaints }
    })
  } finally {
    await browser.close()
    site.close()
    site.closeAllConnections()
  }
}
