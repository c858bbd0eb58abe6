/** The first messages of the READMEs, in Chromium, with the packages as npm would install them. */

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { KEY, Node } from '../../../e2e/lib/node.mjs'
import { until } from '../../../e2e/lib/until.mjs'
import { install } from '../scripts/pack.mjs'
import { skip } from './chromium.mjs'
import { discard } from './discard.mjs'
import { bundle, Site } from './site.mjs'

const root = fileURLToPath(new URL('..', import.meta.url))

let folder, node, site
before(async () => {
  if (skip) return
  folder = mkdtempSync(join(tmpdir(), 'noroshi-readme-'))
  install(['client', 'inbox', 'react', 'web-push'], folder)
  for (const name of ['react', 'react-dom', 'scheduler']) symlinkSync(join(root, 'node_modules', name), join(folder, 'node_modules', name))
  node = await Node.start()
  site = await Site.open({})
})
after(async () => {
  await site?.close()
  await discard(node)
  if (folder) rmSync(folder, { recursive: true, force: true })
})

/** The commands and programs of a README before its other sections. */
function blocksOf(name) {
  const readme = readFileSync(join(root, name, 'README.md'), 'utf8')
  const first = readme.slice(readme.indexOf(' in five minutes'), readme.indexOf('\n## ', readme.indexOf(' in five minutes')))
  return [...first.matchAll(/```(\w+)\n([\s\S]*?)```/g)].map(([, language, text]) => ({ language, text: text.replace(/^ {3}/gm, '') }))
}
const here = (text) => text.replaceAll('http://127.0.0.1:8080', node.http).replaceAll('my-development-key', KEY)

for (const [name, language, wanted] of [
  ['react', 'tsx', 'connected: Hello'],
  ['inbox', 'ts', ''],
]) {
  test(`the README of @noroshi/${name} leads to a first message`, { skip }, async () => {
    const blocks = blocksOf(name)
    const shell = blocks.filter(({ language }) => language === 'console').map(({ text }) => here(text).replace(/^\$ /gm, ''))
    assert.equal(shell.length, 4, 'start, register, install, send')
    const token = execFileSync('bash', ['-c', `set -e\n${shell[1]}\nprintf %s "$TOKEN"`], { encoding: 'utf8' })
    const file = join(folder, `${name}.${language}`)
    writeFileSync(file, here(blocks.find((block) => block.language === language).text).replace("'TOKEN'", `'${token}'`))
    site.files = {
      '/': { type: 'text/html', text: '<!doctype html><html lang="en"><title>README</title><link rel="icon" href="data:,"><body><div id="root"></div><script src="/main.js"></script>' },
      '/main.js': { type: 'text/javascript', text: await bundle(`file://${file}`) },
    }
    const page = await site.browser.newPage()
    const failures = []
    page.on('pageerror', (error) => failures.push(String(error)))
    await page.goto(site.url)
    const bell = page.locator('button[aria-haspopup=dialog]')
    await bell.waitFor()
    const before = await bell.getAttribute('aria-label')
    await page.waitForFunction((state) => !state || document.body.textContent.includes('connected'), wanted)
    execFileSync('bash', ['-c', shell[3]], { encoding: 'utf8' })
    await until('the bell to count', async () => (await bell.getAttribute('aria-label')) !== before)
    if (wanted) await until('the message', async () => (await page.locator('#root').textContent()).includes(wanted))
    assert.deepEqual(failures, [])
    await page.close()
  })
}

test('the programs in the README of @noroshi/web-push are bundled from the packages', { skip }, async () => {
  const programs = blocksOf('web-push').filter(({ language }) => language === 'ts')
  assert.equal(programs.length, 2)
  for (const [index, { text }] of programs.entries()) {
    const file = join(folder, `push-${index}.ts`)
    writeFileSync(file, text)
    assert.match(await bundle(`file://${file}`), /noroshi-web-push/)
  }
})

test('every package works with `require`, also where there is no window', { skip }, () => {
  const program = `
    const assert = require('node:assert')
    assert(require('@noroshi/react').InboxBell)
    assert(require('@noroshi/inbox').InboxStore)
    require('@noroshi/inbox/define')
    assert(require('@noroshi/web-push').subscribe)
    assert.equal(require('@noroshi/web-push').permission(), 'unsupported')
    assert(require('@noroshi/web-push/worker').handlePush)
    import('@noroshi/react').then(({ useInbox }) => assert(useInbox))
    import('@noroshi/inbox/define').then(({ NoroshiInbox }) => assert(NoroshiInbox))`
  writeFileSync(join(folder, 'required.cjs'), program)
  execFileSync(process.execPath, ['required.cjs'], { cwd: folder })
})
