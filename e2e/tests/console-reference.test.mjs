/**
 * The API reference of the web console in Chromium: it has what the node's documents have, its form sends requests with the
 * session, and its snippets are programs that work.
 */

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { promisify } from 'node:util'

import { button, heading, originOf, PASSWORD, shopConsole } from '../lib/console.mjs'
import { KEY } from '../lib/node.mjs'

const shop = shopConsole()
const { visit } = shop
const run = promisify(execFile)
const folder = mkdtempSync(join(tmpdir(), 'noroshi-snippets-'))
after(() => rmSync(folder, { recursive: true, force: true }))

const answer = (page) => page.locator('.answered')
const status = (page, text) => answer(page).locator('.badge').filter({ hasText: text }).waitFor()
const send = (page) => button(page, 'Send request').click()
const confirm = (page) => page.locator('dialog').getByRole('button', { name: 'Send request' }).click()

test('the page has each operation of the documents that the node serves', visit({ as: 'ada' }, async (visitor, page) => {
  const { node } = shop
  const documents = await Promise.all([`${node.http}/openapi.json`, `${originOf(node)}/openapi.json`, `${originOf(node)}/console/api/openapi.json`].map(async (url) => (await fetch(url)).json()))
  const served = new Set(documents.flatMap(({ paths }) => Object.entries(paths).flatMap(([path, item]) => Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`))))
  await visitor.visit('reference?app=dev')
  const shown = await page.locator('.operations a').evaluateAll((links) => links.map((link) => `${link.querySelector('.verb').textContent} ${link.querySelector('code').textContent}`))
  assert.deepEqual(new Set(shown), served)
  assert.equal(shown.length, served.size, 'no operation is listed twice')
}))

test('an operation is found by search and by palette, with the keyboard', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('reference?app=dev')
  await visitor.picture('reference')
  await page.getByLabel('Search operations').focus()
  await page.keyboard.type('retained message delete')
  await page.getByRole('status').getByText('1 operation', { exact: true }).waitFor()
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  await heading(page, /retained/i).waitFor()
  assert.match(page.url(), /id=deleteRetained/)
  assert.equal(await page.evaluate(() => document.activeElement.tagName), 'H1', 'the focus is at the title')

  // The words stay for the way back.
  await page.getByRole('link', { name: 'All operations' }).click()
  const search = page.getByLabel('Search operations')
  assert.equal(await search.inputValue(), 'retained message delete')
  await search.fill('no-operation-has-this')
  await page.getByText('No operation contains all of these words').waitFor()
  await visitor.checkAccess('empty search of operations')
  await button(page, 'Clear search').click()
  assert.equal(await search.inputValue(), '')

  await page.keyboard.press('Control+k')
  await page.keyboard.type('importDevices')
  await page.getByRole('option', { name: /POST \/v1\/devices\/batch/ }).click()
  await page.waitForURL(/id=importDevices/)

  await visitor.visit('reference?id=no-such-operation&app=dev')
  await page.getByText('There is no operation no-such-operation').waitFor()
}))

test('schemas open level by level', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('reference?id=publish&app=dev')
  await page.getByText('Fields of push', { exact: true }).click()
  await page.getByText('Fields of broadcast', { exact: true }).click()
  await page.locator('.schema-name').filter({ hasText: /^content_state$/ }).first().waitFor()
  await page.getByText('Fields of to', { exact: true }).click()
  await page.getByText('One of these').first().waitFor()
  await visitor.checkAccess('open schemas')
  await visitor.checkWidth('open schemas')
}))

test('a GET with the app’s own names', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('reference?id=device&app=dev')
  const device = await page.getByLabel('device', { exact: true }).inputValue()
  assert.notEqual(device, '', 'a device of the app is filled in')
  await send(page)
  await status(page, '200 OK')
  assert.match(await answer(page).innerText(), /Request id/)
  const body = JSON.parse(await answer(page).locator('pre').textContent())
  assert.equal(body.device, device)
  await visitor.checkAccess('an answer')
  await page.evaluate(() => scrollTo(0, 0))
  await visitor.picture('console-reference')

  await page.getByLabel('device', { exact: true }).fill('no-such-device')
  await send(page)
  await status(page, '404 Not Found')
  await page.getByLabel('device', { exact: true }).fill('..')
  await page.getByText('Browsers remove').waitFor()
  assert.equal(await button(page, 'Send request').getAttribute('aria-disabled'), 'true')
}))

test('a publish asks first; a failure shows the server’s message', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('reference?id=publish&app=dev')
  const body = page.getByLabel('Body (application/json)')
  const { to } = JSON.parse(await body.inputValue())
  const { devices } = await shop.node.api.call('GET', '/v1/devices?limit=20')
  assert.ok(devices.some(({ user }) => user === to.users[0]), `${to.users[0]} is a user of the app`)

  await send(page)
  await page.getByRole('dialog').getByText('This request changes the app dev').waitFor()
  await visitor.checkAccess('the question')
  await page.keyboard.press('Escape')
  assert.equal(await answer(page).count(), 0, 'nothing was sent')

  await send(page)
  await confirm(page)
  await status(page, '202 Accepted')
  await visitor.picture('operation')
  const { id } = JSON.parse(await answer(page).locator('pre').textContent())
  assert.equal((await shop.node.api.call('GET', `/v1/notifications/${id}`)).id, id)

  await body.fill('{"to": {"users": ["user-2"]}, "tll": "1h"}')
  await send(page)
  await confirm(page)
  await status(page, '400 Bad Request')
  await answer(page).getByText(/unknown field `tll`/).first().waitFor()
  await visitor.picture('operation-failure')

  await body.fill('{')
  await page.getByText('This is not valid JSON').waitFor()
  await send(page)
  await confirm(page)
  await answer(page).getByText('400 invalid_json', { exact: true }).waitFor()
}))

test('the server refuses a viewer', visit({ as: 'vera' }, async (visitor, page) => {
  await visitor.visit('reference?id=publish&app=dev')
  await page.getByText('Your role does not include: send notifications. The server will refuse').waitFor()
  await send(page)
  await confirm(page)
  await status(page, '403 Forbidden')
  await answer(page).getByText('403 forbidden', { exact: true }).waitFor()
  await visitor.visit('reference?id=topics&app=dev')
  await send(page)
  await status(page, '200 OK')
}))

test('the reason in Japanese, with the server’s words beside it', visit({ as: 'vera', language: 'ja', theme: 'dark', width: 390 }, async (visitor, page) => {
  await visitor.visit('reference?id=publish&app=dev')
  await button(page, 'リクエストを送信').click()
  await page.locator('dialog').getByRole('button', { name: 'リクエストを送信' }).click()
  await answer(page).getByText('この操作を行う権限がありません。').waitFor()
  await answer(page).locator('.error-box [lang=en]').waitFor()
  await visitor.checkAccess('a refusal')
  await visitor.checkWidth('a refusal')
  await visitor.picture('operation-refused')
}))

test('a header that few requests need', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('reference?id=publish&app=dev')
  await page.getByText('Optional parameters').click()
  await page.getByLabel('Idempotency-Key', { exact: true }).fill('é')
  await page.getByText('Only visible ASCII characters').waitFor()
  await page.getByLabel('Idempotency-Key', { exact: true }).fill('one-key')
  const ids = []
  for (const replayed of [false, true]) {
    await send(page)
    await confirm(page)
    await status(page, '202 Accepted')
    assert.equal(await answer(page).getByText('idempotent-replayed').count(), replayed ? 1 : 0)
    ids.push(JSON.parse(await answer(page).locator('pre').textContent()).id)
  }
  assert.equal(ids[0], ids[1])
}))

test('dangerous operations confirm the log-in, and then continue', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('reference?id=createKey&app=dev')
  await page.getByText('People confirm their log-in first.').waitFor()
  // As if the log-in were older than ten minutes.
  let refusals = 0
  await page.route('**/console/api/v1/apps/dev/keys', (route) => {
    if (route.request().method() !== 'POST' || refusals++ > 0) return route.fallback()
    return route.fulfill({ status: 403, contentType: 'application/problem+json', body: JSON.stringify({ type: '/docs#confirm_log_in', title: 'This needs a recent log-in', status: 403, code: 'confirm_log_in', detail: 'log in again' }) })
  })
  await page.getByLabel('Body (application/json)').fill('{"name": "from-the-reference", "scopes": ["read"]}')
  await send(page)
  await confirm(page)
  await page.getByRole('dialog').getByLabel('Password').fill(PASSWORD)
  await page.keyboard.press('Enter')
  await status(page, '201 Created')
  const { keys } = (await (await page.request.get(`${originOf(shop.node)}/console/api/v1/apps/dev/keys`)).json())
  assert.equal(keys.filter(({ name }) => name === 'from-the-reference').length, 1)
}))

test('operations that are not for people say so', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('reference?id=me&app=dev')
  await page.getByText('People cannot call this operation').waitFor()
  assert.equal(await button(page, 'Send request').count(), 0)
  await page.getByText('NOROSHI_DEVICE_TOKEN', { exact: true }).waitFor()
  await visitor.visit('reference?id=logIn&app=dev')
  await page.getByText('for people who are not logged in').waitFor()
  await visitor.visit('reference?id=connect&app=dev')
  await page.getByText('opens a connection').waitFor()
  await visitor.visit('reference?id=tail&app=dev')
  await page.getByText('a stream that does not end').waitFor()
  assert.equal(await button(page, 'Send request').count(), 0)
}))

/** How each language runs. */
const RUN = {
  curl: async (path) => run('sh', [path]),
  TypeScript: async (path) => run(process.execPath, [path]),
  Python: async (path) => run('python3', [path]),
  Go: async (path) => run('go', ['run', path], { timeout: 120_000 }),
}
const FILE = { curl: 'snippet.sh', TypeScript: 'snippet.mjs', Python: 'snippet.py', Go: 'main.go' }
const exists = async (program, ...args) => run(program, args).then(() => true, () => false)

const HOSTILE = 'it\'s "quoted" `code` $HOME ${x} $(id) \\n \\ %2F / é 日本 😀 \u2028 \ufeff'

async function execute(page, language) {
  await page.getByRole('tab', { name: language, exact: true }).click()
  const source = await page.getByRole('tabpanel').locator('pre').textContent()
  assert.ok(!source.includes(KEY), 'no secret')
  const path = join(folder, FILE[language])
  writeFileSync(path, source)
  const before = process.env.NOROSHI_KEY
  process.env.NOROSHI_KEY = KEY
  try {
    return (await RUN[language](path)).stdout
  } finally {
    if (before === undefined) delete process.env.NOROSHI_KEY
    else process.env.NOROSHI_KEY = before
  }
}

for (const language of Object.keys(RUN)) {
  const program = { curl: ['curl', '--version'], Python: ['python3', '--version'], Go: ['go', 'version'] }[language]
  test(`the snippets in ${language} do what they say`, async (t) => {
    if (program && !(await exists(...program))) return t.skip(`no ${program[0]}`)
    await visit({ as: 'ada' }, async (visitor, page) => {
      const topic = `snippets/${language} ${HOSTILE}`
      const data = { note: HOSTILE, lines: 'a\nb\tc\r\n', list: [1, -2.5, true, null, [], {}], [HOSTILE]: { deep: '</script>' } }
      await visitor.visit('reference?id=publish&app=dev')
      assert.equal(await page.getByLabel('Public address of the node').inputValue(), shop.node.http)
      await page.getByLabel('Body (application/json)').fill(JSON.stringify({ to: { topic }, retain: true, data }, null, 2))
      assert.match(await execute(page, language), /"id"/)
      const retained = await shop.node.api.call('GET', `/v1/topics/${encodeURIComponent(topic)}/retained`)
      assert.deepEqual(retained.data, data)

      // A literal would change this number: it is sent as it is written.
      await page.getByLabel('Body (application/json)').fill(`{"to": {"topic": ${JSON.stringify(topic)}}, "retain": true, "data": {"exact": 12345678901234567890, "é": "'\`"}}`)
      assert.match(await execute(page, language), /"id"/)

      await visitor.visit('reference?id=retained&app=dev')
      await page.getByLabel('topic', { exact: true }).fill(topic)
      assert.match(await execute(page, language), /"exact": ?12345678901234567890/)

      await visitor.visit('reference?id=publish&app=dev')
      await page.getByLabel('Body (application/json)').fill('{"to": {}}')
      assert.match(await execute(page, language), /invalid_field/, 'a failure prints the problem')

      await visitor.visit('reference?id=publishBatch&app=dev')
      await page.getByLabel('Body (application/x-ndjson)').fill('{"to":{"users":["user-2"]},"data":"it\'s"}\n{"to":{"users":["user-3"]},"data":"`\\\\"}\n')
      const lines = (await execute(page, language)).match(/"targets"/g)
      assert.equal(lines?.length, 2)
    })(t)
  })
}
