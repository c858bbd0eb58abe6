/**
 * Every page and dialog of the web console in Chromium: axe finds nothing (WCAG 2.2 AA and best practices), nothing is wider
 * than the screen, and the strict policy holds. NOROSHI_CONSOLE_LONG=true adds widths, themes and dialogs;
 * NOROSHI_CONSOLE_PICTURES=FOLDER saves screenshots.
 */

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'

import { button, LONG, shopConsole } from '../lib/console.mjs'

const shop = shopConsole()
const { visit } = shop

const everyPage = () => ({
  overview: '', search: 'search', hits: 'search?q=news', nothing: 'search?q=nothing-has-this-id', devices: 'devices', notifications: 'notifications', 'filtered-notifications': 'notifications?user=user-2', 'user-notifications': 'user?id=user-2&tab=notifications', 'filtered-devices': 'devices?token=usable', device: 'device?id=iphone-002',
  'device-topics': 'device?id=iphone-002&tab=topics', 'device-permission': 'device?id=iphone-002&tab=permission', evil: 'device?id=evil.device',
  user: 'user?id=user-2', items: 'user?id=user-2&tab=items', tokens: 'user?id=user-2&tab=tokens', 'user-topics': 'user?id=user-2&tab=topics', preferences: 'user?id=user-2&tab=preferences',
  notification: `notification?id=${shop.ids.pushed}&device=iphone-004`, topics: 'topics', topic: 'topic?id=news', nodes: 'nodes',
  campaigns: 'campaigns', campaign: `campaign?id=${shop.ids.campaign}`, variants: `campaign?id=${shop.ids.variants}`, draft: `campaign?id=${shop.ids.draft}`, compose: 'new-campaign',
  channels: 'channels', 'device-variants': 'device?id=iphone-002&tab=variants', activities: 'activities', activity: 'activity?id=order-17&device=iphone-002', experiments: 'experiments', notices: 'notices',
  settings: 'settings', keys: 'keys', credentials: 'credentials', rules: 'rules', quotas: 'quotas', people: 'people', audit: 'audit',
  reference: 'reference', operation: 'reference?id=publish', 'operation-get': 'reference?id=devices', 'no-operation': 'reference?id=no-such-operation',
  settings: 'settings', keys: 'keys', credentials: 'credentials', rules: 'rules', quotas: 'quotas', people: 'people', audit: 'audit', doctor: 'doctor', queues: 'queues', configuration: 'configuration', profile: 'profile', endpoints: 'device?id=iphone-002&tab=endpoints',
  account: 'account', password: 'account?tab=password', totp: 'account?tab=totp', components: 'components', missing: 'no-such-page',
})

const looks = [['en', 'light', 1280], ['ja', 'dark', 360], ...(LONG ? [['en', 'dark', 1280], ['ja', 'light', 1280], ['en', 'light', 360]] : [])]
describe('every page is accessible', { concurrency: 2 }, () => {
  for (const [language, theme, width] of looks) {
    test(`${language}, ${theme}, ${width} px`, visit({ as: 'ada', language, theme, width }, async (visitor, page) => {
      for (const [name, path] of Object.entries(everyPage())) {
        const there = `${path}${path.includes('?') ? '&' : '?'}app=dev`
        if (name === 'missing') {
          await visitor.go(there)
          await page.locator('.empty').waitFor()
        } else await visitor.visit(there)
        await visitor.checkAccess(name)
        await visitor.checkWidth(name)
        await visitor.picture(name)
      }
      await visitor.context.clearCookies()
      await visitor.go('')
      await page.locator('input[type=password]').waitFor()
      await visitor.checkAccess('log-in')
      await visitor.picture('log-in')
    }))
  }
})

for (const [theme, width] of LONG ? [['light', 1280], ['dark', 360]] : [['dark', 1280]]) {
  test(`dialogs and menus are accessible: ${theme}, ${width} px`, visit({ as: 'ada', theme, width }, async (visitor, page) => {
    const dialogs = [
      ['keys', 'Create key'], ['credentials', 'Add credential'], ['rules', 'Change'], ['experiments', 'New experiment'], ['notices', 'New notice'],
      ['people', 'Invite'], ['user?id=user-2', 'Test message'], ['user?id=user-2&tab=preferences', 'Change'], ['quotas', 'Change: devices'],
      ...(LONG ? [['user?id=user-2', 'Revoke access'], ['nodes', 'Start drain'], ['credentials', 'Test'], ['credentials', 'Restore tokens'], ['activity?id=order-17', 'Update']] : []),
    ]
    for (const [path, name] of dialogs) {
      await visitor.visit(`${path}${path.includes('?') ? '&' : '?'}app=dev`)
      await button(page, name).first().click()
      await page.locator('dialog[open]').waitFor()
      assert.ok(await page.evaluate(() => document.querySelector('dialog[open]').contains(document.activeElement)), `${name}: the focus is in the dialog`)
      await visitor.checkAccess(`dialog ${name}`)
      await visitor.picture(`dialog-${name.toLowerCase().replaceAll(/[^a-z]+/g, '-')}`)
      await page.keyboard.press('Escape')
      await page.locator('dialog[open]').waitFor({ state: 'detached' })
      assert.equal(await page.evaluate(() => document.activeElement?.tagName), 'BUTTON', `${name}: the focus returns`)
    }
    await page.keyboard.press('Control+k')
    await page.locator('dialog[open]').waitFor()
    await visitor.checkAccess('palette')
    await visitor.picture('palette')
    await page.keyboard.press('Escape')
    await page.locator('dialog[open]').waitFor({ state: 'detached' })
    await page.getByRole('button', { name: /^Account of/ }).click()
    await page.getByRole('menu').waitFor()
    await visitor.checkAccess('account menu')
    await visitor.picture('account-menu')
  }))
}
