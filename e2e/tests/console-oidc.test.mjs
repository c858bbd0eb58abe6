/** Log-in to the console with a real OpenID provider, as people do it in Chromium. */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { button, hasBrowser, heading, launch, originOf, person, Visitor } from '../lib/console.mjs'
import { freePort, Node } from '../lib/node.mjs'
import { flags, OpenIdProvider } from '../lib/oidc.mjs'

const MAPPINGS = '[{ value = "admins", app = "*", role = "owner" }, { value = "helpers", app = "dev", role = "support" }]'
let provider, node, browser, olga

before(async () => {
  if (!hasBrowser) return
  const [port, closed] = [await freePort(), await freePort()]
  const scopes = 'openid email profile groups'
  node = await Node.start({
    args: [
      ...flags('corp', `http://localhost:${port}`, { title: 'Example Corp', scopes, mappings: MAPPINGS }),
      ...flags('gone', `http://localhost:${closed}`, { title: 'Closed Ltd', default_role: 'viewer' }),
    ],
  })
  provider = await OpenIdProvider.start(port, [`${originOf(node)}/console/api/v1/session/oidc/corp/callback`])
  Object.assign(provider.accounts, {
    ann: { email: 'ann@example.com', email_verified: true, name: 'Ann Example', groups: ['helpers'] },
    nora: { email: 'nora@example.com', email_verified: true, name: 'Nora', groups: ['cooks'] },
    ulla: { email: 'ulla@example.com', email_verified: false, name: 'Ulla', groups: ['admins'] },
    dora: { email: 'dora@example.com', email_verified: true, name: 'Dora', groups: ['helpers'] },
    olga: { email: 'olga@example.com', email_verified: true, name: 'Not Olga', groups: ['admins'] },
  })
  browser = await launch()
  olga = await person(node, 'olga@example.com', 'Olga', ['*', 'owner'])
})
after(async () => {
  await browser?.close()
  await provider?.stop()
  await node?.stop()
})

const visit = (options, use) => async (t) => {
  if (!hasBrowser) {
    assert.ok(!process.env.CI, 'no Chromium (Debian package chromium)')
    return t.skip('no Chromium (Debian package chromium)')
  }
  const visitor = await Visitor.open(browser, originOf(node), options)
  await use(visitor, visitor.page)
  await visitor.close()
}

/** At the provider. */
async function enter(page, account) {
  await page.getByRole('heading', { name: 'Provider: login' }).waitFor()
  await page.getByLabel('Account').fill(account)
  await page.getByRole('button', { name: 'Continue' }).click()
}

const logIn = (page) => page.getByRole('link', { name: /Example Corp/ }).click()
const logOut = async (page) => {
  await page.getByRole('button', { name: /^Account of/ }).click()
  await page.getByRole('menuitem', { name: 'Log out' }).click()
}

test('a first log-in, and a second one with other groups', visit({}, async (visitor, page) => {
  await visitor.go('devices?app=dev')
  await page.getByRole('link', { name: 'Log in with Example Corp' }).waitFor()
  await visitor.checkAccess('log-in with providers')
  await visitor.picture('log-in-providers')
  await logIn(page)
  await enter(page, 'ann')
  // The page where the log-in began, and no trace of it in the address or in scripts' reach.
  await heading(page, 'Devices').waitFor()
  assert.equal(page.url(), `${originOf(node)}/console/devices?app=dev`)
  assert.equal(await page.evaluate(() => document.cookie), '')
  const cookies = await visitor.context.cookies(`${originOf(node)}/console/api/v1/session/oidc`)
  assert.deepEqual(cookies.map(({ name, sameSite, httpOnly }) => [name, sameSite, httpOnly]), [['noroshi_session', 'Strict', true]])
  await page.goBack()
  assert.ok(!page.url().includes('code='), 'the callback is not in the history')

  await visitor.visit('account?app=dev')
  await page.getByText('dev: Support, by group').waitFor()
  await page.getByText('Example Corp', { exact: true }).waitFor()

  // The provider remembers the person, and has new groups.
  provider.accounts.ann.groups = ['admins']
  await logOut(page)
  await logIn(page)
  await page.getByRole('button', { name: 'Account of ann@example.com' }).waitFor()
  await visitor.visit('people?app=dev')
  const row = page.getByRole('row').filter({ hasText: 'ann@example.com' })
  await row.getByText('All apps: Owner, by group').waitFor()
  await row.getByText('Example Corp').waitFor()
  await visitor.checkAccess('people with providers')
  await visitor.picture('people-providers')
  await visitor.visit('audit?app=dev&scope=all')
  await page.getByText('GET /v1/session/oidc/{name}/callback').first().waitFor()
}))

for (const { language, ...texts } of [
  { language: 'en', denied: 'did not let you in', no_role: 'Example Corp knows you, but you have no role here', unverified_email: 'has not verified your e-mail address', email_taken: 'Another account has your e-mail address', expired: 'took too long', unavailable: 'Closed Ltd does not answer', disabled: 'Your account is disabled' },
  { language: 'ja', denied: 'ログインがキャンセルされました', no_role: 'ここでのロールがありません', unverified_email: 'メールアドレスが確認されていません', email_taken: 'アカウントが既にあります', expired: '時間がかかりすぎた', unavailable: 'Closed Ltd から正しい応答がありません', disabled: 'アカウントが無効' },
]) {
  test(`the page says why a log-in failed: ${language}`, visit({ language }, async (visitor, page) => {
    const says = (text) => page.getByRole('alert').filter({ hasText: text }).waitFor()
    const fresh = async () => {
      await visitor.context.clearCookies()
      await visitor.go('')
    }
    await fresh()
    await logIn(page)
    await page.getByRole('button', { name: 'Cancel' }).click()
    await says(texts.denied)
    await visitor.checkAccess('a log-in that was denied')
    await visitor.picture('log-in-denied')
    for (const [account, reason] of [['nora', 'no_role'], ['ulla', 'unverified_email'], ['olga', 'email_taken']]) {
      await fresh()
      await logIn(page)
      await enter(page, account)
      await says(texts[reason])
    }
    await fresh()
    await page.getByRole('link', { name: /Closed Ltd/ }).click()
    await says(texts.unavailable)
    await visitor.go('api/v1/session/oidc/corp/callback?code=x&state=y')
    await says(texts.expired)
    // What others write into the address does not appear on the page.
    await visitor.go('?log_in=Call+555-1234&provider=Evil')
    await page.getByRole('alert').waitFor()
    assert.ok(!(await page.locator('body').innerText()).includes('555-1234'))

    if (language === 'en') {
      await fresh()
      await logIn(page)
      await enter(page, 'dora')
      await page.getByRole('button', { name: 'Account of dora@example.com' }).waitFor()
      await disable('dora@example.com')
    }
    await fresh()
    await logIn(page)
    await enter(page, 'dora')
    await says(texts.disabled)
  }))
}

async function disable(email) {
  const cookie = `noroshi_session=${olga.cookie}`
  const call = async (path, options = {}) => (await fetch(`${originOf(node)}/console/api${path}`, { ...options, headers: { cookie, ...options.headers } })).json()
  const { csrf } = await call('/v1/session')
  const { id } = (await call('/v1/people')).people.find((one) => one.email === email)
  const changed = await call(`/v1/people/${id}`, { method: 'PATCH', headers: { 'noroshi-csrf': csrf, 'content-type': 'application/json' }, body: '{"disabled":true}' })
  assert.ok(changed.disabled_at, JSON.stringify(changed))
}

test('a dangerous action needs a new log-in at the provider', visit({}, async (visitor, page) => {
  provider.accounts.ann.groups = ['admins']
  await visitor.go('keys?app=dev')
  await logIn(page)
  await enter(page, 'ann')
  await heading(page, 'API keys').waitFor()
  await button(page, 'Create key').first().click()
  await page.locator('dialog').getByLabel('Name').fill('made-after-confirmation')
  await page.locator('dialog').getByRole('button', { name: 'Create key' }).click()
  const dialog = page.getByRole('dialog', { name: 'Confirm your log-in' })
  await dialog.getByText('Log in at Example Corp once more').waitFor()
  await visitor.checkAccess('confirm at the provider')
  await visitor.picture('confirm-provider')

  const confirm = async (account) => {
    const opened = page.waitForEvent('popup')
    await dialog.getByRole('button', { name: 'Log in again with Example Corp' }).click()
    const popup = await opened
    // The provider remembers the person and asks all the same.
    await enter(popup, account)
    return popup
  }
  const wrong = await confirm('nora')
  await dialog.getByRole('alert').filter({ hasText: 'Another person logged in at Example Corp' }).waitFor()
  await wrong.getByText('Close this window').waitFor()
  await wrong.close()
  const right = await confirm('ann')
  await dialog.waitFor({ state: 'detached' })
  if (!right.isClosed()) await right.waitForEvent('close')
  await page.getByRole('dialog', { name: 'Key created' }).waitFor()
  await button(page, 'I have stored the key').click()
  await page.getByText('made-after-confirmation').waitFor()
}))
