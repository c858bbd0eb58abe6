/**
 * The web console of a cluster, as people use it: what they do at one node counts at the other, and each page states which
 * node it is about.
 */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { Cluster, LEASE_MS } from '../lib/cluster.mjs'
import { button, hasBrowser, heading, launch, originOf, person, Visitor } from '../lib/console.mjs'
import { Device } from '../lib/device.mjs'
import { missingEngines, Postgres, Redis } from '../lib/engines.mjs'
import { operator } from '../lib/operator.mjs'
import { addCredential, DevPush } from '../lib/push.mjs'
import { until } from '../lib/until.mjs'

const skip = (hasBrowser ? missingEngines() : 'no Chromium (Debian package chromium)') || false
const DEVICES = 60
const CONNECTED = 8
let engines = []
let push
let cluster
let [one, two] = []
let browser
const devices = []
const people = {}

before(async () => {
  if (skip) return
  const [postgres, redis, fakes] = await Promise.all([Postgres.start(), Redis.start(), DevPush.start()])
  engines = [postgres, redis]
  push = fakes
  const roles = ['api', 'gateway', 'sender']
  cluster = await Cluster.start({ postgres: postgres.url, redis: redis.url, settings: { 'egress.ca_file': push.info.ca_file }, nodes: [{ name: 'one', roles }, { name: 'two', roles }] })
  await cluster.seen()
  one = cluster.node('one')
  two = cluster.node('two')
  await addCredential(one, push.info.credentials.fcm)
  const tokens = await push.tokens('fcm', DEVICES)
  const registered = await one.api.registerBatch(tokens.map((push_token, index) => ({ device: `phone-${index}`, user: `user-${index}`, platform: 'android', topics: ['news'], push_token })))
  for (const { token } of registered.slice(0, CONNECTED)) devices.push(await Device.connect(one.ws, token))
  browser = await launch()
  people.ada = await person(one, 'ada@example.com', 'Ada Lovelace', ['*', 'owner'])
  people.sam = await person(one, 'sam@example.com', 'Sam Carter', ['dev', 'support'])
})
after(async () => {
  await browser?.close()
  for (const device of devices) device.socket.terminate()
  await cluster?.stop()
  await Promise.all([...engines, ...(push ? [push] : [])].map((engine) => engine.stop()))
})

/** A window of a person at a node, which must report no fault. */
const at = (node, as, options = {}) => Visitor.open(browser, originOf(node), { as, ...options })
const row = (page, text) => page.getByRole('row').filter({ hasText: text })

test('one log-in counts at every node, and a role that is taken away at one ends at the other', { skip }, async () => {
  const ada = await at(one)
  await ada.logIn('ada@example.com', 'people?app=dev')
  await row(ada.page, 'sam@example.com').getByText('dev: Support').waitFor()
  // Cookies do not depend on the port: the same browser at the other node.
  const { origin } = ada
  ada.origin = originOf(two)
  await ada.visit('nodes?app=dev')
  await row(ada.page, 'two').getByText('this node').waitFor()
  ada.origin = origin

  const sam = await at(two, people.sam)
  await sam.visit('device?app=dev&id=phone-20')
  const revoke = button(sam.page, 'Revoke tokens')
  assert.equal(await revoke.getAttribute('aria-disabled'), null)

  await ada.visit('people?app=dev')
  await button(ada.page, 'Actions for sam@example.com').click()
  await ada.page.getByRole('menuitem', { name: 'Change roles' }).click()
  await ada.page.locator('dialog').getByLabel('Role', { exact: true }).selectOption('viewer')
  await button(ada.page, 'Save').click()
  await row(ada.page, 'sam@example.com').getByText('dev: Viewer').waitFor()

  await revoke.click()
  await sam.page.locator('dialog').getByRole('button', { name: 'Revoke tokens' }).click()
  await sam.page.locator('.toast.bad').waitFor()
  await sam.visit('device?app=dev&id=phone-20')
  assert.equal(await revoke.getAttribute('aria-disabled'), 'true')

  await button(ada.page, 'Actions for sam@example.com').click()
  await ada.page.getByRole('menuitem', { name: 'Disable' }).click()
  await row(ada.page, 'sam@example.com').getByText('disabled').waitFor()
  await sam.page.getByRole('link', { name: 'Topics' }).click()
  await heading(sam.page, 'Log in').waitFor()
  await sam.close()
  await ada.close()
})

test('the live tail at one node has the events of the other', { skip }, async () => {
  const visitor = await at(two, people.ada)
  const { page } = visitor
  await visitor.visit('live?app=dev&device=phone-30')
  await page.locator('.live-state').filter({ hasText: /^Live$/ }).waitFor()
  const kept = page.locator('.tail-row').filter({ hasText: 'Kept' })
  await until('an event of node one', async () => {
    await one.api.publish({ to: { devices: ['phone-30'] }, data: 1 })
    return await kept.count() > 0
  })
  await kept.first().click()
  const detail = JSON.parse(await page.locator('.tail-detail .code').innerText())
  assert.deepEqual([detail.node, detail.event], ['one', 'kept'])
  await visitor.picture('cluster-live')
  await visitor.close()
})

test('a device that is connected to the other node is found, with its presence', { skip }, async () => {
  const visitor = await at(two, people.ada, { language: 'ja', theme: 'dark' })
  const { page } = visitor
  await visitor.visit('?app=dev')
  await page.keyboard.press('/')
  await page.keyboard.type('phone-3')
  await page.keyboard.press('Enter')
  await heading(page, 'phone-3').waitFor()
  await page.locator('h1').getByText('使用中').waitFor()
  await page.keyboard.press('/')
  await page.keyboard.type('user-40')
  await page.keyboard.press('Enter')
  await heading(page, 'user-40').waitFor()
  await page.locator('h1').getByText('オフライン').waitFor()
  await visitor.close()
})

test('a campaign that was started at one node is watched, paused and resumed at the other', { skip }, async () => {
  const writer = await at(one, people.ada)
  const watcher = await at(two, people.ada)
  const { page } = writer
  const dialog = (of) => of.locator('dialog[open]')
  await writer.visit('new-campaign?app=dev')
  await page.getByLabel('Name').fill('Across nodes')
  await button(page, 'Next: Message').click()
  await page.getByLabel('Title', { exact: true }).fill('Across nodes')
  await button(page, 'Next: Schedule').click()
  // A minute's work.
  await page.getByLabel('Maximum rate per second').fill('1')
  await button(page, 'Next: Review').click()
  await page.getByText('Counted exactly.').waitFor()
  await button(page, 'Start campaign').click()
  await dialog(page).getByRole('button', { name: 'Start campaign' }).click()
  await button(page, 'Pause').waitFor()

  await watcher.visit('campaigns?app=dev')
  await watcher.page.getByRole('link', { name: 'Across nodes' }).click()
  const progress = watcher.page.getByRole('progressbar', { name: 'Devices done' })
  await until('progress', async () => await progress.evaluate(({ value }) => value) > 0)
  await watcher.picture('cluster-campaign')
  await button(watcher.page, 'Pause').click()
  await dialog(watcher.page).getByRole('button', { name: 'Pause' }).click()
  await page.locator('h1').getByText('paused').waitFor()
  await button(page, 'Resume').click()
  await dialog(page).getByRole('button', { name: 'Resume' }).click()
  await watcher.page.locator('h1').getByText('running').waitFor()
  await button(watcher.page, 'Abort').click()
  await dialog(watcher.page).getByRole('button', { name: 'Abort' }).click()
  await page.locator('h1').getByText('aborted').waitFor()
  await writer.close()
  await watcher.close()
})

test('nodes with leases; a drain with progress, which the other node sees; pages about one node name it', { skip }, async () => {
  const first = await at(one, people.ada)
  const second = await at(two, people.ada)
  const { page } = first
  await first.visit('nodes?app=dev')
  for (const name of ['one', 'two']) {
    const cells = (await row(page, name).locator('td').allInnerTexts()).map((text) => text.trim())
    const lease = cells.find((text) => /^\d+(\.\d+)? (ms|s)$/.test(text))
    assert.ok(lease, `${name} has a lease: ${cells.join(' | ')}`)
    const ms = parseFloat(lease) * (lease.endsWith('ms') ? 1 : 1000)
    assert.ok(ms > 0 && ms <= LEASE_MS, lease)
  }
  await until('the connections of node one', async () => (await row(page, 'one').innerText()).includes(`\t${CONNECTED}\t`))
  await first.checkAccess('nodes of a cluster')
  await first.picture('cluster-nodes')

  await button(page, 'Start drain').click()
  await page.locator('dialog').getByLabel('Spread over').fill('40s')
  await page.locator('dialog').getByLabel('Deadline').fill('10m')
  await page.locator('dialog').getByRole('button', { name: 'Start drain' }).click()
  const progress = page.getByRole('progressbar', { name: 'Devices moved' })
  await progress.waitFor()
  await second.visit('nodes?app=dev')
  await row(second.page, 'one').getByText(/^drain(ing|ed)$/).waitFor()
  await until('progress', async () => await progress.evaluate(({ value, max }) => value > 0 && max === 8))
  await first.checkAccess('a drain')
  await first.picture('cluster-drain')
  await button(page, 'Cancel drain').click()
  await page.locator('dialog').getByRole('button', { name: 'Cancel drain' }).click()
  await button(page, 'Start drain').waitFor()
  await row(second.page, 'one').getByText('serving').waitFor()

  for (const path of ['queues', 'doctor']) {
    await second.visit(`${path}?app=dev`)
    await second.page.locator('.lead').filter({ hasText: /\btwo\b/ }).waitFor()
  }
  await second.visit('profile?app=dev')
  await second.page.getByLabel('Duration').selectOption('1')
  // An idle node has no samples.
  let busy = true
  const work = (async () => {
    while (busy) await Promise.all(Array.from({ length: 8 }, () => operator(two).raw('GET', '/v1/configuration')))
  })()
  await button(second.page, 'Take profile').click()
  await second.page.locator('.facts').getByText('two', { exact: true }).waitFor()
  busy = false
  await work
  await first.close()
  await second.close()
})
