/** The live tail of the web console in Chromium, and over two nodes through the API. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { api } from '../lib/api.mjs'
import { Cluster } from '../lib/cluster.mjs'
import { button, heading, originOf, person, shopConsole } from '../lib/console.mjs'
import { Device } from '../lib/device.mjs'
import { missingEngines, Postgres, Redis } from '../lib/engines.mjs'
import { operator } from '../lib/operator.mjs'
import { XSS } from '../lib/shop.mjs'
import { until, within } from '../lib/until.mjs'

const shop = shopConsole()
const { visit } = shop

const rows = (page) => page.locator('.tail-row')
const row = (page, text) => rows(page).filter({ hasText: text })
const state = (page, words) => page.locator('.live-state').filter({ hasText: words })
const tails = async () => Number(/^noroshi_tails (\d+)$/m.exec(await (await shop.node.admin('/metrics')).text())[1])
const publish = (message) => shop.node.api.publish(message)

for (const [language, theme, width, words] of [
  ['en', 'light', 1280, { live: 'Live', pause: 'Pause', resume: /^Resume/, paused: /^Paused/, copy: 'Copy the list as JSON', kept: 'Kept', stop: 'Stop', start: 'Start' }],
  ['ja', 'dark', 360, { live: 'ライブ', pause: '一時停止', resume: /^再開/, paused: /^一時停止中/, copy: 'すべて JSON でコピー', kept: '保存', stop: '停止', start: '開始' }],
]) {
  test(`events appear, stand still and go on: ${language}, ${theme}, ${width} px`, visit({ as: 'ada', language, theme, width }, async (visitor, page) => {
    await visitor.context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: visitor.origin })
    await visitor.visit('live?app=dev')
    await state(page, words.live).waitFor()
    await visitor.checkAccess('an empty tail')
    const { id } = await publish({ to: { users: ['user-2', XSS] }, data: { note: XSS } })
    await row(page, words.kept).first().waitFor()
    assert.match(await row(page, words.kept).first().innerText(), /user-2/)
    await visitor.checkAccess('a tail')
    await visitor.checkWidth('a tail')
    await visitor.picture('live')

    // A row that opens pauses the list.
    await row(page, words.kept).first().click()
    await state(page, words.paused).waitFor()
    const json = JSON.parse(await page.locator('.tail-detail .code').innerText())
    assert.deepEqual([json.event, json.id, json.count], ['kept', id, 4])
    assert.ok(json.devices.some(({ user }) => user === XSS) && json.node)
    const shown = await rows(page).count()
    await publish({ to: { users: ['user-3'] }, data: 1 })
    await page.getByRole('button', { name: words.resume }).filter({ hasText: /\d/ }).waitFor()
    assert.equal(await rows(page).count(), shown)
    await visitor.checkAccess('an open row')
    await visitor.checkWidth('an open row')
    await visitor.picture('live-paused')
    await page.getByRole('button', { name: words.resume }).click()
    await state(page, words.live).waitFor()
    await page.waitForFunction((before) => document.querySelectorAll('.tail-row').length > before, shown)

    await button(page, words.copy).click()
    const copied = await until('the events are copied', async () => {
      const text = await page.evaluate(() => navigator.clipboard.readText())
      return text.startsWith('[') && JSON.parse(text)
    })
    assert.equal(copied.length, await rows(page).count())
    assert.equal(copied[0].event, 'accepted', 'the oldest first')

    await button(page, words.stop).click()
    await button(page, words.start).waitFor()
    await until('the node closed the tail', async () => await tails() === 0)
    await button(page, words.start).click()
    await state(page, words.live).waitFor()
    assert.equal(await rows(page).count(), 0)
  }))
}

test('a filter is in the address, and pages link to it', visit({ as: 'vera' }, async (visitor, page) => {
  await visitor.visit('user?app=dev&id=user-2')
  await page.locator('#content').getByRole('link', { name: 'Live', exact: true }).click()
  await page.waitForURL(/live\?.*user=user-2/)
  await heading(page, 'Live').waitFor()
  await state(page, 'Live').waitFor()
  assert.equal(await page.getByLabel('User', { exact: true }).inputValue(), 'user-2')
  await publish({ to: { users: ['user-5'] }, data: 1 })
  const { id } = await publish({ to: { users: ['user-2'] }, data: 1 })
  await row(page, 'Kept').first().waitFor()
  for (const text of await rows(page).allInnerTexts()) assert.match(text, /user-2/)
  // People with a role in one app do not see the nodes.
  await row(page, 'Kept').first().click()
  assert.equal(JSON.parse(await page.locator('.tail-detail .code').innerText()).node, undefined)
  await page.locator('.tail-detail').getByRole('link', { name: 'Notification' }).click()
  await page.waitForURL(new RegExp(`notification\\?.*id=${id}`))
  await page.locator('#content').getByRole('link', { name: 'Live', exact: true }).click()
  await page.waitForURL(new RegExp(`live\\?.*notification=${id}`))

  await button(page, 'Clear filter').click()
  await page.getByLabel('Delivered').uncheck()
  await page.waitForURL(/show=/)
  await state(page, 'Live').waitFor()
  await publish({ to: { users: ['user-2'] }, data: 1 })
  await row(page, 'Accepted').first().waitFor()
  assert.equal(await row(page, 'Kept').count(), 0)
  await page.reload()
  await state(page, 'Live').waitFor()
  assert.equal(await page.getByLabel('Delivered').isChecked(), false)
  await page.getByLabel('Notification', { exact: true }).fill('not an id')
  await button(page, 'Filter').click()
  await page.locator('.error-box').filter({ hasText: 'notification' }).waitFor()
  await visitor.checkAccess('a refused filter')

  for (const path of ['device?app=dev&id=iphone-004', 'topic?app=dev&id=news']) {
    await visitor.visit(path)
    await page.locator('#content').getByRole('link', { name: 'Live', exact: true }).waitFor()
  }
}))

test('pushes, connections and rejected log-ins, by keyboard', visit({ as: 'sam' }, async (visitor, page) => {
  await visitor.visit('live?app=dev&device=iphone-004')
  await state(page, 'Live').waitFor()
  await publish({ to: { devices: ['iphone-004'] }, notification: { title: 'Hello' }, push: { mode: 'always' } })
  await row(page, 'Push answered').first().waitFor()
  const { token } = await shop.node.api.call('POST', '/v1/devices', { body: { device: 'iphone-004' } })
  const device = await Device.connect(shop.node.http, token)
  await row(page, 'Connected').first().waitFor()
  device.socket.close()
  await row(page, 'Closed').first().waitFor()
  assert.match(await row(page, 'Closed').first().innerText(), /iphone-004 \(user-4\)/)

  // From row to row, open one, and the next Tab leads into it.
  await rows(page).first().focus()
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('End')
  await page.keyboard.press('Home')
  await page.keyboard.press('Enter')
  assert.equal(await rows(page).first().getAttribute('aria-expanded'), 'true')
  await state(page, /^Paused/).waitFor()
  await page.keyboard.press('Tab')
  assert.equal(await page.evaluate(() => document.activeElement.closest('.tail-detail') !== null), true)

  await visitor.visit('live?app=dev&show=rejected')
  await state(page, 'Live').waitFor()
  const refused = await fetch(`${shop.node.http}/v1/events`, { headers: { authorization: `Bearer ${token.slice(0, -4)}AAAA` } })
  assert.equal(refused.status, 401)
  await row(page, 'Log-in rejected').first().waitFor()
  assert.match(await row(page, 'Log-in rejected').first().innerText(), /Wrong signature|Malformed token/)
  await row(page, 'Log-in rejected').first().click()
  assert.ok(!(await page.locator('.tail-detail').innerText()).includes(token.slice(10, 30)))
  await visitor.picture('live-rejected')
}))

test('a flood is shown in part, and the page states the rest', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('live?app=dev')
  await state(page, 'Live').waitFor()
  // Each is three events, and a flush shows 25.
  await Promise.all(Array.from({ length: 100 }, () => publish({ to: { users: ['user-2'] }, data: 1 })))
  await page.locator('.tail-omissions li').filter({ hasText: /^\d\d:\d\d:\d\d.*left out [\d,]+ events/ }).waitFor()
  await visitor.checkAccess('a flood')
  await visitor.picture('live-flood')
  assert.ok(await rows(page).count() <= 200)
}))

test('a filter keeps typed text and the focus; rows follow the language', visit({ as: 'vera' }, async (visitor, page) => {
  await visitor.visit('live?app=dev')
  await state(page, 'Live').waitFor()
  await page.getByLabel('User', { exact: true }).fill('user-2')
  await page.getByLabel('Connections').focus()
  await page.keyboard.press('Space')
  await page.waitForURL(/user=user-2.*show=|show=.*user=user-2/)
  await state(page, 'Live').waitFor()
  assert.equal(await page.getByLabel('User', { exact: true }).inputValue(), 'user-2')
  assert.equal(await page.evaluate(() => document.activeElement.closest('label')?.textContent), 'Connections')

  await publish({ to: { users: ['user-2'] }, data: 1 })
  await row(page, 'Kept').first().waitFor()
  await button(page, 'Pause').click()
  await page.getByRole('button', { name: /^Account of/ }).click()
  await page.getByRole('menuitemradio', { name: '日本語' }).click()
  await row(page, '保存').first().waitFor()
  assert.equal(await row(page, 'Kept').count(), 0)
}))

for (const [language, theme, width, words] of [
  ['en', 'light', 1280, { live: 'Live', kept: 'Kept', hidden: 'Paused, because the tab is hidden', gap: /^\d\d:\d\d:\d\d.*The tab was hidden/ }],
  ['ja', 'dark', 390, { live: 'ライブ', kept: '保存', hidden: 'タブが非表示のため', gap: /^\d\d:\d\d:\d\d.*タブが 1 分を超えて非表示/ }],
]) {
  test(`a tail in a hidden tab pauses after a minute, resumes when the person returns, and states the gap: ${language}`, visit({ as: 'vera', language, theme, width }, async (visitor, page) => {
    await page.clock.install()
    await visitor.visit('live?app=dev')
    await state(page, words.live).waitFor()
    await publish({ to: { users: ['user-2'] }, data: 1 })
    await row(page, words.kept).first().waitFor()
    const show = (value) => page.evaluate((now) => {
      Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => now })
      document.dispatchEvent(new Event('visibilitychange'))
    }, value)
    // A short look at another tab changes nothing.
    await show('hidden')
    await page.clock.fastForward(30_000)
    await show('visible')
    await page.clock.fastForward(60_000)
    await state(page, words.live).waitFor()
    assert.equal(await tails(), 1)

    await show('hidden')
    await page.clock.fastForward(61_000)
    await state(page, words.hidden).waitFor()
    await until('the node to close the tail', async () => await tails() === 0)
    await publish({ to: { users: ['user-3'] }, data: 1 })
    // Longer than a tail without input lasts.
    await page.clock.fastForward(20 * 60_000)
    await show('visible')
    await state(page, words.live).waitFor()
    await page.locator('.tail-omissions li').filter({ hasText: words.gap }).waitFor()
    await publish({ to: { users: ['user-4'] }, data: 1 })
    await row(page, 'user-4').first().waitFor()
    assert.ok(await row(page, 'user-2').count() > 0, 'the rows from before stay')
    assert.equal(await row(page, 'user-3').count(), 0)
    await visitor.checkAccess('after a hidden tab')
    await visitor.checkWidth('after a hidden tab')
    await visitor.picture('live-hidden')
  }))
}

/** The texts of the tail of an app at a node. */
async function follow(node, { cookie }, app) {
  const response = await fetch(`${originOf(node)}/console/api/v1/tail`, { headers: { cookie: `noroshi_session=${cookie}`, 'noroshi-app': app } })
  assert.equal(response.status, 200)
  const reader = response.body.getReader()
  let text = ''
  return {
    async next() {
      let end
      while ((end = text.indexOf('\n\n')) < 0) {
        const { value, done } = await within('the next text', reader.read())
        assert.ok(!done, 'the stream ended')
        text += Buffer.from(value).toString()
      }
      const data = JSON.parse(text.slice(text.indexOf('data: ') + 6, end))
      text = text.slice(end + 2)
      return data
    },
    close: () => reader.cancel(),
  }
}

test('a tail has the events of all nodes, and names a node that is missing', async (t) => {
  const missing = missingEngines()
  if (missing) return t.skip(missing)
  const [postgres, redis] = await Promise.all([Postgres.start(), Redis.start()])
  let cluster
  t.after(async () => {
    await cluster?.stop()
    await Promise.all([postgres.stop(), redis.stop()])
  })
  cluster = await Cluster.start({
    postgres: postgres.url,
    redis: redis.url,
    nodes: [{ name: 'one', roles: ['api', 'gateway', 'sender'] }, { name: 'two', roles: ['api', 'gateway', 'sender'] }],
  })
  await cluster.seen()
  const [one, two] = ['one', 'two'].map((name) => cluster.node(name))
  await operator(one).app('tails')
  const made = await operator(one).raw('POST', '/v1/apps/tails/keys', { name: 'two', scopes: ['publish'] })
  await until('the app on both nodes', async () => (await operator(two).raw('GET', '/v1/apps/tails')).status === 200)
  const provider = api(two.http, made.body.key)
  const ann = await person(one, 'ann@example.com', 'Ann', ['*', 'viewer'])
  const stream = await follow(one, ann, 'tails')
  let id
  const seen = await until('an event of the other node', async () => {
    ({ id } = await provider.publish({ to: { topic: 'news' }, data: 1 }))
    return (await stream.next()).events.find(({ event }) => event === 'accepted')
  })
  assert.deepEqual([seen.node, seen.topic, seen.target], ['two', 'news', 'topic'])
  assert.ok(id)
  await two.kill()
  await until('the node to be missing', async () => {
    const { nodes_missing, missing: names } = await stream.next()
    // Its lease may end before its silence counts.
    return nodes_missing === 1 ? names.includes('two') : (await operator(one).raw('GET', '/v1/nodes')).body.nodes.length === 1
  }, 60_000)
  await stream.close()
})
