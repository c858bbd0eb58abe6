/**
 * The pictures of the web console in docs/pictures: `make pictures`. Each is a page of a real node with devices, traffic and
 * the fakes of the push services. Only the hour before is not real: the first minute, which the node recorded itself, is
 * repeated to fill it.
 */

import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { button, originOf, person, shopConsole, Visitor } from '../lib/console.mjs'
import { Device } from '../lib/device.mjs'
import { Node } from '../lib/node.mjs'
import { sleep, until } from '../lib/until.mjs'

const FOLDER = process.env.NOROSHI_PICTURES
if (!FOLDER) throw new Error('NOROSHI_PICTURES is the folder for the pictures; see scripts/pictures')

const RECORDED_STEPS = 7
const STEP_S = 10
const HOUR_S = 3600
const CONNECTED = 40
// The shop has 131 devices: its campaigns to everyone are large.
const shop = shopConsole({ args: ['--set', 'console.large_campaign=100', '--set', 'node.name=push-1'], values: { user: 'user-60', text: 'A gift for you' } })
const MESSAGES = [['Your order has shipped', 'orders'], ['Goal! 2:1', 'sport'], ['New message from Ken', 'chat'], ['Your table is ready', 'orders'], ['Price drop: blue jacket', 'offers'], ['Anna liked your photo', 'chat'], ['Kick-off in 10 minutes', 'sport']]
const traffic = { on: false, pauseMs: 20 }

async function picture(page, name, options) {
  // Nothing that a mouse or the focus left behind.
  await page.mouse.move(0, 0)
  await page.evaluate(() => document.activeElement.blur())
  await page.screenshot({ path: join(FOLDER, `console-${name}.png`), ...options })
}

async function startTraffic() {
  // Of those without push tokens.
  const names = Array.from({ length: CONNECTED }, (_, index) => `${index % 2 === 0 ? 'iphone' : 'pixel'}-${String(index + 60).padStart(3, '0')}`)
  const tokens = await Promise.all(names.map(async (device) => (await shop.node.api.call('POST', '/v1/devices', { body: { device } })).token))
  traffic.devices = await Promise.all(tokens.map((token) => Device.connect(shop.node.ws, token)))
  for (const device of traffic.devices) {
    device.socket.on('message', (data) => {
      const frame = JSON.parse(data)
      if (frame.t === 'msg') device.ack(frame.id)
      device.queue.length = 0
    })
  }
  traffic.on = true
  traffic.run = (async () => {
    for (let count = 0; traffic.on; count += 1) {
      const to = count % 8 === 0 ? { topic: 'sport/football' } : { users: [`user-${count % 60}`] }
      const [title, category] = MESSAGES[count % MESSAGES.length]
      await shop.node.api.publish({ to, ttl: '5m', when: count % 3 === 0 ? 'stored' : 'connected', notification: { title }, category, ...(count % 5 === 0 ? { push: { mode: 'always' } } : {}) })
      await sleep(traffic.pauseMs)
    }
  })().catch((error) => {
    // The node ends after the last picture.
    if (!shop.node.terminated) throw error
  })
}

async function stopTraffic() {
  traffic.on = false
  await traffic.run
  for (const device of traffic.devices ?? []) device.socket.terminate()
}

const sql = (statement) => execFileSync('sqlite3', [join(shop.node.data, 'noroshi.db'), statement], { encoding: 'utf8' }).trim()

/** Repeats the recorded steps in the hour before them: first rarely, then more often, the busy ones. */
async function fillTheHour() {
  const steps = () => Number(sql(`SELECT count(*) FROM series WHERE step = ${STEP_S}`))
  const end = Date.now() + RECORDED_STEPS * STEP_S * 1000
  await until('recorded steps', () => {
    // More and more requests.
    traffic.pauseMs = Math.max(4, (end - Date.now()) / 2000)
    return steps() > RECORDED_STEPS
  }, 200_000)
  await stopTraffic()
  await shop.node.drain()
  const times = sql(`SELECT at FROM series WHERE step = ${STEP_S} ORDER BY at`).split('\n').map(Number)
  const first = times[0]
  // The store counts in milliseconds.
  const statements = Array.from({ length: HOUR_S / STEP_S }, (_, index) => {
    const wave = 0.5 + 0.35 * Math.sin(index / 38) + 0.15 * Math.sin(index / 5) * Math.sin(index / 3.3)
    const from = times[Math.min(times.length - 1, 1 + Math.floor(wave * (times.length - 1)))]
    return `INSERT OR IGNORE INTO series SELECT step, ${first - (index + 1) * STEP_S * 1000}, node, data FROM series WHERE step = ${STEP_S} AND at = ${from};`
  })
  sql(statements.join('\n'))
  await shop.node.spawn()
}

async function prepare() {
  await startTraffic()
  await fillTheHour()
  traffic.pauseMs = 15
  await startTraffic()
}
let prepared
const visit = (options, use) => shop.visit(options, async (visitor, page) => {
  await (prepared ??= prepare())
  await use(visitor, page)
})
test('overview', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('?app=dev')
  await page.locator('figure.chart canvas').first().waitFor()
  await until('live figures', async () => parseFloat(await page.locator('.live .tile strong').nth(2).textContent()) > 0)
  await picture(page, 'overview')
}))

test('live tail', visit({ as: 'ada' }, async (visitor, page) => {
  traffic.pauseMs = 400
  await visitor.visit('live?app=dev')
  await until('a screen of events', async () => await page.locator('.tail-row').count() > 16, 60_000)
  await button(page, 'Pause').click()
  await picture(page, 'live')
}))

test('notification', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit(`notification?app=dev&id=${shop.ids.pushed}&device=iphone-004`)
  await page.getByText('Request and response').first().click()
  await page.locator('.timeline .code').first().waitFor()
  await picture(page, 'notification')
}))

test('user', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('user?app=dev&id=user-2&tab=notifications')
  await page.locator('tbody tr').first().waitFor()
  await picture(page, 'user')
}))

test('campaign: message, review, progress, in Japanese', visit({ as: 'mika' }, async (visitor, page) => {
  await visitor.visit('new-campaign?app=dev')
  await page.getByLabel('Name').fill('Weekend deals')
  await button(page, 'Next: Message').click()
  await page.getByLabel('Title', { exact: true }).fill('{{name}}, the weekend starts now')
  await page.getByLabel('Text', { exact: true }).fill('20 % off until Sunday evening.')
  await page.getByLabel('name', { exact: true }).fill('Hello')
  await page.getByLabel('Language tag').fill('ja')
  await button(page, 'Add language').click()
  await page.getByLabel('Title (ja)').fill('週末セール開始')
  await page.getByLabel('Text (ja)').fill('日曜の夜まで 20% オフ')
  await page.locator('.save-line.saved').waitFor()
  await page.evaluate(() => { scrollTo(0, 0) })
  await picture(page, 'campaign-message')
  await page.locator('.segmented').getByText('3. Schedule').click()
  await page.getByLabel('Maximum rate per second').fill('4')
  await page.locator('.save-line.saved').waitFor()
  await page.locator('.segmented').getByText('4. Review').click()
  await page.getByText('Counted exactly.').waitFor()
  await page.evaluate(() => scrollTo(0, 0))
  await page.setViewportSize({ width: 1280, height: 1040 })
  await picture(page, 'campaign-review')
}))

for (const [name, options, title] of [
  ['campaign', { as: 'ada' }, 'Weekend deals'],
  ['ja-dark', { as: 'ada', language: 'ja', theme: 'dark' }, '週末セール'],
]) {
  test(`a running campaign: ${name}`, visit(options, async (visitor, page) => {
    const { id } = await shop.node.api.call('POST', '/v1/campaigns', {
      body: { name: title, audience: { everyone: true }, message: { notification: { title, body: '20 % off until Sunday' } }, rate_per_second: 4 },
    })
    await visitor.visit(`campaign?app=dev&id=${id}`)
    await until('devices to be done', async () => (await shop.node.api.call('GET', `/v1/campaigns/${id}`)).done >= 40, 60_000)
    await page.locator('figure.chart canvas').waitFor()
    await until('the page to show it', async () => await page.getByRole('progressbar').evaluate(({ value }) => value) >= 40)
    await picture(page, name)
    await shop.node.api.call('POST', `/v1/campaigns/${id}/abort`)
  }))
}

test('people', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('people?app=dev')
  await picture(page, 'people')
}))

test('doctor', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('doctor?app=dev')
  // Without what is particular to the machine.
  await picture(page, 'doctor', { clip: { x: 0, y: 0, width: 1280, height: 690 } })
}))

test('queues', visit({ as: 'ada', theme: 'dark' }, async (visitor, page) => {
  await visitor.visit('queues?app=dev')
  await picture(page, 'queues')
}))

test('reference', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('reference?app=dev&id=publish')
  await button(page, 'Send request').click()
  await page.locator('dialog').getByRole('button').last().click()
  await page.getByText('202 Accepted').waitFor()
  await page.evaluate(() => { scrollTo(0, 0) })
  await page.locator('.toast').waitFor({ state: 'detached' }).catch(() => undefined)
  await picture(page, 'reference')
}))

test('a phone', visit({ as: 'ada', width: 390, height: 844 }, async (visitor, page) => {
  traffic.pauseMs = 40
  await visitor.visit('?app=dev')
  await page.locator('figure.chart canvas').first().waitFor()
  await until('live figures', async () => parseFloat(await page.locator('.live .tile strong').nth(2).textContent()) > 0)
  await picture(page, 'phone')
}))

test('cells', visit({ as: 'ada' }, async (_, page) => {
  await stopTraffic()
  const cells = await Promise.all([Node.start(), Node.start(), Node.start()])
  const file = join(shop.node.data, 'cells.toml')
  const tokenOf = (node) => readFileSync(join(node.data, 'operator.token'), 'utf8').trim()
  writeFileSync(file, cells.map((node, at) => `[[cell]]
name = "eu-${at + 1}"
urls = ["${node.http}"]
admin_url = "${originOf(node)}"
operator_token = "${tokenOf(node)}"
`).join(''), { mode: 0o600 })
  const front = await Node.start({ args: ['--role', 'front'], env: { NOROSHI__FRONT__CELLS_FILE: file } })
  const ada = await person(front, 'ada@example.com', 'Ada Lovelace', ['*', 'owner'])
  const register = (index) => front.api.raw('POST', '/v1/devices', { body: { device: `phone-${index}`, user: `user-${index % 40}` } })
  await until('the cells to know the app', async () => (await register(0)).status === 201)
  for (let index = 1; index < 90; index += 1) await register(index)
  const visitor = await Visitor.open(page.context().browser(), originOf(front), { as: ada })
  await visitor.visit('cells?app=dev')
  await picture(visitor.page, 'cells')
  await visitor.close()
  await Promise.all([front, ...cells].map((node) => node.stop()))
}))
