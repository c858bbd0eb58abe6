/**
 * A campaign by keyboard only, from the log-in to its end, in both languages: written, approved by a second person, started
 * with the password once more because it is large and the log-in is old, watched live, paused, aborted.
 */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { ClusterNode, hasFakeTime } from '../lib/cluster.mjs'
import { hasBrowser, heading, launch, originOf, PASSWORD, person, Visitor } from '../lib/console.mjs'
import { choose, tabTo, write } from '../lib/keyboard.mjs'
import { addCredential, DevPush } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

const skip = hasBrowser && hasFakeTime() ? false : 'needs Chromium and libfaketime (scripts/setup engines)'
const LOG_IN_IS_OLD_S = 660
let push
let node
let browser
let clock = 0

before(async () => {
  if (skip) return
  // Campaigns to more than two recipients are large.
  push = await DevPush.start()
  node = await ClusterNode.launch({ name: 'keys', roles: ['api', 'gateway', 'sender'], settings: { 'console.large_campaign': 2, 'egress.ca_file': push.info.ca_file }, fakeTime: true })
  await addCredential(node, push.info.credentials.fcm)
  const tokens = await push.tokens('fcm', 60)
  await node.api.registerBatch(tokens.map((push_token, index) => ({ device: `phone-${index}`, user: `user-${index}`, platform: 'android', topics: ['news'], push_token })))
  browser = await launch()
})
after(async () => {
  await browser?.close()
  await node?.stop()
  await push?.stop()
})

const words = {
  en: {
    overview: 'Overview', campaigns: 'Campaigns', create: 'New campaign', name: 'Name', to: 'Send to', topic: 'Topic', next: /^Next: /, title: 'Title', text: 'Text',
    rate: 'Maximum rate per second', exact: 'Counted exactly.', open: 'Open campaign', approve: 'Approve', start: 'Start campaign', cancel: 'Cancel',
    confirm: 'Confirm your log-in', pause: 'Pause', resume: 'Resume', abort: 'Abort', live: 'Live', help: 'Keyboard shortcuts', user: 'User', state: 'Live', accepted: 'Accepted', paused: /^Paused/,
  },
  ja: {
    overview: '概要', campaigns: 'キャンペーン', create: '新しいキャンペーン', name: '名前', to: '配信先', topic: 'トピック', next: /^次へ: /, title: 'タイトル', text: '本文',
    rate: '1 秒あたりの上限', exact: '正確に数えた値です。', open: 'キャンペーンを開く', approve: '承認', start: 'キャンペーンを開始', cancel: 'キャンセル',
    confirm: 'ログインの確認', pause: '一時停止', resume: '再開', abort: '中止', live: 'ライブ', help: 'キーボードショートカット', user: 'ユーザー', state: 'ライブ', accepted: '受理', paused: /^一時停止中/,
  },
}

/** A window of a new person of the app, who logs in by keyboard. */
async function logIn(language, name, role) {
  const email = `${name}-${language}@example.com`
  await person(node, email, name, ['dev', role])
  const visitor = await Visitor.open(browser, originOf(node), { language, theme: language === 'ja' ? 'dark' : 'light' })
  const { page } = visitor
  await visitor.go('?app=dev')
  await page.waitForFunction(() => document.activeElement?.type === 'email')
  await page.keyboard.type(email)
  await page.keyboard.press('Tab')
  await page.keyboard.type(PASSWORD)
  await page.keyboard.press('Enter')
  await heading(page, words[language].overview).waitFor()
  return visitor
}

for (const language of ['en', 'ja']) {
  const say = words[language]

  test(`a large campaign by keyboard only: ${language}`, { skip }, async () => {
    const author = await logIn(language, 'mika', 'author')
    const second = await logIn(language, 'ada', 'author')
    const { page } = author
    const dialog = page.locator('dialog[open]')
    await page.keyboard.press('g')
    await page.keyboard.press('c')
    await heading(page, say.campaigns).waitFor()
    await choose(page, say.create)
    await heading(page, say.create).waitFor()
    await write(page, say.name, `Weekend ${language}`)
    await tabTo(page, say.to)
    await page.keyboard.press('ArrowDown')
    await until('subscribers of a topic to be chosen', async () => await page.getByLabel(say.topic, { exact: true }).count() === 1)
    await write(page, say.topic, 'news')
    // Each next step begins with its first field.
    await choose(page, say.next)
    await write(page, say.title, 'Weekend deals')
    await write(page, say.text, 'From Friday')
    for (const words of ['Weekend deals', 'From Friday']) await page.locator('.preview.ios').getByText(words).waitFor()
    await choose(page, say.next)
    await write(page, say.rate, '1')
    await choose(page, say.next)
    await page.getByText(say.exact).waitFor()
    await author.checkAccess('review by keyboard')
    await author.picture('keyboard-review')
    const id = new URL(page.url()).searchParams.get('id')

    await second.visit(`campaign?app=dev&id=${id}`)
    await second.page.getByText(say.exact).waitFor()
    await choose(second.page, say.approve)
    await until('the approval', async () => (await node.api.call('GET', `/v1/campaigns/${id}`)).approval !== null)
    await second.close()

    clock += LOG_IN_IS_OLD_S
    node.jumpClock(clock)
    await choose(page, say.open, { back: true })
    await page.getByText(say.exact).waitFor()
    await choose(page, say.start)
    await dialog.waitFor()
    await choose(page, say.start)
    // Escape gives up: nothing has started, and the button has the focus again.
    const confirm = page.getByRole('dialog', { name: say.confirm })
    await confirm.waitFor()
    await author.checkAccess('confirmation of a large campaign')
    await author.picture('keyboard-confirm')
    await page.keyboard.press('Escape')
    await confirm.waitFor({ state: 'detached' })
    assert.equal((await node.api.call('GET', `/v1/campaigns/${id}`)).state, 'draft')
    await page.waitForFunction((text) => document.activeElement?.textContent.trim() === text, say.start)
    await page.keyboard.press('Enter')
    await dialog.waitFor()
    await choose(page, say.start)
    await confirm.waitFor()
    await page.waitForFunction(() => document.activeElement?.type === 'password')
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press('Enter')

    for (const [action, then] of [[say.pause, say.resume], [say.resume, say.pause], [say.abort, undefined]]) {
      await page.locator('.head-actions').getByRole('button', { name: action, exact: true }).waitFor()
      await choose(page, action)
      await dialog.waitFor()
      await choose(page, action)
      await dialog.waitFor({ state: 'detached' })
      if (then) await page.locator('.head-actions').getByRole('button', { name: then, exact: true }).waitFor()
    }
    await until('the end', async () => (await node.api.call('GET', `/v1/campaigns/${id}`)).state === 'aborted')
    await author.close()
  })

  test(`the live tail by keyboard only: ${language}`, { skip }, async () => {
    const visitor = await logIn(language, 'vera', 'viewer')
    const { page } = visitor
    const dialog = page.locator('dialog[open]')
    // Its key is in the list of shortcuts, and the palette has it.
    await page.keyboard.press('?')
    await page.getByRole('dialog', { name: say.help }).waitFor()
    await dialog.locator('.keys > div').filter({ has: page.locator('dd', { hasText: new RegExp(`^${say.live}$`) }) }).getByText('j', { exact: true }).waitFor()
    await page.keyboard.press('Escape')
    await dialog.waitFor({ state: 'detached' })
    await page.keyboard.press('Control+k')
    await dialog.waitFor()
    await page.keyboard.type(say.live)
    await page.keyboard.press('Enter')
    await heading(page, say.live).waitFor()
    await page.keyboard.press('g')
    await page.keyboard.press('o')
    await heading(page, say.overview).waitFor()
    await page.keyboard.press('g')
    await page.keyboard.press('j')
    await heading(page, say.live).waitFor()

    await write(page, say.user, 'user-1')
    await page.keyboard.press('Enter')
    await page.waitForURL(/user=user-1/)
    const state = (text) => page.locator('.live-state').filter({ hasText: text }).waitFor()
    await state(say.state)
    await node.api.publish({ to: { users: ['user-1'] }, data: 1 })
    await page.locator('.tail-row').filter({ hasText: say.accepted }).waitFor()
    await choose(page, say.pause)
    await state(say.paused)
    await tabTo(page, /user-1/)
    await page.keyboard.press('End')
    await page.keyboard.press('Enter')
    await page.locator('.tail-detail .code').getByText('"accepted"').waitFor()
    await choose(page, say.resume, { back: true })
    await state(say.state)
    await visitor.close()
  })
}
