/**
 * The web console: API keys that expire, and the rotation of a push credential, with the strict fakes of the push services.
 */

import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { test } from 'node:test'

import { api } from '../lib/api.mjs'
import { button, shopConsole } from '../lib/console.mjs'
import { operator } from '../lib/operator.mjs'
import { until } from '../lib/until.mjs'

const shop = shopConsole()
const { visit } = shop
const DAY_MS = 86_400_000

const createKey = async (name, expiresAt) => {
  const answer = await operator(shop.node).raw('POST', '/v1/apps/dev/keys', { name, scopes: ['read'], expires_at: expiresAt })
  assert.equal(answer.status, 201, answer.text)
  return answer.body.key
}

test('a key that expires: created, marked, expired, and in the audit log', visit({ as: 'ada' }, async (visitor, page) => {
  const dialog = page.getByRole('dialog')
  const row = (text) => page.getByRole('row').filter({ hasText: text })
  await visitor.visit('keys?app=dev')
  await button(page, 'Create key').first().click()
  await dialog.getByLabel('Name').fill('nightly-report')
  await dialog.getByLabel('Expires').selectOption('in 90 days')
  await visitor.checkAccess('create a key')
  await visitor.picture('keys-create')
  await dialog.getByRole('button', { name: 'Create key' }).click()
  await button(page, 'I have stored the key').click()
  await row('nightly-report').locator('time').last().waitFor()
  assert.equal(await row('nightly-report').locator('.badge').count(), 0)
  await row('billing-service').getByText('never', { exact: true }).waitFor()

  // The server refuses a date in the past.
  await button(page, 'Create key').first().click()
  await dialog.getByLabel('Name').fill('too-late')
  await dialog.getByLabel('Expires').selectOption('at a date')
  await dialog.getByLabel('Date and time').fill('2020-01-15T09:30')
  await dialog.getByRole('button', { name: 'Create key' }).click()
  await dialog.getByRole('alert').getByText('must be in the future').waitFor()
  await dialog.getByLabel('Date and time').fill(new Date(Date.now() + 5 * DAY_MS).toISOString().slice(0, 16))
  await dialog.getByLabel('Name').fill('until-friday')
  await dialog.getByRole('button', { name: 'Create key' }).click()
  await button(page, 'I have stored the key').click()
  await row('until-friday').getByText('expires soon', { exact: true }).waitFor()

  const key = await createKey('last-year', new Date(Date.now() + 10_000).toISOString())
  const client = api(shop.node.http, key)
  const refused = await until('the key to expire', async () => {
    const answer = await client.raw('GET', '/v1/topics')
    return answer.status === 401 ? answer : undefined
  })
  assert.match(refused.text, /the API key expired at /)
  await visitor.visit('keys?app=dev')
  await row('last-year').getByText('expired', { exact: true }).waitFor()
  await visitor.picture('keys')
  await visitor.visit('doctor?app=dev')
  await row('API keys').getByText('1 expired, 1 expire within 14 days').waitFor()
  await row('API keys').getByText('last-year of dev').waitFor()
  await visitor.visit('audit?app=dev')
  await page.getByText('POST /v1/apps/{app}/keys').first().waitFor()
  const { entries } = await page.evaluate(async () => (await fetch('/console/api/v1/apps/dev/audit')).json())
  assert.ok(entries.some(({ after }) => after?.name === 'until-friday' && after.expires_at))
}))

const looks = [['en', 'light', 1280], ['ja', 'dark', 360], ['en', 'dark', 1280]]
for (const [language, theme, width] of looks) {
  test(`keys and rotation are accessible: ${language}, ${theme}, ${width} px`, visit({ as: 'ada', language, theme, width }, async (visitor, page) => {
    await createKey(`soon-${language}-${theme}`, new Date(Date.now() + 3 * DAY_MS).toISOString())
    await visitor.visit('keys?app=dev')
    await visitor.checkAccess('keys')
    await visitor.checkWidth('keys')
    await visitor.picture('keys-list')
    await button(page, language === 'ja' ? 'キーを作成' : 'Create key').first().click()
    await visitor.checkAccess('create a key')
    await visitor.picture('keys-dialog')
    await visitor.visit('credentials?app=dev')
    await page.getByRole('article', { name: 'APNs' }).getByRole('button', { name: language === 'ja' ? '更新' : 'Rotate', exact: true }).click()
    await page.getByRole('dialog').waitFor()
    await visitor.checkAccess('rotate')
    await visitor.checkWidth('rotate')
    await visitor.picture('credential-rotate')
  }))
}

test('a credential is rotated only if the push service accepts the new secret', visit({ as: 'ada' }, async (visitor, page) => {
  const dialog = page.getByRole('dialog')
  const credential = shop.push.info.credentials.apns
  const card = page.getByRole('article', { name: 'APNs' })
  const settings = async () => (await operator(shop.node).raw('GET', '/v1/apps/dev/push')).body.credentials.find(({ service }) => service === 'apns')
  const before = await settings()
  const token = (await shop.push.tokens('apns'))[0]
  await shop.node.api.register({ device: 'rotation', user: 'rotation', platform: 'ios', push_token: token })
  const pushed = () => shop.push.accepted('apns', token.token)

  await visitor.visit('credentials?app=dev')
  await card.getByRole('button', { name: 'Rotate', exact: true }).click()
  // What is not secret is filled in; the secret is not.
  assert.equal(await dialog.getByLabel('Key id').inputValue(), credential.key_id)
  assert.equal(await dialog.getByLabel('Team id').inputValue(), credential.team_id)
  assert.equal(await dialog.getByLabel('Signing key (.p8)').inputValue(), '')
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  await dialog.getByLabel('Signing key (.p8)').fill(privateKey.export({ type: 'pkcs8', format: 'pem' }))
  await dialog.getByLabel('Device for the test').fill('rotation')
  await dialog.getByRole('button', { name: 'Rotate' }).click()
  await dialog.getByRole('alert').getByText('InvalidProviderToken').waitFor()
  await visitor.checkAccess('a rejected rotation')
  await visitor.picture('credential-rotate-rejected')
  const { state: _, ...kept } = await settings()
  const { state: __, ...former } = before
  assert.deepEqual(kept, former, 'the former credential is unchanged')
  assert.equal((await pushed()).length, 0)
  await shop.node.api.publish({ to: { devices: ['rotation'] }, notification: { title: 'Still the old one' }, push: { mode: 'always' } })
  await until('a push with the former credential', async () => (await pushed()).length === 1)

  await dialog.getByLabel('Signing key (.p8)').fill(credential.key)
  await dialog.getByRole('button', { name: 'Rotate' }).click()
  await page.getByText('Credential rotated').first().waitFor()
  const after = await settings()
  assert.deepEqual(after.settings, before.settings)
  assert.ok(after.id === before.id && after.created_at > before.created_at)
  assert.equal((await pushed()).length, 2, 'the test')
  await shop.node.api.publish({ to: { devices: ['rotation'] }, notification: { title: 'The new one' }, push: { mode: 'always' } })
  await until('a push with the new credential', async () => (await pushed()).length === 3)
  const { entries } = await page.evaluate(async () => (await fetch('/console/api/v1/apps/dev/audit')).json())
  const rotation = entries.find(({ action }) => action === 'POST /v1/apps/{app}/push/{id}/rotate')
  assert.ok(rotation.before.created_at < rotation.after.created_at, JSON.stringify(rotation))
  assert.ok(!JSON.stringify(entries).includes('PRIVATE KEY'))
}))
