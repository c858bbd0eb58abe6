/**
 * The overview of the web console in Chromium: live figures, graphs, and what people with a role in one app see. The time
 * series and the live figures of a cluster through the API.
 */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { api } from '../lib/api.mjs'
import { Cluster } from '../lib/cluster.mjs'
import { hasBrowser, originOf, person, shopConsole } from '../lib/console.mjs'
import { missingEngines, Postgres, Redis } from '../lib/engines.mjs'
import { operator } from '../lib/operator.mjs'
import { sleep, until, within } from '../lib/until.mjs'

const shop = shopConsole()
const { visit } = shop

const tile = (page, name) => page.locator('.live .tile').filter({ has: page.locator('dt', { hasText: new RegExp(`^${name}$`) }) }).locator('strong')
const chart = (page, name) => page.locator('figure.chart').filter({ has: page.locator('.chart-title', { hasText: new RegExp(`^${name}$`) }) })
const viewers = async () => {
  const text = await (await shop.node.admin('/metrics')).text()
  return Number(/^noroshi_series_viewers (\d+)$/m.exec(text)[1])
}

/** Publishes until `stop` is called. */
function publishing(provider) {
  let on = true
  const run = (async () => {
    while (on) {
      await provider.publish({ to: { topic: 'news' }, when: 'connected', data: 1 })
      await sleep(50)
    }
  })()
  return async () => {
    on = false
    await run
  }
}

for (const [language, theme, width, words] of [
  ['en', 'light', 1280, { live: 'Live', publishes: 'Publishes', table: /Table/, app: 'This app' }],
  ['ja', 'dark', 360, { live: 'ライブ', publishes: '発行', table: /表/, app: 'このアプリ' }],
]) {
  test(`live figures and graphs: ${language}, ${theme}, ${width} px`, visit({ as: 'ada', language, theme, width }, async (visitor, page) => {
    const stop = publishing(shop.node.api)
    await visitor.visit('?app=dev')
    await page.getByRole('status').filter({ hasText: words.live }).first().waitFor()
    const rate = tile(page, words.publishes)
    await until('a live rate', async () => /^[\d.,]+\/s$/.test(await rate.textContent()) && parseFloat(await rate.textContent()) > 0)
    // The first rows are written within 10 s of the node's start.
    await chart(page, words.publishes).locator('canvas').waitFor()
    await visitor.checkAccess('overview')
    await visitor.checkWidth('overview')
    await visitor.picture('overview-figures')
    await chart(page, words.publishes).getByRole('button', { name: words.table }).click()
    await chart(page, words.publishes).locator('tbody tr').first().waitFor()

    // By keyboard: the arrows choose the span, which the address keeps.
    await page.locator('.segmented input').last().evaluate((input) => input.closest('.segmented').querySelector('input:checked').focus())
    for (const span of ['6h', '24h', '7d', '30d']) {
      await page.keyboard.press('ArrowRight')
      await until(span, () => new URL(page.url()).searchParams.get('span') === span)
      await visitor.settled()
      await visitor.checkWidth(span)
    }
    await visitor.picture('overview-30d')
    await visitor.checkAccess('30 days')

    // One app: without the figures of nodes.
    await page.getByText(words.app, { exact: true }).click()
    await until('the address', () => new URL(page.url()).searchParams.get('of') === 'app')
    await page.getByRole('status').filter({ hasText: words.live }).first().waitFor()
    await until('a live rate of the app', async () => parseFloat(await rate.textContent()) > 0)
    assert.equal(await page.locator('figure.chart').count(), 6)
    await visitor.checkAccess('of an app')
    await visitor.picture('overview-app')
    await stop()
  }))
}

test('no chart is alone in its row, and titles follow the language at once', visit({ as: 'ada' }, async (visitor, page) => {
  const inRows = () => page.locator('figure.chart').evaluateAll((all) => {
    const rows = Map.groupBy(all, (one) => Math.round(one.getBoundingClientRect().top))
    return [...rows.values()].map((row) => row.length)
  })
  for (const [path, count] of [['?app=dev&span=30d', 10], ['?app=dev&span=30d&of=app', 6]]) {
    await visitor.visit(path)
    await page.locator('figure.chart').nth(count - 1).waitFor()
    for (const width of [1920, 1600, 1440, 1366, 1280, 1024, 768]) {
      await page.setViewportSize({ width, height: 1000 })
      const rows = await inRows()
      assert.equal(rows.reduce((sum, row) => sum + row, 0), count)
      assert.ok(rows.every((row) => row > 1), `${path} at ${width} px: ${rows}`)
      await visitor.checkWidth(`${path} at ${width} px`)
      if (count === 10) await page.screenshot({ fullPage: true, ...(process.env.NOROSHI_CONSOLE_PICTURES ? { path: `${process.env.NOROSHI_CONSOLE_PICTURES}/overview-rows-${width}.png` } : {}) })
    }
  }
  await page.getByRole('button', { name: /^Account of/ }).click()
  await page.getByRole('menuitemradio', { name: '日本語' }).click()
  await chart(page, '発行').waitFor()
}))

test('a viewer of one app sees its figures only', visit({ as: 'vera' }, async (visitor, page) => {
  const asked = []
  page.on('request', (request) => asked.push(new URL(request.url()).pathname))
  await visitor.visit('?app=dev')
  await page.getByRole('status').filter({ hasText: 'Live' }).first().waitFor()
  assert.equal(await page.getByText('All apps', { exact: true }).count(), 0)
  assert.equal(await page.locator('.live .tile').count(), 6)
  assert.ok(asked.includes('/console/api/v1/apps/dev/live') && asked.includes('/console/api/v1/apps/dev/series'))
  assert.ok(!asked.some((path) => /\/v1\/(live|series|nodes)$/.test(path)), asked.join('\n'))
}))

test('a hidden page has no stream, and nothing runs without viewers', visit({ as: 'ada' }, async (visitor, page) => {
  await visitor.visit('?app=dev')
  await page.getByRole('status').filter({ hasText: 'Live' }).first().waitFor()
  assert.ok((await viewers()) >= 1)
  const show = (state) => page.evaluate((value) => {
    Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => value })
    document.dispatchEvent(new Event('visibilitychange'))
  }, state)
  await show('hidden')
  await page.getByRole('status').filter({ hasText: 'Paused' }).first().waitFor()
  await until('no stream', async () => (await viewers()) === 0)
  await show('visible')
  await page.getByRole('status').filter({ hasText: /^Live$/ }).first().waitFor()
  // Away from the overview there is none either.
  await visitor.visit('devices?app=dev')
  await until('no stream', async () => (await viewers()) === 0)
}))

test('a stream ends with the session', async (t) => {
  if (!hasBrowser) return t.skip('no Chromium (Debian package chromium)')
  const eve = await person(shop.node, 'eve@example.com', 'Eve', ['dev', 'viewer'])
  const stream = await live(shop.node, eve, '/v1/apps/dev/live')
  assert.ok((await stream.next()).figures.connections >= 0)
  const out = await fetch(`${originOf(shop.node)}/console/api/v1/session`, { headers: { cookie: `noroshi_session=${eve.cookie}` } })
  const { csrf } = await out.json()
  const ended = await fetch(`${originOf(shop.node)}/console/api/v1/session`, {
    method: 'DELETE', headers: { cookie: `noroshi_session=${eve.cookie}`, 'noroshi-csrf': csrf },
  })
  assert.equal(ended.status, 204)
  await within('the end of the stream', (async () => { while (await stream.next());  })())
})

/** An event stream: `next` resolves with the data of the next event, or undefined at its end. */
async function live(node, someone, path) {
  const answer = await fetch(`${originOf(node)}/console/api${path}`, { headers: { cookie: `noroshi_session=${someone.cookie}` } })
  assert.equal(answer.status, 200, path)
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  return {
    async next() {
      while (!text.includes('\n\n')) {
        const { done, value } = await within('an event', reader.read())
        if (done) return undefined
        text += value
      }
      const end = text.indexOf('\n\n')
      const data = JSON.parse(/^data: (.*)$/m.exec(text.slice(0, end))[1])
      text = text.slice(end + 2)
      return data
    },
    close: () => reader.cancel(),
  }
}

test('figures of a cluster are summed, and a missing node is named', async (t) => {
  const missing = missingEngines()
  if (missing) return t.skip(missing)
  const [postgres, redis] = await Promise.all([Postgres.start(), Redis.start()])
  let cluster
  t.after(async () => {
    await cluster?.stop()
    await Promise.all([postgres.stop(), redis.stop()])
  })
  cluster = await Cluster.start({
    postgres: postgres.url,
    redis: redis.url,
    nodes: [{ name: 'one', roles: ['api', 'gateway', 'sender'] }, { name: 'two', roles: ['api', 'gateway', 'sender'] }],
  })
  await cluster.seen()
  const [one, two] = ['one', 'two'].map((name) => cluster.node(name))
  const admin = operator(one)
  await admin.app('figures')
  const made = await admin.raw('POST', '/v1/apps/figures/keys', { name: 'two', scopes: ['publish'] })
  assert.equal(made.status, 201)
  await until('the app on both nodes', async () => (await operator(two).raw('GET', '/v1/apps/figures')).status === 200)
  const provider = api(two.http, made.body.key)
  const publish = () => provider.publish({ to: { topic: 'news' }, when: 'connected', data: 1 })
  const ann = await person(one, 'ann@example.com', 'Ann', ['*', 'viewer'])

  // Live at one node, published at the other.
  const stream = await live(one, ann, '/v1/live')
  await until('both nodes', async () => (await stream.next()).nodes.every((node) => !node.missing))
  const first = await stream.next()
  assert.deepEqual(first.nodes.map(({ name }) => name), ['one', 'two'])
  await until('the rate of the other node', async () => {
    await publish()
    return (await stream.next()).figures.publishes > 0
  })
  const ofApp = await live(one, ann, '/v1/apps/figures/live')
  await until('the rate of the app at the other node', async () => {
    await publish()
    const { nodes, figures } = await ofApp.next()
    assert.equal(nodes, undefined)
    return figures.publishes > 0
  })
  await ofApp.close()

  // Rows of both nodes are one series, at any node.
  const series = async (node, query = '') => (await operator(node).raw('GET', `/v1/series?names=publishes${query}`)).body
  const sum = ({ series: [{ points }] }) => points.reduce((total, point) => total + point, 0)
  const whole = await until('rows of both nodes', async () => {
    const answer = await series(two)
    return answer.nodes_count === 2 && sum(answer) >= 2 && answer
  }, 60_000)
  assert.ok(whole.covered_s.includes(0), 'before the start is a gap')
  assert.equal(whole.series[0].points[0], null)
  const own = await operator(one).raw('GET', '/v1/apps/figures/series?names=publishes')
  assert.ok(sum(own.body) >= 2)
  assert.equal(own.body.nodes, null)

  // A node that is killed is missing at once in the live figures, and from then on in the series.
  await two.kill()
  await until('the node to be missing', async () => {
    const { nodes, nodes_missing } = await stream.next()
    return nodes_missing === 1 ? nodes.some(({ name, missing }) => name === 'two' && missing) : nodes.length === 1
  })
  await until('the gap of the node', async () => {
    const { nodes } = await series(one)
    return nodes.find(({ name }) => name === 'two')?.missing.length === 1
  }, 60_000)
  await stream.close()
})
