/** The examples work unmodified. (examples/a-day is a separate suite.) */

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { after, before, test } from 'node:test'
import { chromium } from 'playwright-core'

import { CACHE, KEY, Node } from '../lib/node.mjs'
import { until, within } from '../lib/until.mjs'

const EXAMPLES = fileURLToPath(new URL('../../examples/', import.meta.url))
const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find(existsSync)

let node
before(async () => (node = await Node.start()))
after(() => node?.stop())

// The libraries of listen.py, from their sources.
const PYTHONPATH = ['client', 'server'].map((name) => fileURLToPath(new URL(`../../sdks/python/${name}/src`, import.meta.url))).join(':')

function start(command, args) {
  const child = spawn(command, args, {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, PYTHONPATH, NOROSHI_URL: node.http, NOROSHI_KEY: KEY },
  })
  const run = { child, text: '' }
  child.stdout.on('data', (chunk) => (run.text += chunk))
  run.closed = new Promise((resolve) => child.once('close', resolve))
  return run
}

test('listen.py receives and acknowledges the notification of send.sh', async () => {
  const listener = start(join(CACHE, 'venv', 'bin', 'python'), [join(EXAMPLES, 'listen.py'), 'u1', 'news'])
  try {
    await until('the listener to be connected', () => listener.text.includes('connected as listen-py-u1'))
    const sender = start('sh', [join(EXAMPLES, 'send.sh'), 'u1', 'A "quoted" title', 'and a \\ body'])
    assert.equal(await within('send.sh to end', sender.closed), 0)
    const { id } = JSON.parse(sender.text.split('\n')[0])
    await until('the notification to be printed', () => listener.text.includes('A \\"quoted\\" title'))
    await until('the acknowledgement', async () => (await node.api.notification(id)).counts.acked === 1)
  } finally {
    listener.child.kill()
  }
})

for (const way of ['websocket', 'events']) {
  test(`browser.html, opened as a file, receives and acknowledges over ${way}`, async (t) => {
    if (!executablePath) {
      assert.ok(!process.env.CI, 'no Chromium (Debian package chromium)')
      return t.skip('no Chromium (Debian package chromium)')
    }
    const { token } = await node.api.register({ user: `page-${way}` })
    const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] })
    try {
      const tab = await browser.newPage()
      await tab.goto(pathToFileURL(join(EXAMPLES, 'browser.html')).href)
      await tab.fill('[name=server]', node.http)
      await tab.fill('[name=token]', token)
      await tab.click(`[value=${way}]`)
      await until('the page to be connected', async () => (await tab.textContent('#state')).startsWith('Connected'))
      const { id } = await node.api.publish({ to: { users: [`page-${way}`] }, notification: { title: 'Hello page' } })
      await until('the item', async () => (await tab.textContent('#messages')).includes('Hello page'))
      await until('the acknowledgement', async () => (await node.api.notification(id)).counts.acked === 1)
    } finally {
      await browser.close()
    }
  })
}
