/**
 * Campaigns in the web console, as people work on them: an author writes a draft that saves itself, a second person
 * approves it, the author starts, watches, pauses and resumes. Two tabs conflict. Once in Japanese.
 */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { button, heading, originOf, shopConsole, Visitor } from '../lib/console.mjs'
import { XSS } from '../lib/shop.mjs'
import { until } from '../lib/until.mjs'

// The shop has 131 devices.
const shop = shopConsole({ args: ['--set', 'console.large_campaign=100'] })
const { visit } = shop

const saved = (page) => page.locator('.save-line.saved').waitFor()
const campaignOf = (page) => new URL(page.url()).searchParams.get('id')
const step = (page, name) => page.locator('.segmented').getByText(new RegExp(`^\\d\\. ${name}$`)).click()

/** A second window, of another person. */
async function other(as, options = {}) {
  return Visitor.open(shop.browser, originOf(shop.node), { ...options, as })
}

test('an author writes, a second person approves, the author starts and watches', visit({ as: 'mika' }, async (visitor, page) => {
  await visitor.visit('new-campaign?app=dev')
  await visitor.checkAccess('an empty composer')
  await page.getByLabel('Name').fill('Weekend')
  await saved(page)
  await until('the address to name the draft', async () => campaignOf(page))
  const id = campaignOf(page)
  await button(page, 'Next: Message').click()
  await page.getByLabel('Title', { exact: true }).fill('Hello {{name}}')
  await page.getByLabel('Text', { exact: true }).fill('From Friday')
  await page.getByLabel('name', { exact: true }).fill('you')
  await page.getByLabel('Language tag').fill('ja')
  await button(page, 'Add language').click()
  await page.getByLabel('Title (ja)').fill('こんにちは、{{name}}')
  for (const kind of ['ios', 'android', 'web', 'inbox']) await page.locator(`.preview.${kind}`).getByText('Hello you').waitFor()
  // A Japanese device: its language, and a test for it alone.
  await page.getByLabel('User id').fill('user-1')
  await button(page, 'Show').click()
  await page.getByLabel('Device').selectOption({ index: 0 })
  await page.locator('.preview.ios').getByText('こんにちは、you').waitFor()
  await visitor.checkAccess('languages side by side')
  await visitor.picture('campaign-message')
  await page.getByRole('button', { name: /^Send test to/ }).click()
  await page.getByRole('link', { name: 'Test sent: open the notification' }).waitFor()
  await saved(page)

  await step(page, 'Schedule')
  await page.getByLabel('Maximum rate per second').fill('2')
  await saved(page)
  await step(page, 'Review')
  await page.getByText('Counted exactly.').waitFor()
  await page.getByText('limit of this campaign').waitFor()
  await page.getByText('Not approved').waitFor()
  await page.getByText(/^Sample of/).click()
  await page.getByRole('region', { name: 'Sample of devices' }).waitFor()
  await visitor.checkAccess('review')
  await visitor.picture('campaign-review')
  assert.equal(await button(page, 'Approve').getAttribute('aria-disabled'), 'true', 'nobody approves the own campaign')
  assert.equal(await button(page, 'Start campaign').getAttribute('aria-disabled'), 'true')

  const ada = await other(shop.people.ada)
  await ada.visit(`campaign?app=dev&id=${id}`)
  await button(ada.page, 'Approve').click()
  await ada.page.getByText('by ada@example.com').first().waitFor()
  await ada.checkAccess('an approved draft')
  await ada.close()

  // A change ends the approval: the author sees it, and gets it again.
  await step(page, 'Audience')
  await page.getByLabel('Name').fill('Weekend deals')
  await saved(page)
  const again = await other(shop.people.ada)
  await again.visit(`campaign?app=dev&id=${id}`)
  await button(again.page, 'Approve').click()
  await again.page.getByText('by ada@example.com').first().waitFor()
  await again.close()
  await visitor.visit(`campaign?app=dev&id=${id}`)
  await button(page, 'Start campaign').click()
  await page.locator('dialog').getByText('Sends to 131 devices now').waitFor()
  await page.locator('dialog').getByRole('button', { name: 'Start campaign' }).click()
  await button(page, 'Pause').waitFor()
  await page.locator('.chart-title').getByText('Rate since this page was opened').waitFor()
  await until('a device to be done', async () => {
    const { done } = await shop.node.api.call('GET', `/v1/campaigns/${id}`)
    return done > 0
  })
  await page.getByRole('heading', { name: 'Errors by reason' }).waitFor()
  await page.getByRole('heading', { name: 'Suppressed by reason' }).waitFor()
  await visitor.checkAccess('a running campaign')
  await visitor.picture('campaign-running')
  await button(page, 'Pause').click()
  await page.locator('dialog').getByRole('button', { name: 'Pause' }).click()
  await button(page, 'Resume').click()
  await page.locator('dialog').getByRole('button', { name: 'Resume' }).click()
  await button(page, 'Pause').waitFor()
  await button(page, 'Abort').click()
  await page.locator('dialog').getByRole('button', { name: 'Abort' }).click()
  await page.locator('h1').getByText('aborted').waitFor()

  await visitor.visit('campaigns?app=dev')
  await page.getByLabel('Name contains').fill('WEEKEND')
  await page.getByLabel('State').selectOption('aborted')
  await button(page, 'Filter').click()
  await page.getByRole('link', { name: 'Weekend deals' }).waitFor()
  assert.equal(await page.locator('tbody tr').count(), 1)
  await visitor.checkAccess('filtered campaigns')
  await visitor.picture('campaign-list')
}))

test('what is typed while the first save is on its way stays, with the focus', visit({ as: 'mika' }, async (visitor, page) => {
  let answer
  const asked = new Promise((resolve) => page.route(/v1\/campaigns\?draft/, async (route) => {
    resolve()
    await new Promise((go) => (answer = go))
    await route.continue()
  }))
  await visitor.visit('new-campaign?app=dev')
  await page.getByLabel('Name').fill('Early')
  await asked
  await button(page, 'Next: Message').click()
  await page.getByLabel('Title', { exact: true }).fill('Typed meanwhile')
  answer()
  await until('the address to name the draft', async () => campaignOf(page))
  await saved(page)
  await page.keyboard.type('!')
  assert.equal(await page.getByLabel('Title', { exact: true }).inputValue(), 'Typed meanwhile!')
  await until('the draft to have all of it', async () => (await shop.node.api.call('GET', `/v1/campaigns/${campaignOf(page)}`)).message?.notification?.title === 'Typed meanwhile!')

  // The answer to a person who has left the composer changes no other address.
  answer = undefined
  await visitor.visit('new-campaign?app=dev')
  await page.getByLabel('Name').fill('Left')
  await page.getByRole('link', { name: 'Topics', exact: true }).click()
  await heading(page, 'Topics').waitFor()
  await until('the draft to be on its way', () => answer)
  answer()
  await until('the draft to be saved', async () => (await shop.node.api.call('GET', '/v1/campaigns?name=Left')).campaigns.length === 1)
  await page.getByRole('link', { name: 'news' }).waitFor()
  assert.equal(campaignOf(page), null)
}))

test('a draft stays in its app when its author opens another one at once', visit({ as: 'mika' }, async (visitor, page) => {
  await visitor.visit('new-campaign?app=dev')
  await page.getByRole('button', { name: /^App dev/ }).click()
  await page.keyboard.press('Escape')
  await page.getByLabel('Name').fill('Of dev')
  await page.getByRole('button', { name: /^App dev/ }).click()
  await page.getByRole('menuitemradio', { name: 'shop' }).click()
  await page.getByRole('button', { name: /^App shop/ }).waitFor()
  await until('the draft in its app', async () => (await shop.node.api.call('GET', '/v1/campaigns?name=Of%20dev')).campaigns.length === 1)
  await visitor.visit('campaigns?app=shop&name=Of%20dev')
  await page.locator('.empty').waitFor()
}))

test('two tabs change the same draft', visit({ as: 'mika' }, async (visitor, page) => {
  await visitor.visit('new-campaign?app=dev')
  await page.getByLabel('Name').fill('Mine')
  await saved(page)
  await until('the address to name the draft', async () => campaignOf(page))
  const id = campaignOf(page)
  const ada = await other(shop.people.ada)
  await ada.visit(`new-campaign?app=dev&id=${id}`)
  const name = (of) => of.getByLabel('Name')
  assert.equal(await name(ada.page).inputValue(), 'Mine')
  await name(ada.page).fill('Theirs')
  await saved(ada.page)
  const stored = async () => (await shop.node.api.call('GET', `/v1/campaigns/${id}`)).name
  await until('the change of the second person', async () => (await stored()) === 'Theirs')
  await name(page).fill('Mine again')
  await page.getByRole('alert').getByText('Another person changed this draft').waitFor()
  await page.getByRole('alert').getByText('ada@example.com saved revision 2').waitFor()
  await visitor.checkAccess('a conflict')
  await visitor.picture('campaign-conflict')
  assert.equal(await stored(), 'Theirs', 'nothing was overwritten')
  await button(page, 'Take their version').click()
  await page.waitForFunction(() => document.querySelector('input.input')?.value === 'Theirs')
  // And the other way round.
  await name(page).fill('Mine at last')
  await until('the change', async () => (await stored()) === 'Mine at last')
  await name(ada.page).fill('Hers')
  await button(ada.page, 'Overwrite with mine').click()
  await until('the overwritten name', async () => (await stored()) === 'Hers')
  await ada.close()
}))

test('an incomplete draft says what is missing, in Japanese, on a phone', visit({ as: 'mika', language: 'ja', width: 390, theme: 'dark' }, async (visitor, page) => {
  await visitor.visit('new-campaign?app=dev')
  // Escape closes the menu and gives the focus back.
  await page.locator('.burger').click()
  await page.locator('.burger[aria-expanded=true]').waitFor()
  await page.keyboard.press('Escape')
  await page.locator('.burger[aria-expanded=false]:focus').waitFor()
  await page.getByLabel('名前').fill('週末のお知らせ')
  await page.locator('.save-line.saved').waitFor()
  await page.getByLabel('配信先').selectOption('topic')
  await page.locator('.segmented').getByText('4. 確認').click()
  await page.getByRole('heading', { name: '開始前に必要な項目' }).waitFor()
  await page.locator('.problems').getByText('audience.topic').waitFor()
  await page.locator('.problems').getByText('message', { exact: true }).waitFor()
  await visitor.checkAccess('missing parts')
  await visitor.checkWidth('missing parts')
  await visitor.picture('campaign-missing-ja')
  await page.locator('.problems').getByRole('button', { name: '対象へ移動' }).first().click()
  await page.getByLabel('トピック', { exact: true }).fill('news')
  await page.locator('.save-line.saved').waitFor()
  await button(page, '次へ: メッセージ').click()
  await page.getByLabel('タイトル', { exact: true }).fill('週末セール')
  await page.locator('.preview.inbox').getByText('週末セール').waitFor()
  await visitor.checkWidth('message')
  await page.locator('.save-line.saved').waitFor()
  await page.locator('.segmented').getByText('4. 確認').click()
  await page.getByText('正確に数えた値です。').waitFor()
  await visitor.checkAccess('review in Japanese')
  await visitor.checkWidth('review')
  await visitor.picture('campaign-review-ja')
}))

test('hostile names stay text', visit({ as: 'ada' }, async (visitor, page) => {
  const { id } = await shop.node.api.call('POST', '/v1/campaigns?draft=true', {
    body: {
      name: XSS, audience: { topic: XSS }, message: { notification: { title: XSS, body: `${XSS} {{name}}`, url: 'https://example.com/' } },
      variables: { name: XSS }, locales: { ja: { notification: { title: XSS, body: XSS } } },
    },
  })
  const whole = await shop.node.api.call('POST', '/v1/campaigns?draft=true', {
    body: { name: XSS, audience: { everyone: true }, message: { notification: { title: XSS } } },
  })
  for (const path of [`campaign?id=${id}`, `campaign?id=${whole.id}`, ...['audience', 'message', 'schedule', 'review'].map((name) => `new-campaign?id=${id}&step=${name}`), 'campaigns', `campaigns?name=${encodeURIComponent('<img')}`]) {
    await visitor.visit(`${path}${path.includes('?') ? '&' : '?'}app=dev`)
    await page.getByText('<img src=x').first().or(page.locator('input.input').first()).first().waitFor()
    assert.equal(await page.evaluate(() => globalThis.pwned), undefined, path)
  }
  // Devices of the sample may have hostile users.
  await visitor.visit(`campaign?app=dev&id=${whole.id}`)
  await page.getByText(/^Sample of/).click()
  await page.getByRole('region', { name: 'Sample of devices' }).waitFor()
  await visitor.visit(`new-campaign?app=dev&id=${whole.id}&step=message`)
  await page.getByLabel('User id').fill(XSS)
  await button(page, 'Show').click()
  await page.locator('.previews .hint').getByText('<img src=x').waitFor()
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined)
}))

for (const [language, theme, width, words] of [
  ['en', 'light', 1280, { discard: 'Discard', confirm: 'Discard draft', text: 'which has sent nothing', abort: 'Abort', state: 'aborted', delete: 'Delete' }],
  ['ja', 'dark', 390, { discard: '破棄', confirm: '下書きを破棄', text: 'まだ何も配信されていません', abort: '中止', state: '中止', delete: '削除' }],
]) {
  test(`a draft is discarded, not aborted: ${language}`, visit({ as: 'mika', language, theme, width }, async (visitor, page) => {
    const { id } = await shop.node.api.call('POST', '/v1/campaigns?draft=true', { body: { name: 'Never sent' } })
    await visitor.visit(`campaign?app=dev&id=${id}`)
    assert.equal(await button(page, words.abort).count(), 0)
    await button(page, words.discard).click()
    await page.locator('dialog').getByText(words.text).waitFor()
    await visitor.checkAccess('discard a draft')
    await visitor.checkWidth('discard a draft')
    await visitor.picture('campaign-discard')
    await page.locator('dialog').getByRole('button', { name: words.confirm }).click()
    await page.locator('h1').getByText(words.state).waitFor()
    assert.equal((await shop.node.api.call('GET', `/v1/campaigns/${id}`)).state, 'aborted')
    await button(page, words.delete).waitFor()
  }))
}

test('people who only read may look, and change nothing', visit({ as: 'vera' }, async (visitor, page) => {
  await visitor.visit(`campaign?app=dev&id=${shop.ids.draft}`)
  await button(page, 'Estimate again').waitFor()
  assert.equal(await button(page, 'Start campaign').getAttribute('aria-disabled'), 'true')
  assert.equal(await button(page, 'Edit').getAttribute('aria-disabled'), 'true')
}))
