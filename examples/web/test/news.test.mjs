/** The newspaper survives a killed tab, a killed node, a minute without network (NOROSHI_EXAMPLES_OFFLINE), and expired tokens. */

import { after, before, test } from 'node:test'
import assert from 'node:assert/strict'

import { sleep } from '../../../e2e/lib/until.mjs'
import { Example, OFFLINE_MS, skip } from './lib.mjs'

let news
before(async () => {
  if (!skip) news = await Example.start('news')
})
after(() => news?.stop())

/** Nothing in the page removes what arrives twice. */
const live = () => [...document.querySelectorAll('#live li')].map((line) => line.textContent)
const items = () => [...document.querySelectorAll('#items li')].map((line) => `${line.className} ${line.textContent}`)
const unread = () => Number(document.querySelector('#unread').textContent)

test('four tabs of a newspaper show every headline once, and the same list', { skip, timeout: 240_000 }, async () => {
  await news.openTabs('ann')
  const editor = await news.signIn('editor')
  const published = []
  const publish = async (count) => {
    for (let n = 0; n < count; n++) {
      const title = `Headline ${published.length + 1}`
      published.push(title)
      await editor('/headlines', { title })
    }
  }
  /** A tab that was opened later shows what came since. */
  const since = new Map()
  const check = async (what) => {
    for (const tab of news.tabs) {
      const expected = published.slice(since.get(tab) ?? 0)
      await tab.waitForFunction((count) => document.querySelectorAll('#live li').length >= count, expected.length)
      assert.deepEqual(await tab.evaluate(live), expected, what)
    }
    await news.all('the list of all headlines', items, published.toReversed().map((title) => `unread ${title}`))
    await news.all('the number of unread headlines', unread, published.length)
  }
  await publish(5)
  await check('at first')

  const publishing = publish(10)
  await news.killLeader()
  await publishing
  await check('when the leader died')
  const others = new Set(news.tabs)
  await news.openTabs('ann')
  for (const tab of news.tabs) if (!others.has(tab)) since.set(tab, published.length)

  const meanwhile = publish(10)
  await news.killNode()
  await meanwhile
  await check('when the node died')

  const tokens = news.requests.get('/token')
  news.proxy.freeze()
  await publish(10)
  await sleep(OFFLINE_MS)
  await news.proxy.heal()
  await check('without network')
  assert.ok(news.requests.get('/token') > tokens, 'the token expired meanwhile')

  await news.tabs[1].getByRole('button', { name: 'Mark all as read' }).click()
  await news.all('no unread headline', unread, 0)
  await news.all('a list of read headlines', items, published.toReversed().map((title) => `read ${title}`))
})
