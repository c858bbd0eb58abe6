/** `noroshi bench` against a third-party server: npm `ws` as a broadcast server. */

import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import { after, before, test } from 'node:test'

import { WebSocketServer } from 'ws'

import { cli } from '../lib/node.mjs'

const DEVICES = 40
let server, address, names

before(async () => {
  server = createServer((request, response) => {
    if (request.url !== '/publish' || request.headers['x-key'] !== 'secret') return response.writeHead(403).end()
    let body = ''
    request.on('data', (chunk) => (body += chunk))
    request.on('end', () => {
      tellAll(JSON.parse(body).text)
      response.writeHead(204).end()
    })
  })
  names = new Set()
  const sockets = new WebSocketServer({ server, path: '/room' })
  const tellAll = (text) => {
    const frame = JSON.stringify({ type: 'message', text })
    for (const socket of sockets.clients) if (socket.joined) socket.send(frame)
  }
  sockets.on('connection', (socket) => {
    socket.on('message', (data) => {
      const said = JSON.parse(data)
      if (said.type === 'join') {
        names.add(said.name)
        socket.joined = true
        socket.send(JSON.stringify({ type: 'joined', name: said.name }))
      } else {
        tellAll(said.text)
      }
    })
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  address = `127.0.0.1:${server.address().port}`
})
after(() => {
  server.closeAllConnections()
  server.close()
})

/** The report of a measurement, its figures by key. */
async function bench(scenario, ...options) {
  const { code, stdout, stderr } = await cli([
    'bench', scenario, '--websocket', `ws://${address}/room`, '--hello', '{"type":"join","name":"{device}"}',
    '--ready', '"joined"', '--pid', `${process.pid}`, '--settle', '100ms', '--json', ...options,
  ])
  assert.equal(code, 0, stderr)
  const report = JSON.parse(stdout)
  return { ...report, figures: Object.fromEntries(report.figures.map((figure) => [figure.key, figure])) }
}

test('bench broadcast reaches every device of another server, publishing by POST or on a WebSocket', async () => {
  const post = ['--publish-url', `http://${address}/publish`, '--publish-header', 'X-Key: secret']
  for (const [how, publish] of [
    [post, '{"text":"{data}"}'],
    [[], '{"type":"say","text":"{data}"}'],
  ]) {
    const { figures, server } = await bench(
      'broadcast', '--connections', `${DEVICES}`, '--rounds', '5', '--repeat', '2', '--processes', '2',
      ...how, '--publish-body', publish,
    )
    assert.equal(server, `ws://${address}/room`)
    assert.equal(figures.deliveries.values.length, 2)
    assert.ok(figures.delivery_latency_p50.median > 0)
  }
  for (let number = 0; number < DEVICES; number++) assert.ok(names.has(`bench-${number}`), `bench-${number} joined`)
})

test('bench connect measures the log-ins of another server and the floor', async () => {
  const { figures, floor } = await bench('connect', '--connections', `${DEVICES}`, '--repeat', '2', '--floor')
  assert.match(floor, /epoll/)
  for (const key of ['log_ins', 'log_in_latency_p50']) {
    const figure = figures[key]
    assert.ok(figure.median > 0 && figure.floor.median > 0, key)
    figure.ratio.values.forEach((ratio, at) => {
      assert.ok(Math.abs(ratio - figure.values[at] / figure.floor.values[at]) < 1e-9, key)
    })
  }
})

test('bench reports an error of another server', async () => {
  const { code, stderr } = await cli([
    'bench', 'broadcast', '--connections', '2', '--websocket', `ws://${address}/room`,
    '--hello', '{"type":"join","name":"{device}"}', '--ready', '"joined"',
    '--publish-url', `http://${address}/publish`, '--publish-body', '{data}',
  ])
  assert.equal(code, 1)
  assert.match(stderr, /POST \/publish was answered with 403/)
})
