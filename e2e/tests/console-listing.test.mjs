/** The lists of notifications and devices in Chromium: filters in the address, what a user received, empty results. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { button, heading, shopConsole } from '../lib/console.mjs'
import { Device } from '../lib/device.mjs'
import { operator } from '../lib/operator.mjs'
import { XSS } from '../lib/shop.mjs'
import { until } from '../lib/until.mjs'

const shop = shopConsole()
const { visit } = shop
const rows = (page) => page.locator('#content tbody tr')
const count = (page, expected) => page.waitForFunction((n) => document.querySelectorAll('#content tbody tr').length === n, expected)

test('notifications are found by user, topic and category', visit({ as: 'vera' }, async (visitor, page) => {
  await visitor.visit('notifications?app=dev')
  await heading(page, 'Notifications').waitFor()
  const all = await rows(page).count()
  assert.ok(all >= 5, `${all} notifications`)

  await page.getByLabel('Topic', { exact: true }).fill('news')
  await button(page, 'Filter').click()
  await page.waitForURL(/topic=news/)
  await page.waitForFunction((before) => document.querySelectorAll('#content tbody tr').length < before, all)
  for (const text of await rows(page).allInnerTexts()) assert.match(text, /news/)

  await button(page, 'Clear filter').click()
  await page.getByLabel('User', { exact: true }).fill('user-2')
  await page.getByLabel('Category').fill('orders')
  await page.keyboard.press('Enter')
  await page.waitForURL(/user=user-2.*category=orders|category=orders.*user=user-2/)
  await count(page, 1)
  assert.match(await rows(page).innerText(), /Your order has shipped/)
  await visitor.checkAccess('filtered notifications')

  // The address alone shows the same.
  await page.reload()
  await visitor.settled()
  await count(page, 1)
  assert.equal(await page.getByLabel('Category').inputValue(), 'orders')

  await visitor.visit('notifications?app=dev&topic=nothing-here')
  await page.locator('.empty').waitFor()
}))

test('a user page shows what the user received, and hostile texts stay texts', visit({ as: 'sam' }, async (visitor, page) => {
  await visitor.visit('user?app=dev&id=user-2&tab=notifications')
  await page.waitForFunction(() => document.querySelectorAll('#content tbody tr').length >= 3)
  const text = await page.locator('#content tbody').innerText()
  assert.ok(text.includes('Your order has shipped') && text.includes(XSS.slice(0, 20)), text)
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined)
  await visitor.checkAccess('notifications of a user')

  await page.locator('#content tbody a.mono').first().click()
  await page.waitForURL(/notification\?.*device=/)
  await page.getByRole('heading', { name: 'Story on a device' }).waitFor()

  await visitor.visit('device?app=dev&id=iphone-004&tab=notifications')
  await page.waitForFunction(() => /It arrives tomorrow/.test(document.querySelector('#content').innerText))
}))

test('devices are filtered by the day they were last seen', visit({ as: 'vera' }, async (visitor, page) => {
  const { node } = shop
  const { token } = await node.api.register({ device: 'pixel-003' })
  const device = await Device.connect(node.ws, token)
  device.socket.close()
  await until('the day to be written', async () => (await node.api.call('GET', '/v1/devices/pixel-003')).last_seen !== null)
  await visitor.visit('devices?app=dev')
  await rows(page).first().waitFor()
  await page.getByLabel('Last seen').selectOption('1d')
  await button(page, 'Filter').click()
  await page.waitForURL(/seen=1d/)
  await page.waitForFunction(() => /pixel-003[\s\S]*(today|yesterday)/.test(document.querySelector('#content tbody')?.innerText ?? ''))
  await visitor.checkAccess('devices seen today')
  for (const text of await rows(page).allInnerTexts()) assert.match(text, /today|yesterday/)

  // The address alone shows the same.
  await page.reload()
  await visitor.settled()
  assert.equal(await page.getByLabel('Last seen').inputValue(), '1d')
  await page.getByLabel('Last seen').selectOption('never')
  await button(page, 'Filter').click()
  await page.waitForURL(/seen=never/)
  await page.waitForFunction(() => /iphone-/.test(document.querySelector('#content tbody')?.innerText ?? ''))
  for (const text of await rows(page).allInnerTexts()) assert.doesNotMatch(text, /pixel-003|today/)
  await visitor.visit('devices?app=dev&seen=over90d')
  await page.locator('.empty').waitFor()
  assert.match(await page.locator('.empty').innerText(), /UTC/)
  await visitor.checkAccess('no device was seen that long ago')

  await visitor.visit('devices?app=dev&seen=1d')
  await visitor.picture('devices-seen')
  await visitor.visit('device?app=dev&id=pixel-003')
  await page.waitForFunction(() => /Last seen[\s\S]*(today|yesterday)/.test(document.querySelector('#content').innerText))
}))

for (const view of [{ theme: 'dark' }, { language: 'ja' }, { width: 390, height: 844 }]) {
  test(`the list of devices by day (${JSON.stringify(view)})`, visit({ as: 'vera', ...view }, async (visitor, page) => {
    await visitor.visit('devices?app=dev&seen=never')
    await rows(page).first().waitFor()
    await visitor.checkAccess('devices by day')
    await visitor.checkWidth('devices by day')
    await visitor.picture('devices-never')
    await visitor.visit('devices?app=dev&seen=1d')
    await visitor.picture('devices-seen')
    await visitor.visit('devices?app=dev&seen=over30d')
    await page.locator('.empty').waitFor()
    await visitor.picture('devices-none')
  }))
}

test('devices are filtered by platform and token', visit({ as: 'vera' }, async (visitor, page) => {
  await visitor.visit('devices?app=dev&platform=web')
  await count(page, 1)
  assert.match(await rows(page).innerText(), /evil\.device/)
  await page.getByLabel('Platform').selectOption('ios')
  await page.getByLabel('Push token').selectOption('none')
  await button(page, 'Filter').click()
  await page.waitForURL(/platform=ios.*token=none|token=none.*platform=ios/)
  await page.waitForFunction(() => document.querySelectorAll('#content tbody tr').length > 1)
  for (const text of await rows(page).allInnerTexts()) assert.match(text, /iphone-[\s\S]*iOS/)
  await page.getByLabel('Push token').selectOption('usable')
  await page.getByLabel('Push service').selectOption('webpush')
  await button(page, 'Filter').click()
  await page.locator('.empty').waitFor()
  await visitor.checkAccess('no device')
}))

test('tabs of a user with many devices say which devices they are about', visit({ as: 'vera' }, async (visitor, page) => {
  assert.equal((await operator(shop.node).raw('PATCH', '/v1/apps/dev/quotas', { devices: 'unlimited' })).status, 200)
  await shop.node.api.registerBatch(Array.from({ length: 51 }, (_, index) => ({ device: `many-${String(index).padStart(2, '0')}`, user: 'user-many', topics: [`many/${index}`] })))
  await visitor.visit('user?app=dev&id=user-many&tab=topics')
  await page.getByText('Of the devices on page 1.').waitFor()
  assert.equal(await page.locator('.hits li').count(), 50)
  await page.getByRole('tab', { name: 'Devices' }).click()
  await button(page, 'Next').click()
  await page.getByText('Page 2').waitFor()
  await page.getByRole('tab', { name: 'Subscriptions' }).click()
  await page.getByText('Of the devices on page 2.').waitFor()
  assert.equal(await page.locator('.hits li').count(), 1)
}))

test('a link to the same page without a filter empties the fields, and the focus stays in the form', visit({ as: 'ada' }, async (visitor, page) => {
  for (const [path, link, field] of [
    ['devices?app=dev&user=user-2', 'Devices', 'Of user'], ['notifications?app=dev&user=user-2', 'Notifications', 'User'],
    ['audit?app=dev&action=POST', 'Audit log', 'Action begins with'], ['campaigns?app=dev&name=nothing', 'Campaigns', 'Name contains'],
    ['live?app=dev&user=user-2', 'Live', 'User'],
  ]) {
    await visitor.visit(path)
    const input = page.getByLabel(field, { exact: true })
    assert.notEqual(await input.inputValue(), '', path)
    await button(page, 'Clear filter').focus()
    await page.keyboard.press('Enter')
    await button(page, 'Clear filter').waitFor({ state: 'detached' })
    assert.equal(await page.evaluate(() => document.activeElement.closest('form.filters') !== null), true, path)
    assert.equal(await input.inputValue(), '')

    await visitor.visit(path)
    await page.locator('#sidebar').getByRole('link', { name: link, exact: true }).click()
    await until(`${path} to be empty`, async () => (await input.inputValue()) === '')
  }
}))

for (const [language, theme] of [['en', 'light'], ['ja', 'dark']]) {
  test(`on a phone the audit log shows action, person and time without scrolling: ${language}, ${theme}`, visit({ as: 'ada', language, theme, width: 390, height: 844 }, async (visitor, page) => {
    await visitor.visit('audit?app=dev')
    // A change by a person, so that the first entry has one.
    const changed = await page.evaluate(async () => {
      const { csrf } = await (await fetch('/console/api/v1/session')).json()
      const headers = { 'content-type': 'application/json', 'noroshi-csrf': csrf }
      return (await fetch('/console/api/v1/apps/dev/quotas', { method: 'PATCH', headers, body: '{"topics":null}' })).status
    })
    assert.equal(changed, 200)
    await page.reload()
    await visitor.settled()
    const first = rows(page).first()
    for (const part of [first.locator('td:visible code').first(), first.getByRole('button', { name: '@example.com' }), first.locator('time:visible')]) {
      const { x, width } = await part.boundingBox()
      // The button at the end of a row stays in sight, over what scrolls.
      const actions = await first.locator('.actions').boundingBox()
      assert.ok(x >= 0 && x + width <= actions.x + 1, `${await part.innerText()} from ${x} to ${x + width}, beside ${actions.x}`)
    }
    await visitor.checkAccess('audit log on a phone')
    await visitor.checkWidth('audit log on a phone')
    await visitor.picture('audit-phone')
    await first.getByRole('button', { name: '@example.com' }).click()
    await page.waitForURL(/person=/)
  }))
}
