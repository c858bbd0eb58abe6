/**
 * The web console in Chromium: what people do, every page under axe, hostile names, and the strict policy, each violation
 * of which fails a test. NOROSHI_CONSOLE_LONG=true adds widths, themes and dialogs; NOROSHI_CONSOLE_PICTURES=FOLDER saves
 * screenshots.
 */

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { ClusterNode, hasFakeTime } from '../lib/cluster.mjs'
import { checkBuild, hasBrowser, launch, originOf, PASSWORD, person, Visitor } from '../lib/console.mjs'
import { DevPush } from '../lib/push.mjs'
import { openShop, XSS } from '../lib/shop.mjs'
import { totp } from '../lib/totp.mjs'
import { until } from '../lib/until.mjs'

const LONG = process.env.NOROSHI_CONSOLE_LONG === 'true'

let browser, ids, node, push
const people = {}

before(async () => {
  if (!hasBrowser) return
  push = await DevPush.start()
  node = await push.node({ services: ['apns', 'fcm'] })
  await checkBuild(node)
  ids = await openShop(node, push)
  browser = await launch()
  const add = async (key, ...described) => (people[key] = await person(node, ...described))
  await add('ada', 'ada@example.com', 'Ada Lovelace', ['*', 'owner'])
  await add('vera', 'vera@example.com', 'Vera Rubin', ['dev', 'viewer'])
  await add('sam', 'sam@example.com', 'Sam Carter', ['dev', 'support'])
  await add('mika', 'mika@example.com', '佐藤 美佳', ['shop', 'author'], ['dev', 'author'])
  await add('olga', 'olga@example.com', 'Olga Ladyzhenskaya', ['shop', 'owner'])
})
after(async () => {
  await browser?.close()
  await node?.stop()
  await push?.stop()
})

/** Opens a window of the person `as`, and checks at the end that the page reported no fault. */
const visit = (options, use) => async (t) => {
  if (!hasBrowser) {
    assert.ok(!process.env.CI, 'no Chromium (Debian package chromium)')
    return t.skip('no Chromium (Debian package chromium)')
  }
  const visitor = await Visitor.open(browser, originOf(node), { ...options, as: people[options.as] })
  await use(visitor, visitor.page)
  await visitor.close()
}
const button = (page, name) => page.getByRole('button', { name, exact: true })
const heading = (page, name) => page.getByRole('heading', { level: 1, name })

const everyPage = () => ({
  overview: '', search: 'search', hits: 'search?q=news', nothing: 'search?q=nothing-has-this-id', devices: 'devices', device: 'device?id=iphone-002',
  'device-topics': 'device?id=iphone-002&tab=topics', 'device-permission': 'device?id=iphone-002&tab=permission', evil: 'device?id=evil.device',
  user: 'user?id=user-2', items: 'user?id=user-2&tab=items', tokens: 'user?id=user-2&tab=tokens', 'user-topics': 'user?id=user-2&tab=topics', preferences: 'user?id=user-2&tab=preferences',
  notification: `notification?id=${ids.pushed}&device=iphone-004`, topics: 'topics', topic: 'topic?id=news', nodes: 'nodes',
  campaigns: 'campaigns', campaign: `campaign?id=${ids.campaign}`, variants: `campaign?id=${ids.variants}`, draft: `campaign?id=${ids.draft}`, compose: 'new-campaign',
  channels: 'channels', 'device-variants': 'device?id=iphone-002&tab=variants', activities: 'activities', activity: 'activity?id=order-17&device=iphone-002', experiments: 'experiments', notices: 'notices',
  settings: 'settings', keys: 'keys', credentials: 'credentials', rules: 'rules', quotas: 'quotas', people: 'people', audit: 'audit',
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

for (const [language, words] of [
  ['en', { overview: 'Overview', user: 'user-2', search: 'Search by id', campaigns: 'Campaigns', commands: 'Commands', help: 'Keyboard shortcuts' }],
  ...(LONG ? [['ja', { overview: '概要', user: 'user-2', search: 'ID で検索', campaigns: 'キャンペーン', commands: 'コマンド', help: 'キーボードショートカット' }]] : []),
]) {
  test(`log-in, search and palette by keyboard only: ${language}`, visit({ language }, async (visitor, page) => {
    await visitor.go('')
    await page.locator('input[type=email]').waitFor()
    // The first field has the focus.
    await page.waitForFunction(() => document.activeElement?.type === 'email')
    await page.keyboard.type('ada@example.com')
    await page.keyboard.press('Tab')
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press('Enter')
    await heading(page, words.overview).waitFor()

    await page.keyboard.press('/')
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), words.search)
    await page.keyboard.type('user-2')
    await page.keyboard.press('Enter')
    await heading(page, words.user).waitFor()

    // A tab list: arrows move inside, one Tab leaves it.
    await page.locator('[role=tab][aria-selected=true]').focus()
    await page.keyboard.press('ArrowRight')
    assert.equal(await page.locator('[role=tab]').nth(1).getAttribute('aria-selected'), 'true')

    await page.locator('body').evaluate((body) => body.ownerDocument.activeElement.blur())
    await page.keyboard.press('g')
    await page.keyboard.press('c')
    await heading(page, words.campaigns).waitFor()

    await page.keyboard.press('Control+k')
    await page.keyboard.type(words.overview)
    await page.keyboard.press('Enter')
    await heading(page, words.overview).waitFor()

    await page.keyboard.press('?')
    await page.getByRole('dialog', { name: words.help }).waitFor()
    await visitor.picture('shortcuts')
    await page.keyboard.press('Escape')

    // The skip link is the first stop of a new page.
    await visitor.visit('devices?app=dev')
    await page.keyboard.press('Tab')
    await page.keyboard.press('Enter')
    assert.equal(await page.evaluate(() => document.activeElement.id), 'content')
  }))
}

test('an invitation, a second factor, a recovery code, and a one-time link', visit({}, async (visitor, page) => {
  const email = 'tom@example.com'
  const { code, stdout, stderr } = await node.cli('people', 'invite', email, '--role', 'operator', '--app', 'dev')
  assert.equal(code, 0, stderr)
  const link = /http:\S+#token=\S+/.exec(stdout)[0]
  await page.goto(link)
  await page.getByLabel('Name').fill('Tom Kilburn')
  await page.getByLabel('New password').fill(PASSWORD)
  await visitor.checkAccess('invitation')
  await button(page, 'Accept and log in').click()
  await heading(page, 'Overview').waitFor()
  assert.ok(!page.url().includes('token'), 'the token has left the address')
  assert.equal(await page.evaluate(() => document.cookie), '', 'no script sees the session')

  await visitor.visit('account?tab=totp')
  await button(page, 'Turn on').click()
  await page.getByRole('img', { name: 'QR code for the authenticator app' }).waitFor()
  await visitor.checkAccess('QR code')
  await visitor.picture('totp')
  const secret = await page.locator('dialog .id code').innerText()
  await page.getByLabel('Code from your authenticator app').fill(totp(secret))
  await button(page, 'Verify and turn on').click()
  const codes = (await page.getByRole('dialog', { name: 'Recovery codes' }).locator('pre').innerText()).split('\n')
  assert.equal(codes.length, 10)
  await button(page, 'I have stored the codes').click()

  const again = async (answer) => {
    await page.getByRole('button', { name: /^Account of/ }).click()
    await page.getByRole('menuitem', { name: 'Log out' }).click()
    await visitor.logIn(email)
    await page.getByLabel('Code from your authenticator app').fill(answer)
    await page.keyboard.press('Enter')
  }
  await again('000000')
  await page.getByRole('alert').filter({ hasText: 'the code is wrong' }).waitFor()
  await visitor.checkAccess('second factor')
  // Each code works once: that of the next half minute is a new one.
  await page.getByLabel('Code from your authenticator app').fill(totp(secret, Date.now() + 30_000))
  await page.keyboard.press('Enter')
  await heading(page, 'Overview').waitFor()
  await again(codes[0])
  await heading(page, 'Overview').waitFor()
  await visitor.visit('account?tab=totp')
  await button(page, 'Turn off').click()
  await page.locator('dialog').getByRole('button', { name: 'Turn off' }).click()
  await button(page, 'Turn on').waitFor()

  // The invitation works once.
  await page.goto(link)
  await page.getByLabel('Name').fill('Somebody else')
  await page.getByLabel('New password').fill(PASSWORD)
  await button(page, 'Accept and log in').click()
  await page.getByRole('alert').getByText('was used before').waitFor()
}))

test('the link of a development node logs in once', visit({}, async (visitor, page) => {
  const link = /for one log-in: (\S+)/.exec(node.log(200))[1]
  await page.goto(link)
  await heading(page, 'Overview').waitFor()
  await page.getByRole('button', { name: 'Account of developer@localhost' }).waitFor()
  await page.goto('about:blank')
  await page.goto(link)
  await page.getByRole('alert').getByText('was used before').waitFor()
  await visitor.checkAccess('a link that was used')
}))

test('people: invite, log-in link, roles, disable, remove', visit({ as: 'ada' }, async (visitor, page) => {
  const dialog = page.locator('dialog')
  const row = (text) => page.getByRole('row').filter({ hasText: text })
  const actions = async (email, action) => {
    await button(page, `Actions for ${email}`).click()
    await page.getByRole('menuitem', { name: action }).click()
  }
  await visitor.visit('people?app=dev')
  await button(page, 'Invite').click()
  await dialog.getByLabel('E-mail').fill('nia@example.com')
  await dialog.getByRole('button', { name: 'Invite' }).click()
  const invitation = await page.getByRole('dialog', { name: 'Invitation created' }).locator('pre').innerText()
  assert.ok(invitation.startsWith(`${originOf(node)}/console/invitation#token=`), invitation)
  await page.keyboard.press('Escape')
  await row('nia@example.com').waitFor()
  await button(page, 'Withdraw: nia@example.com').click()
  await dialog.getByRole('button', { name: 'Withdraw' }).click()
  await row('nia@example.com').waitFor({ state: 'detached' })

  const bob = await person(node, 'bob@example.com', 'Bob', ['dev', 'viewer'])
  await visitor.visit('people?app=dev')
  await actions(bob.email, 'Create log-in link')
  await dialog.getByRole('button', { name: 'Create log-in link' }).click()
  const link = await page.getByRole('dialog', { name: 'Create log-in link' }).locator('pre').innerText()
  await page.keyboard.press('Escape')
  const other = await Visitor.open(browser, originOf(node))
  await other.page.goto(link)
  await heading(other.page, 'Overview').waitFor()

  await actions(bob.email, 'Change roles')
  await dialog.getByLabel('Role', { exact: true }).selectOption('support')
  await button(page, 'Add role').click()
  await dialog.getByLabel('App', { exact: true }).nth(1).selectOption('*')
  await button(page, 'Save').click()
  await row(bob.email).getByText('dev: Support').waitFor()
  await row(bob.email).getByText('all apps: Viewer').waitFor()
  await actions(bob.email, 'Change roles')
  await button(page, 'Remove all apps').click()
  await button(page, 'Save').click()
  await row(bob.email).getByText('all apps: Viewer').waitFor({ state: 'detached' })

  await actions(bob.email, 'Disable')
  await row(bob.email).getByText('disabled').waitFor()
  await other.go('')
  await heading(other.page, 'Log in').waitFor()
  await other.close()
  await actions(bob.email, 'Enable')
  await row(bob.email).getByText('disabled').waitFor({ state: 'detached' })
  await actions(bob.email, 'Remove person')
  await dialog.getByLabel(`Type ${bob.email} to confirm`).fill(bob.email)
  await dialog.getByRole('button', { name: 'Remove' }).click()
  await row(bob.email).waitFor({ state: 'detached' })
}))

test('an owner of one app decides who works on it', visit({ as: 'olga' }, async (visitor, page) => {
  const dialog = page.locator('dialog')
  const row = (text) => page.getByRole('row').filter({ hasText: text })
  await visitor.visit('people')
  await row('mika@example.com').getByText('Author').waitFor()
  assert.equal(await row('ada@example.com').count(), 0, 'only people of the app')
  await button(page, 'Add person').click()
  await visitor.checkAccess('add a person')
  await dialog.getByLabel('E-mail').fill('vera@example.com')
  await dialog.getByRole('button', { name: 'Add person' }).click()
  await row('vera@example.com').getByText('Viewer').waitFor()
  await button(page, 'Actions for vera@example.com').click()
  await page.getByRole('menuitem', { name: 'Change role' }).click()
  await dialog.getByLabel('Role').selectOption('operator')
  await button(page, 'Save').click()
  await row('vera@example.com').getByText('Operator').waitFor()
  await button(page, 'Actions for vera@example.com').click()
  await page.getByRole('menuitem', { name: 'Remove from the app' }).click()
  await dialog.getByRole('button', { name: 'Remove from the app' }).click()
  await row('vera@example.com').waitFor({ state: 'detached' })
  await button(page, 'Add person').click()
  await dialog.getByLabel('E-mail').fill('new@example.com')
  await dialog.getByRole('button', { name: 'Add person' }).click()
  await page.getByRole('dialog', { name: 'Invitation created' }).locator('pre').getByText('/console/invitation#token=').waitFor()
  await page.keyboard.press('Escape')
  // The audit log of the app, with the change of the role.
  await visitor.visit('audit')
  await row('POST /v1/apps/{app}/people').first().waitFor()
}))

test('a viewer sees everything and why actions are not offered', visit({ as: 'vera' }, async (visitor, page) => {
  await visitor.visit('')
  assert.equal(await page.getByRole('link', { name: 'People' }).count(), 0)
  assert.equal(await page.getByRole('link', { name: 'Nodes' }).count(), 0)
  await visitor.visit('user?app=dev&id=user-2')
  const revoke = button(page, 'Revoke access')
  assert.equal(await revoke.getAttribute('aria-disabled'), 'true')
  await revoke.focus()
  await page.getByRole('tooltip').filter({ hasText: 'support users' }).first().waitFor()
  await page.keyboard.press('Enter')
  assert.equal(await page.locator('dialog[open]').count(), 0)
  await visitor.picture('viewer')
  await visitor.go('people?app=dev')
  await page.getByText('You have no access to this page').waitFor()
  const status = (path) => page.evaluate(async (to) => (await fetch(`/console/api${to}`)).status, path)
  assert.deepEqual([await status('/v1/people'), await status('/v1/apps/dev/audit'), await status('/v1/apps/shop')], [403, 403, 404])
}))

test('a test message to a user, and its story on a device', visit({ as: 'sam' }, async (visitor, page) => {
  // The role "support" may send to users and devices.
  await visitor.visit('device?app=dev&id=iphone-004')
  await button(page, 'Test message').click()
  await page.locator('dialog').getByLabel('Text').fill('Do you see this?')
  await page.locator('dialog').getByLabel('Push').selectOption('always')
  await page.locator('dialog').getByRole('button', { name: 'Send' }).click()
  await page.getByRole('link', { name: 'Open the notification' }).click()
  await page.locator('.timeline').getByText('The push service answered 200').waitFor()
  await page.getByText('Request and response').first().click()
  await page.getByRole('region', { name: 'Rendered payload' }).filter({ hasText: 'Do you see this?' }).waitFor()
  await visitor.picture('story')
}))

test('a campaign: draft, count, start, pause, abort', visit({ as: 'mika' }, async (visitor, page) => {
  await visitor.visit('new-campaign?app=dev')
  await page.getByLabel('Name').fill('Weekend')
  await page.getByLabel('Send to').selectOption('topic')
  await page.getByLabel('Topic', { exact: true }).fill('news')
  await page.getByLabel('Title').fill('Weekend deals')
  await page.getByLabel('Text').fill('From Friday')
  await page.locator('.preview.ios').getByText('Weekend deals').waitFor()
  // One device per second, so that the campaign is still running when the test pauses it.
  await page.getByLabel('Maximum rate per second').fill('1')
  await button(page, 'Count recipients').click()
  await page.getByRole('status').getByText('Devices').waitFor()
  await visitor.checkAccess('composer with a count')
  await button(page, 'Save draft').click()
  await heading(page, 'Weekend').waitFor()
  await button(page, 'Start campaign').click()
  await page.locator('dialog').getByRole('button', { name: 'Start campaign' }).click()
  await button(page, 'Pause').click()
  await button(page, 'Resume').waitFor()
  await button(page, 'Abort').click()
  await page.locator('dialog').getByRole('button', { name: 'Abort' }).click()
  await button(page, 'Delete').waitFor()
  await page.locator('h1').getByText('aborted').waitFor()
}))

test('support: preferences, tokens, items, revocation and deletion', visit({ as: 'sam' }, async (visitor, page) => {
  const dialog = page.locator('dialog')
  const done = (text) => page.locator('.toast').filter({ hasText: text }).first().waitFor()
  await visitor.visit('user?app=dev&id=user-6&tab=preferences')
  await button(page, 'Change').click()
  await dialog.getByLabel('Push').uncheck()
  await dialog.getByLabel('Muted topics').fill('offers\nsport/football')
  await dialog.getByLabel('Quiet hours').check()
  await dialog.getByLabel('Time zone').fill('Asia/Tokyo')
  await button(page, 'Add category').click()
  await dialog.getByLabel('Name').fill('promo')
  await dialog.getByLabel('Maximum per day').fill('2')
  await button(page, 'Save').click()
  await page.locator('.facts').getByText('22:00–07:00 Asia/Tokyo').waitFor()
  await page.locator('.facts').getByText('Live, Inbox').waitFor()
  await page.locator('.facts').getByText('at most 2 a day').waitFor()
  await visitor.picture('preferences-saved')
  await button(page, 'Change').click()
  await dialog.getByLabel('Time zone').fill('Mars/Olympus')
  await button(page, 'Save').click()
  // The server's own words, the field and the request id.
  await dialog.getByRole('alert').getByText('quiet_hours.timezone').waitFor()
  await dialog.getByRole('alert').getByText('Request id').waitFor()
  await page.keyboard.press('Escape')
  await button(page, 'Delete preferences').click()
  await dialog.getByRole('button', { name: 'Delete preferences' }).click()
  await page.getByText('No preferences').waitFor()

  await page.getByRole('tab', { name: 'Push tokens' }).click()
  await page.getByRole('button', { name: /^Actions for/ }).first().click()
  await page.getByRole('menuitem', { name: 'Remove the token' }).click()
  await dialog.getByRole('button', { name: 'Remove' }).click()
  await done('Token removed')
  await page.getByText('No push token').first().waitFor()

  await button(page, 'Revoke access').click()
  await dialog.getByRole('button', { name: 'Revoke access' }).click()
  await done('Access revoked')

  await visitor.visit('user?app=dev&id=user-2&tab=items')
  await page.getByText('Your order has shipped').first().waitFor()
  await button(page, 'Delete all items').click()
  await dialog.getByRole('button', { name: 'Delete all items' }).click()
  await page.getByText('No items').waitFor()

  await visitor.visit('device?app=dev&id=pixel-129&tab=permission')
  await page.getByLabel('Topic', { exact: true }).fill('staff/news')
  await button(page, 'Check').click()
  await page.locator('.facts').getByText('staff/#').waitFor()
  await button(page, 'Revoke tokens').click()
  await dialog.getByRole('button', { name: 'Revoke tokens' }).click()
  await done('Tokens revoked')
  await button(page, 'Delete').click()
  const confirm = dialog.getByRole('button', { name: 'Delete' })
  assert.equal(await confirm.getAttribute('aria-disabled'), 'true', 'the name must be typed first')
  await dialog.getByLabel('Type pixel-129 to confirm').fill('pixel-129')
  await confirm.click()
  await heading(page, 'Devices').waitFor()
}))

test('administration: experiment, notice, rules, quotas, credentials, keys', visit({ as: 'ada' }, async (visitor, page) => {
  const dialog = page.locator('dialog')
  const done = (text) => page.locator('.toast').filter({ hasText: text }).first().waitFor()
  const row = (text) => page.getByRole('row').filter({ hasText: text })
  await visitor.visit('experiments?app=dev')
  await button(page, 'New experiment').click()
  await dialog.getByLabel('Name').first().fill('price-page')
  await dialog.getByLabel('Data (JSON)').first().fill('{"columns": 3')
  await button(page, 'Save').click()
  await dialog.getByRole('alert').getByText('This is not valid JSON').waitFor()
  await dialog.getByLabel('Data (JSON)').first().fill('{"columns": 3}')
  await button(page, 'Save').click()
  await row('price-page').getByText('running').waitFor()
  await button(page, 'Actions for price-page').click()
  await page.getByRole('menuitem', { name: 'Stop for everyone' }).click()
  await dialog.getByRole('button', { name: 'Stop for everyone' }).click()
  await row('price-page').getByText('stopped').waitFor()
  await button(page, 'Actions for price-page').click()
  await page.getByRole('menuitem', { name: 'Change' }).click()
  await dialog.getByLabel('Weight').first().fill('80')
  await button(page, 'Save').click()
  await row('price-page').getByText('control 61.5%').waitFor()
  await row('price-page').getByText('stopped').waitFor()
  await button(page, 'Actions for price-page').click()
  await page.getByRole('menuitem', { name: 'End and archive' }).click()
  await dialog.getByRole('button', { name: 'End and archive' }).click()
  await row('price-page').waitFor({ state: 'detached' })
  await page.getByLabel('Show archived experiments').check()
  await row('price-page').getByText('archived').waitFor()

  await visitor.visit('channels?app=dev')
  await button(page, 'New channel').click()
  await dialog.getByLabel('Name').fill('match-8')
  await dialog.getByRole('button', { name: 'New channel' }).click()
  await row('match-8').waitFor()
  await button(page, 'Actions for match-8').click()
  await page.getByRole('menuitem', { name: 'Bind to a topic' }).click()
  await dialog.getByLabel('Topic').fill('offers')
  await dialog.getByRole('button', { name: 'Save' }).click()
  await row('match-8').getByText('offers').waitFor()
  await button(page, 'Actions for match-8').click()
  await page.getByRole('menuitem', { name: 'Delete the channel' }).click()
  await dialog.getByLabel('Type match-8 to confirm').fill('match-8')
  await dialog.getByRole('button', { name: 'Delete' }).click()
  await row('match-8').waitFor({ state: 'detached' })

  await visitor.visit('notices?app=dev')
  await button(page, 'New notice').click()
  await dialog.getByLabel('Name').fill('network')
  await dialog.getByLabel('Title').fill('Network maintenance')
  await dialog.getByLabel('Starts').fill('2030-01-01T10:00')
  await dialog.getByLabel('Ends').fill('2030-01-01T11:00')
  await button(page, 'Add language').click()
  await dialog.getByLabel('Language tag').fill('ja')
  await dialog.getByLabel('Title').nth(1).fill('ネットワーク保守')
  await button(page, 'Save').click()
  await row('Network maintenance').getByText('ja', { exact: true }).waitFor()

  await visitor.visit('rules?app=dev')
  await button(page, 'Change').click()
  await button(page, 'Add rule').first().click()
  await dialog.getByLabel('Topic', { exact: true }).nth(3).fill('vip/#')
  await button(page, 'Move vip/# up').click()
  await button(page, 'Save').click()
  await page.locator('.rules li').nth(2).getByText('vip/#').waitFor()

  await visitor.visit('quotas?app=dev')
  await button(page, 'Change: topics').click()
  await dialog.getByLabel('Limit', { exact: true }).last().fill('2000')
  await button(page, 'Save').click()
  await row('topics').first().getByText('2,000').waitFor()
  await button(page, 'Restore defaults').click()
  await dialog.getByRole('button', { name: 'Restore defaults' }).click()
  await done('Defaults restored')

  await visitor.visit('credentials?app=dev')
  await page.getByRole('article', { name: 'APNs' }).getByRole('button', { name: 'Test' }).click()
  await dialog.getByLabel('Device').fill('iphone-004')
  await dialog.getByRole('button', { name: 'Test' }).click()
  await dialog.getByText('accepted', { exact: true }).waitFor()
  await visitor.picture('credential-tested')
  await page.keyboard.press('Escape')
  await page.getByRole('article', { name: 'FCM' }).getByRole('button', { name: 'Restore tokens' }).click()
  await dialog.getByRole('button', { name: 'Restore tokens' }).click()
  await done('0 tokens restored')
  await button(page, 'Add credential').click()
  await dialog.getByLabel('Push service').selectOption('webhook')
  await dialog.getByLabel('Provider').fill('sms')
  await dialog.getByLabel('URL').fill('https://localhost:1/sms')
  await button(page, 'Generate: Signing secret').click()
  await visitor.checkAccess('credential of a webhook')
  await dialog.getByRole('button', { name: 'Add credential' }).click()
  await page.getByRole('article', { name: 'Webhook · sms' }).waitFor()
  await page.getByRole('article', { name: 'Webhook · sms' }).getByRole('button', { name: 'Remove' }).click()
  await dialog.getByRole('button', { name: 'Remove' }).click()
  await done('Credential removed')
  await button(page, 'Add credential').click()
  await dialog.getByLabel('Push service').selectOption('webpush')
  await dialog.getByLabel('Contact').fill('mailto:ops@example.com')
  await button(page, 'Generate: VAPID private key').click()
  await until('a key', async () => (await dialog.getByLabel('VAPID private key').inputValue()).length === 43)
  await dialog.getByRole('button', { name: 'Add credential' }).click()
  await page.getByRole('article', { name: 'Web Push' }).waitFor()

  await visitor.visit('keys?app=dev')
  await button(page, 'Revoke: billing-service').click()
  await dialog.getByRole('button', { name: 'Revoke' }).click()
  await row('billing-service').waitFor({ state: 'detached' })

  await visitor.visit('settings?app=dev')
  await button(page, 'Change').click()
  await dialog.getByLabel('Essential categories').fill('security')
  await dialog.getByRole('button', { name: 'Save' }).click()
  await page.locator('.facts').getByText('security').waitFor()
  await button(page, 'New app').click()
  await dialog.getByLabel('Name').fill('trial')
  await dialog.getByRole('button', { name: 'New app' }).click()
  await heading(page, 'API keys').waitFor()
  await page.getByRole('button', { name: /^App trial/ }).waitFor()
  await visitor.visit('settings?app=trial')
  await button(page, 'Delete the app').click()
  await dialog.getByLabel('Type trial to confirm').fill('trial')
  await dialog.getByRole('button', { name: 'Delete' }).click()
  await page.getByRole('button', { name: /^App dev/ }).waitFor()

  // The audit log has all of it, with the values.
  await visitor.visit('audit?app=dev')
  await page.getByLabel('Action begins with').fill('PATCH /v1/apps/{app}/quotas')
  await button(page, 'Filter').click()
  await page.locator('tbody').getByRole('button', { name: 'ada@example.com', exact: true }).first().click()
  await button(page, 'Details: PATCH /v1/apps/{app}/quotas').first().click()
  await dialog.getByRole('region', { name: 'After' }).getByText('2000').waitFor()
  await visitor.checkAccess('audit entry')
  await visitor.picture('audit-entry')
}))

test('operation: drain, activity', visit({ as: 'ada' }, async (visitor, page) => {
  const dialog = page.locator('dialog')
  await visitor.visit('nodes?app=dev')
  await button(page, 'Start drain').click()
  await dialog.getByLabel('Spread over').fill('1h')
  await dialog.getByLabel('Deadline').fill('2h')
  await dialog.getByRole('button', { name: 'Start drain' }).click()
  await button(page, 'Cancel drain').click()
  await dialog.getByRole('button', { name: 'Cancel drain' }).click()
  await button(page, 'Start drain').waitFor()

  await visitor.visit('activity?app=dev&id=order-18')
  await button(page, 'Update').click()
  await dialog.getByLabel('State').fill('{"step": "delivered"}')
  await dialog.getByRole('button', { name: 'Update' }).click()
  await page.getByRole('region', { name: 'State' }).getByText('delivered').waitFor()
  await button(page, 'End').click()
  await dialog.getByRole('button', { name: 'End' }).click()
  await page.locator('h1').getByText('ended').waitFor()
}))

test('lists page by cursor and hold one page at a time', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('devices?app=dev')
  await page.locator('tbody tr').first().waitFor()
  assert.equal(await page.locator('tbody tr').count(), 50)
  const first = await page.locator('tbody tr').first().innerText()
  await button(page, 'Next').click()
  await page.getByText('Page 2').waitFor()
  await until('the second page', async () => (await page.locator('tbody tr').count()) === 50 && (await page.locator('tbody tr').first().innerText()) !== first)
  await button(page, 'Previous').click()
  await page.getByText('Page 1').waitFor()
  await until('the first page again', async () => (await page.locator('tbody tr').first().innerText()).split('\t')[0] === first.split('\t')[0])
}))

test('names from devices, users and providers are text, never markup', visit({ as: 'ada' }, async (visitor, page) => {
  await person(node, 'eve@example.com', XSS, ['dev', 'viewer'])
  const draft = { name: `Draft ${XSS}`.slice(0, 100), audience: { everyone: true }, message: { notification: { title: XSS } }, start: false }
  const { id } = await node.api.call('POST', '/v1/campaigns', { body: draft })
  const places = [
    `user?app=dev&id=${encodeURIComponent(XSS)}`, `user?app=dev&tab=items&id=${encodeURIComponent(XSS)}`, 'device?app=dev&id=evil.device', 'topic?app=dev&id=news',
    `campaign?app=dev&id=${id}`, 'activity?app=dev&id=order-17', 'people?app=dev', 'overview?app=dev', `search?app=dev&q=${encodeURIComponent(XSS)}`, 'campaigns?app=dev',
  ]
  for (const path of places) {
    await visitor.visit(path)
    await until(`${path} shows the text`, async () => (await page.locator('#content').innerText()).includes('<img src=x'))
    assert.equal(await page.locator('#content img, #content script').count(), 0, path)
  }
}))

test('settings last, and only they are stored', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('')
  await page.getByRole('button', { name: /^Account of/ }).click()
  await page.getByRole('menuitemradio', { name: 'Theme: dark' }).click()
  await page.getByRole('button', { name: /^Account of/ }).click()
  await page.getByRole('menuitemradio', { name: '日本語' }).click()
  await heading(page, '概要').waitFor()
  await page.reload()
  await heading(page, '概要').waitFor()
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark')
  assert.deepEqual(JSON.parse(await page.evaluate(() => JSON.stringify({ ...localStorage }))), { 'noroshi.console': JSON.stringify({ language: 'ja', theme: 'dark', utc: false }) })
  assert.equal(await page.evaluate(() => sessionStorage.length), 0)
}))

test('a session that ended elsewhere leads to the log-in, and back to the same page', visit({}, async (visitor, page) => {
  await visitor.logIn('vera@example.com', 'topics?app=dev')
  await page.locator('tbody tr').first().waitFor()
  const elsewhere = await Visitor.open(browser, originOf(node), { as: people.vera })
  await elsewhere.visit('account')
  const others = elsewhere.page.getByRole('button', { name: /^End session/ }).and(elsewhere.page.locator(':not([aria-disabled])'))
  await others.first().click()
  await elsewhere.page.locator('dialog').getByRole('button', { name: 'End session' }).click()
  await elsewhere.page.locator('.toast').filter({ hasText: 'Session ended' }).waitFor()
  await elsewhere.close()
  await page.getByRole('link', { name: 'Devices' }).click()
  await heading(page, 'Log in').waitFor()
  await page.locator('input[type=email]').fill('vera@example.com')
  await page.locator('input[type=password]').fill(PASSWORD)
  await page.keyboard.press('Enter')
  await heading(page, 'Devices').waitFor()
}))

test('a dangerous action asks for the password 10 minutes after the log-in; then the app is gone', async (t) => {
  if (!hasBrowser || !hasFakeTime()) return t.skip('needs Chromium and libfaketime (scripts/setup engines)')
  const own = await ClusterNode.launch({ name: 'clock', roles: ['api', 'gateway', 'sender'], fakeTime: true })
  const ada = await person(own, 'ada@example.com', 'Ada Lovelace', ['*', 'owner'])
  own.jumpClock(660)
  const visitor = await Visitor.open(browser, originOf(own), { as: ada })
  const { page } = visitor
  const dialog = page.locator('dialog')
  await visitor.visit('keys?app=dev')
  await button(page, 'Create key').click()
  await dialog.getByLabel('Name').fill('reports')
  await dialog.getByRole('button', { name: 'Create key' }).click()
  const confirm = page.getByRole('dialog', { name: 'Confirm your log-in' })
  await confirm.waitFor()
  await visitor.checkAccess('confirm the log-in')
  await visitor.picture('confirm')
  await confirm.getByLabel('Password').fill('wrong')
  await page.keyboard.press('Enter')
  await confirm.getByRole('alert').waitFor()
  await confirm.getByLabel('Password').fill(PASSWORD)
  await page.keyboard.press('Enter')
  await page.getByRole('dialog', { name: 'Key created' }).waitFor()
  assert.ok((await page.locator('dialog pre').innerText()).length > 20)
  await button(page, 'I have stored the key').click()
  await page.getByText('reports').waitFor()

  await visitor.visit('settings?app=dev')
  await button(page, 'Delete the app').click()
  await dialog.getByLabel('Type dev to confirm').fill('dev')
  await dialog.getByRole('button', { name: 'Delete' }).click()
  await heading(page, 'No app yet').waitFor()
  await visitor.checkAccess('no app')
  await page.getByRole('link', { name: 'People' }).click()
  await heading(page, 'People').waitFor()
  await page.getByRole('link', { name: 'Devices' }).click()
  await button(page, 'New app').click()
  await dialog.getByLabel('Name').fill('first')
  await dialog.getByRole('button', { name: 'New app' }).click()
  await heading(page, 'API keys').waitFor()
  await visitor.close()
  await own.stop()
})
