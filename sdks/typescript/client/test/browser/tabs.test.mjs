/** Four tabs in Chromium share one connection: nothing is lost and nothing is shown twice, whatever fails. */

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'

import { Node } from '../../../../../e2e/lib/node.mjs'
import { Proxy } from '../../../../../e2e/lib/proxy.mjs'
import { sleep, until } from '../../../../../e2e/lib/until.mjs'
import { skip } from '../../../test/chromium.mjs'
import { discard } from '../../../test/discard.mjs'
import { Site } from './lib.mjs'

let site
let node
before(async () => {
  if (skip) return
  site = await Site.open()
  node = await Node.start()
})
after(async () => {
  await site?.close()
  await discard(node)
})

/** Four tabs of a device, all connected; closed at the end. */
async function four(t, device, { url = node.http, ...more } = {}) {
  const tabs = []
  t.after(() => Promise.all(tabs.map(({ page }) => page.close())))
  for (let n = 0; n < 4; n++) {
    tabs.push(await site.tab(url, device, more))
    await tabs[n].connected()
  }
  return tabs
}

const publisher = (device, api = () => node.api) => {
  let sent = 0
  return {
    get sent() {
      return sent
    },
    async publish(count) {
      for (let n = 0; n < count; n++) await api().publish({ to: { users: [`user-of-${device}`] }, data: sent++ })
    },
  }
}

const numbers = (count) => Array.from({ length: count }, (_, n) => n)

async function allShow(tabs, count) {
  for (const tab of tabs) {
    await tab.shows(count)
    assert.deepEqual(await tab.get('shown'), numbers(count))
    assert.deepEqual(tab.failures, [])
  }
}

describe('tabs', { concurrency: 3 }, () => {
  test('four tabs show every message once, over one connection', { skip }, async (t) => {
    const tabs = await four(t, 'tabs-live', { topic: 'tabs/news' })
    const { publish } = publisher('tabs-live')
    await publish(20)
    await allShow(tabs, 20)
    await node.api.publish({ to: { topic: 'tabs/news' }, data: 20 })
    await allShow(tabs, 21)
    for (const tab of tabs) assert.deepEqual(await tab.get('states').then((states) => states.filter((state) => state !== 'connecting')), ['connected'])
    await until('every message to be acknowledged', async () => (await tabs[0].page.evaluate(() => window.noroshi.me())).inbox === 0)
  })

  test('the leader tab is killed: another one takes over', { skip }, async (t) => {
    const tabs = await four(t, 'tabs-leader', { topic: 'tabs/log' })
    const { publish } = publisher('tabs-leader')
    await publish(10)
    await allShow(tabs, 10)
    // The first tab has the lock. Messages arrive while it dies.
    const publishing = publish(20)
    await tabs[0].page.close({ runBeforeUnload: false })
    await publishing
    const left = tabs.slice(1)
    await publish(5)
    await allShow(left, 35)
    await left[0].connected()
    await node.api.publish({ to: { topic: 'tabs/log' }, data: 35 })
    await allShow(left, 36)
  })

  for (const how of ['is frozen', 'hangs']) {
    test(`a leader that ${how} is deposed, and follows when it returns`, { skip }, async (t) => {
      const device = `tabs-${how.replace(' ', '-')}`
      // Only a hidden page is frozen, and Playwright shows all pages: the events come from here.
      const event = (name) => how === 'is frozen' && tabs[0].page.evaluate((name) => document.dispatchEvent(new Event(name)), name)
      const tabs = await four(t, device, { topic: `tabs/${device}`, hurry: '' })
      const { publish } = publisher(device)
      await publish(5)
      await allShow(tabs, 5)
      await event('freeze')
      const hung = tabs[0].hang()
      await publish(5)
      await allShow(tabs.slice(1), 10)
      await node.api.publish({ to: { topic: `tabs/${device}` }, data: 10 })
      await allShow(tabs.slice(1), 11)
      site.holds.get(device)()
      await hung
      await event('resume')
      await allShow(tabs, 11)
      for (let n = 11; n < 16; n++) await node.api.publish({ to: { users: [`user-of-${device}`] }, data: n })
      await allShow(tabs, 16)
      await until('every message to be acknowledged', async () => (await tabs[0].page.evaluate(() => window.noroshi.me())).inbox === 0)
      for (const tab of tabs) {
        assert.equal(await tab.state(), 'connected')
        assert.ok((await tab.get('states')).every((state) => !state.startsWith('closed')))
      }
    })
  }

  test('a renderer that crashes is not waited for', { skip }, async (t) => {
    const tabs = await four(t, 'tabs-crash')
    const { publish } = publisher('tabs-crash')
    await publish(5)
    await allShow(tabs, 5)
    await tabs[1].page.goto('chrome://crash').catch(() => {})
    await publish(5)
    await allShow([tabs[0], tabs[2], tabs[3]], 10)
  })

  test('the node is killed', { skip }, async (t) => {
    const own = await Node.start()
    const tabs = await four(t, 'tabs-killed', { url: own.http, topic: 'tabs/log' })
    const { publish } = publisher('tabs-killed', () => own.api)
    await publish(10)
    await allShow(tabs, 10)
    await own.kill()
    await own.spawn()
    await publish(10)
    await allShow(tabs, 20)
    await discard(own)
  })

  test('the network is lost for a while', { skip }, async (t) => {
    const proxy = await Proxy.start(node.httpPort)
    const tabs = await four(t, 'tabs-offline', { url: `http://127.0.0.1:${proxy.port}`, topic: 'tabs/offline', hurry: '' })
    const { publish } = publisher('tabs-offline')
    await publish(5)
    await allShow(tabs, 5)
    proxy.freeze()
    await publish(5)
    await until('the loss to be noticed', async () => (await tabs[3].get('states')).includes('waiting connection_lost'))
    await proxy.heal()
    await publish(5)
    await allShow(tabs, 15)
  })

  test('the token expires', { skip }, async (t) => {
    const tabs = await four(t, 'tabs-token', { lifetime: 3 })
    const { publish } = publisher('tabs-token')
    await publish(5)
    await until('renewals', () => site.asked.filter(({ device, reason }) => device === 'tabs-token' && reason === 'expiring').length >= 2)
    await publish(5)
    await sleep(500)
    await publish(5)
    await allShow(tabs, 15)
  })

  test('a tab that subscribes later gets the retained message; tabs without the topic do not see it', { skip }, async (t) => {
    await node.api.publish({ to: { topic: 'tabs/board' }, data: 'retained', retain: true })
    const tabs = []
    t.after(() => Promise.all(tabs.map(({ page }) => page.close())))
    for (const topic of ['tabs/board', 'tabs/other', 'tabs/board']) {
      tabs.push(await site.tab(node.http, 'tabs-board', { topic }))
      await tabs.at(-1).connected()
      if (topic === 'tabs/board') await tabs.at(-1).shows(1)
    }
    await node.api.publish({ to: { users: ['user-of-tabs-board'] }, data: 'end' })
    const shown = []
    for (const tab of tabs) {
      await until('the end', async () => (await tab.get('shown')).includes('end'))
      shown.push(await tab.get('shown'))
    }
    assert.deepEqual(shown, [['retained', 'end'], ['end'], ['retained', 'end']])
  })

  test('the leader closes its client: the other tabs go on without a closed state', { skip }, async (t) => {
    const tabs = await four(t, 'tabs-closed')
    const { publish } = publisher('tabs-closed')
    await publish(3)
    await allShow(tabs, 3)
    await tabs[0].page.evaluate(() => window.noroshi.close())
    const left = tabs.slice(1)
    await publish(3)
    await allShow(left, 6)
    for (const tab of left) assert.ok((await tab.get('states')).every((state) => !state.startsWith('closed')))
    assert.deepEqual(await tabs[0].get('shown'), numbers(3))
    await tabs[0].page.evaluate(() => window.noroshi.connect())
    await publish(3)
    await allShow(left, 9)
    await tabs[0].shows(6)
    assert.equal(await tabs[0].state(), 'connected')
  })

  test('a message that one tab failed to handle arrives there again, and only there', { skip }, async (t) => {
    const own = await Node.start()
    const tabs = await four(t, 'tabs-failing', { url: own.http })
    await tabs[2].page.evaluate(() => {
      window.attempts = []
      window.noroshi.on('message', async ({ data }) => {
        window.attempts.push(data)
        if (window.attempts.length === 1) throw new Error('the first attempt fails')
      })
    })
    const { publish } = publisher('tabs-failing', () => own.api)
    await publish(1)
    await allShow(tabs, 1)
    await until('the failure', async () => (await tabs[2].get('errors')).some((text) => text.startsWith('listener_failed')))
    await own.kill()
    await own.spawn()
    await until('the second attempt', async () => (await tabs[2].get('attempts')).length === 2)
    await publish(1)
    for (const tab of [tabs[0], tabs[1], tabs[3]]) {
      await tab.shows(2)
      assert.deepEqual(await tab.get('shown'), [0, 1])
    }
    assert.equal((await tabs[0].page.evaluate(() => window.noroshi.me())).device, 'tabs-failing')
    await until('every message to be acknowledged', async () => (await tabs[0].page.evaluate(() => window.noroshi.me())).inbox === 0)
    await discard(own)
  })

  test('the device is active while one tab is visible, and every tab knows the unread items', { skip }, async (t) => {
    const tabs = await four(t, 'tabs-presence', { hurry: '' })
    const presence = async () => (await node.api.presence('user-of-tabs-presence'))['user-of-tabs-presence'].presence
    assert.equal(await presence(), 'active')
    for (const { page } of tabs.slice(0, 3)) await page.evaluate(() => (window.noroshi.presence = 'idle'))
    await node.api.publish({ to: { users: ['user-of-tabs-presence'] }, notification: { title: 'x' }, item: {} })
    for (const tab of tabs) await until('one unread item', async () => (await tab.get('unread')).at(-1) === 1)
    assert.equal(await presence(), 'active')
    await tabs[3].page.evaluate(() => (window.noroshi.presence = 'idle'))
    await until('the device to be idle', async () => (await presence()) === 'idle')
  })
})
