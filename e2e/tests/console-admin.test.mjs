/**
 * The pages of the web console for operators: doctor's findings, the effective configuration, profiles, queues, and the
 * routes behind them on a real node.
 */

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'

import { button, heading, originOf, person, shopConsole, Visitor } from '../lib/console.mjs'
import { Node } from '../lib/node.mjs'
import { operator } from '../lib/operator.mjs'
import { until } from '../lib/until.mjs'

const MARKER = 'marked-value-5f3a'
const events = mkdtempSync(join(tmpdir(), 'noroshi-e2e-events-'))
after(() => rmSync(events, { recursive: true, force: true }))
const shop = shopConsole({ args: ['--set', `events.file.folder=${events}`, '--set', `sqs.endpoint=https://u:${MARKER}@sqs.example/?key=${MARKER}`] })
const { visit } = shop

const looks = [['en', 'light', 1280], ['ja', 'dark', 360], ['en', 'dark', 1280]]

for (const [language, theme, width] of looks) {
  test(`the pages of the node are accessible: ${language}, ${theme}, ${width} px`, visit({ as: 'ada', language, theme, width }, async (visitor) => {
    for (const name of ['doctor', 'configuration', 'profile', 'queues']) {
      await visitor.visit(`${name}${name.includes('?') ? '&' : '?'}app=dev`)
      await visitor.checkAccess(name)
      await visitor.checkWidth(name)
      await visitor.picture(`admin-${name.replaceAll(/\W+/g, '-')}`)
    }
  }))
}

test("doctor's findings for another number of devices", visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('doctor?app=dev')
  await page.getByText('10,000 devices').waitFor()
  await page.getByLabel('Devices', { exact: true }).fill('90000000')
  await page.keyboard.press('Enter')
  await page.getByText('90,000,000 devices').waitFor()
  await page.locator('h1 .badge.bad').waitFor()
  const first = page.locator('tbody tr').first()
  await first.locator('.badge.bad').waitFor()
  await page.getByRole('region', { name: 'Limit of the service to raise' }).getByText('LimitNOFILE=').waitFor()
  await visitor.checkAccess('failures')
  await visitor.picture('admin-doctor-failures')
}))

test('the configuration has sources and no secrets', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('configuration?app=dev')
  await page.getByText('Not default').click()
  const row = page.getByRole('row').filter({ hasText: 'sqs.endpoint' })
  await row.getByText('https://u:…@sqs.example/?key=…').waitFor()
  await row.getByText('--set').waitFor()
  assert.equal(await page.getByRole('row').filter({ hasText: 'gateway.ping_interval' }).count(), 0)
  await page.getByLabel('Find a key').fill('sqs endpoint')
  assert.equal(await page.locator('tbody tr').count(), 1)
  await page.getByLabel('Find a key').fill('no such key')
  await page.locator('.empty').waitFor()
  await visitor.checkAccess('no key')
  assert.ok(!(await page.content()).includes(MARKER))
  const raw = await operator(shop.node).raw('GET', '/v1/configuration')
  assert.equal(raw.status, 200, raw.text)
  assert.ok(!raw.text.includes(MARKER))
  assert.ok(raw.body.settings.length > 150)
}))

test('a flame graph by keyboard: search, enlarge, go back, table', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('profile?app=dev')
  await page.getByLabel('Duration').selectOption('1')
  // Something to see: requests while the sampler runs.
  let busy = true
  const work = (async () => {
    while (busy) await Promise.all(Array.from({ length: 8 }, () => operator(shop.node).raw('GET', '/v1/configuration')))
  })()
  await button(page, 'Take profile').click()
  await page.getByRole('tree', { name: 'Flame graph' }).waitFor()
  busy = false
  await work
  await visitor.checkAccess('flame graph')
  await visitor.picture('admin-flame')
  const focusOn = (name) => page.waitForFunction((text) => document.activeElement.getAttribute('aria-label')?.startsWith(text), name)
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? '')
  await page.locator('[role=treeitem][tabindex="0"]').focus()
  assert.match(await focused(), /^all threads, /)
  const moved = async (key) => {
    const before = await focused()
    await page.keyboard.press(key)
    await page.waitForFunction((name) => document.activeElement.getAttribute('aria-label') !== name, before)
    return focused()
  }
  const thread = await moved('ArrowDown')
  const inner = await moved('ArrowDown')
  await page.keyboard.press('Enter')
  await page.waitForFunction(() => document.activeElement.getAttribute('width') === '100%')
  await focusOn(inner)
  await visitor.picture('admin-flame-enlarged')
  await page.keyboard.press('Escape')
  await focusOn(thread)
  await page.keyboard.press('Home')
  await focusOn('all threads, ')

  await page.getByLabel('Find a function').fill('noroshi')
  await page.getByText('of the time in matches').waitFor()
  assert.ok((await page.locator('.frame.match').count()) > 0)
  await visitor.checkAccess('matches')
  await visitor.picture('admin-flame-search')
  await page.getByText('Functions', { exact: true }).click()
  const row = page.locator('tbody tr').first()
  assert.match(await row.innerText(), /noroshi/)
  await visitor.checkAccess('functions')
  await visitor.picture('admin-flame-table')
}))

test('one profile at a time; leaving the page stops the sampler', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('profile?app=dev')
  await page.getByLabel('Duration').selectOption('60')
  await button(page, 'Take profile').click()
  await page.getByRole('progressbar').waitFor()
  const second = await operator(shop.node).raw('GET', '/debug/pprof/profile?seconds=1&format=tree')
  assert.equal(second.status, 409, second.text)
  await visitor.visit('doctor?app=dev')
  await visitor.visit('profile?app=dev')
  await until('the sampler to stop', async () => (await operator(shop.node).raw('GET', '/debug/pprof/profile?seconds=1&format=tree')).status === 200)
  // Cancelled by its button.
  await page.getByLabel('Duration').selectOption('60')
  await button(page, 'Take profile').click()
  await page.getByRole('progressbar').waitFor()
  await button(page, 'Cancel').click()
  await page.getByRole('progressbar').waitFor({ state: 'detached' })
  assert.equal(await page.locator('.error-box').count(), 0)
  await until('the sampler to stop', async () => (await operator(shop.node).raw('GET', '/debug/pprof/profile?seconds=1&format=tree')).status === 200)
}))

test('queues show what waits, and what is sent again', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('queues?app=dev')
  await page.getByRole('row').filter({ hasText: 'Database writer' }).getByText('The request fails').waitFor()
  await page.getByRole('link', { name: 'Push credentials' }).last().waitFor()
  const { body } = await operator(shop.node).raw('GET', '/v1/queues')
  assert.ok(body.queues.some(({ queue, of, waiting }) => queue === 'push' && of.service === 'apns' && waiting !== null), JSON.stringify(body))
}))

test('Web Push endpoints of a device and a user: list, revoke', visit({ as: 'ada' }, async (visitor, page) => {
  const device = await shop.node.api.register({ device: 'browser-1', user: 'user-of-endpoints' })
  const made = await shop.node.api.call('POST', '/v1/me/endpoints', { token: device.token, body: { label: '<b>chat</b>' }, status: 201 })
  await visitor.visit('device?id=browser-1&tab=endpoints&app=dev')
  await page.getByRole('row').filter({ hasText: '<b>chat</b>' }).getByText('anyone with the URL').waitFor()
  await visitor.checkAccess('endpoints of a device')
  await visitor.picture('admin-endpoints')
  await visitor.visit('user?id=user-of-endpoints&tab=endpoints&app=dev')
  await page.getByRole('row').filter({ hasText: 'browser-1' }).getByRole('button', { name: 'Revoke: <b>chat</b>' }).click()
  await page.locator('dialog').getByRole('button', { name: 'Revoke', exact: true }).click()
  await page.getByText('No Web Push endpoints').waitFor()
  await visitor.checkAccess('no endpoints')
  const posted = await fetch(made.url, { method: 'POST', headers: { ttl: '60' }, body: 'x' })
  assert.equal(posted.status, 410)
}))

test('each change is an event, without secrets', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('keys?app=dev')
  await button(page, 'Create key').first().click()
  await page.locator('dialog').getByLabel('Name').fill('key of an event')
  await page.locator('dialog').getByRole('button', { name: 'Create key' }).click()
  const key = await page.locator('dialog pre').innerText()
  const lines = await until('the event', () => {
    const all = readFileSync(join(events, 'events.ndjson'), 'utf8')
    return all.includes('key of an event') && all.includes('"event":"audit"') && all.includes('POST /v1/apps/{app}/keys') && all
  })
  const event = lines.split('\n').filter((line) => line.includes('POST /v1/apps/{app}/keys')).map((line) => JSON.parse(line)).at(-1)
  assert.deepEqual([event.event, event.app, event.by, event.who, event.target], ['audit', 'dev', 'person', 'ada@example.com', '/v1/apps/dev/keys'])
  assert.equal(event.after.name, 'key of an event')
  assert.ok(!lines.includes(key), 'no event has the key')
}))

test('an owner of one app withdraws its open invitation', visit({ as: 'olga' }, async (visitor, page) => {
  await visitor.visit('people?app=shop')
  await page.getByText('No open invitations').waitFor()
  await button(page, 'Add person').click()
  await page.locator('dialog').getByLabel('E-mail').fill('new@example.com')
  await page.locator('dialog').getByRole('button', { name: 'Add person' }).click()
  const link = await page.locator('dialog pre').innerText()
  await page.keyboard.press('Escape')
  await page.getByRole('row').filter({ hasText: 'new@example.com' }).waitFor()
  await visitor.checkAccess('invitations of an app')
  await visitor.picture('admin-invitations')
  await button(page, 'Withdraw: new@example.com').click()
  await page.locator('dialog').getByRole('button', { name: 'Withdraw' }).click()
  await page.getByText('No open invitations').waitFor()
  await page.goto(link.startsWith('http') ? link : originOf(shop.node) + link)
  await page.getByLabel('Name').fill('Nobody')
  await page.getByLabel('New password').fill('correct horse battery staple')
  await button(page, 'Accept and log in').click()
  await page.getByRole('alert').waitFor()
}))

test('the console of a front: cells, devices of all of them, a move', async (t) => {
  if (!shop.browser) return t.skip('no Chromium')
  const [one, two] = await Promise.all([Node.start(), Node.start()])
  const file = join(events, 'cells.toml')
  const cell = (name, node) => `[[cell]]\nname = "${name}"\nurls = ["${node.http}"]\nadmin_url = "${originOf(node)}"\noperator_token = "${readFileSync(join(node.data, 'operator.token'), 'utf8').trim()}"\n`
  writeFileSync(file, cell('eu-1', one) + cell('eu-2', two), { mode: 0o600 })
  const front = await Node.start({ args: ['--role', 'front'], env: { NOROSHI__FRONT__CELLS_FILE: file } })
  try {
    const ada = await person(front, 'ada@example.com', 'Ada Lovelace', ['*', 'owner'])
    await until('the cells to know the app', async () => (await front.api.raw('POST', '/v1/devices', { body: { device: 'd1', user: 'u1' } })).status === 201)
    for (const [language, theme, width] of [['en', 'light', 1280], ['ja', 'dark', 360]]) {
      const visitor = await Visitor.open(shop.browser, originOf(front), { as: ada, language, theme, width })
      const { page } = visitor
      for (const name of ['cells', 'devices', 'device?id=d1', 'user?id=u1', 'search?q=d1', '']) {
        await visitor.visit(`${name}${name.includes('?') ? '&' : '?'}app=dev`)
        await visitor.checkAccess(`front ${name}`)
        await visitor.checkWidth(`front ${name}`)
        assert.equal(await page.locator('#content .error-box').count(), 0, `front ${name} shows no error`)
        await visitor.picture(`admin-front-${name.replaceAll(/\W+/g, '-')}`)
      }
      if (language === 'en') {
        assert.equal(await page.getByRole('link', { name: 'Campaigns', exact: true }).count(), 0, 'a front has no campaigns')
        for (const there of ['campaigns', 'campaign?id=01a21d69-661f-75e6-bf14-0f0b0005a817', 'live']) {
          await visitor.visit(`${there}${there.includes('?') ? '&' : '?'}app=dev`)
          await page.getByText('The front of the cells does not serve this').waitFor()
        }
        await visitor.visit('cells?app=dev')
        const { cells } = (await operator(front).raw('GET', '/v1/cells')).body
        const from = cells.find(({ users }) => users === 1).cell
        const to = cells.find(({ users }) => users === 0).cell
        await button(page, `Actions for ${from}`).click()
        await page.getByRole('menuitem', { name: 'Move users' }).click()
        await page.getByLabel('User', { exact: true }).fill('u1')
        await visitor.checkAccess('move')
        await visitor.picture('admin-front-move')
        await page.locator('dialog').getByRole('button', { name: 'Move users' }).click()
        await page.getByText('1 user and 1 device begin to move').waitFor()
        await until('the user to be in the other cell', async () => (await operator(front).raw('GET', '/v1/cells')).body.cells.find(({ cell }) => cell === to).users === 1)
        await button(page, `Actions for ${to}`).click()
        await page.getByRole('menuitem', { name: 'Drain' }).click()
        await page.locator('dialog').getByRole('button', { name: 'Drain' }).click()
        await page.getByRole('row').filter({ hasText: to }).getByText('no new devices').waitFor()
      }
      await visitor.close()
    }
  } finally {
    await Promise.all([front, one, two].map((node) => node.stop()))
  }
})

test('a person of one app sees nothing of the node', visit({ as: 'olga' }, async (visitor, page) => {
  await visitor.visit('?app=shop')
  for (const name of ['Doctor', 'Queues', 'Configuration', 'Flame graph']) assert.equal(await page.getByRole('link', { name, exact: true }).count(), 0, name)
  for (const path of ['/v1/doctor', '/v1/queues', '/v1/configuration', '/debug/pprof/profile?seconds=1']) {
    const answer = await fetch(`${originOf(shop.node)}/console/api${path}`, { headers: { cookie: `noroshi_session=${shop.people.olga.cookie}` } })
    assert.equal(answer.status, 403, path)
  }
  await heading(page, 'Overview').waitFor()
}))
