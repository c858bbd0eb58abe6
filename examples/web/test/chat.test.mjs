/** The chat survives a killed tab, a killed node, a minute without network (NOROSHI_EXAMPLES_OFFLINE), and expired tokens. */

import { after, before, test } from 'node:test'
import assert from 'node:assert/strict'

import { sleep } from '../../../e2e/lib/until.mjs'
import { Example, OFFLINE_MS, skip } from './lib.mjs'

let chat
before(async () => {
  if (!skip) chat = await Example.start('chat')
})
after(() => chat?.stop())

const shown = () => [...document.querySelectorAll('#messages li')].map((line) => line.textContent)

test('four tabs of a chat show every message once, in order', { skip, timeout: 240_000 }, async () => {
  await chat.openTabs('ann')
  const bob = await chat.signIn('bob')
  const expected = []
  const say = async (count) => {
    for (let n = 0; n < count; n++) {
      const text = `message ${expected.length + 1} <b>`
      expected.push(`bob${text}`)
      await bob('/messages', { text })
    }
  }
  await say(5)
  await chat.all('what was said', shown, expected)

  const talking = say(10)
  await chat.killLeader()
  await talking
  await chat.all('what was said when the leader died', shown, expected)
  await chat.openTabs('ann')

  const meanwhile = say(10)
  await chat.killNode()
  await meanwhile
  await chat.all('what was said when the node died', shown, expected)

  const tokens = chat.requests.get('/token')
  chat.proxy.freeze()
  await say(10)
  await sleep(OFFLINE_MS)
  await chat.proxy.heal()
  await chat.all('what was said without network', shown, expected)
  assert.ok(chat.requests.get('/token') > tokens, 'the token expired meanwhile')

  // A tab writes too.
  await chat.tabs[2].getByLabel('Message').fill('from a tab')
  await chat.tabs[2].getByRole('button', { name: 'Send' }).click()
  await chat.all('what a tab said', shown, [...expected, 'annfrom a tab'])
})
