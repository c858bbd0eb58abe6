/** `noroshi bench --protocol`: every protocol on a node, MQTT also on Mosquitto. */

import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { hs256, now } from '../lib/jwt.mjs'
import { cli, freePort, JWT_SECRET, KEY, Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const DEVICES = 24
/** With the protocol's label in the node's metrics. */
const PROTOCOLS = { native: 'native', sse: 'native', socketio: 'socketio', mqtt: 'mqtt', xmpp: 'xmpp' }
let node, own

before(async () => {
  const [mqtt, xmpp] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`]
  own = { mqtt: ['--mqtt', mqtt], xmpp: ['--xmpp', xmpp] }
  node = await Node.start({ args: [...own.mqtt, ...own.xmpp] })
})
after(() => node.stop())

/** The report of a measurement, its figures by key. */
async function bench(scenario, ...options) {
  const { code, stdout, stderr } = await cli(['bench', scenario, '--settle', '100ms', '--repeat', '1', '--json', ...options])
  assert.equal(code, 0, stderr)
  const report = JSON.parse(stdout)
  return { ...report, figures: Object.fromEntries(report.figures.map((figure) => [figure.key, figure])) }
}

const here = (protocol) => [
  '--protocol', protocol, '--server', node.http, '--key', KEY, '--jwt-secret', JWT_SECRET, '--name', `bench-${protocol}`,
  ...(own[protocol] ?? []),
]

/** Number of notifications that the node has written to connections of a protocol. */
async function written(protocol) {
  const metrics = await (await node.admin('/metrics')).text()
  const line = new RegExp(`^noroshi_messages_written_total\\{protocol="${protocol}"\\} (\\d+)$`, 'm')
  return Number(line.exec(metrics)?.[1] ?? 0)
}

for (const [protocol, label] of Object.entries(PROTOCOLS)) {
  test(`bench reaches every device over ${protocol}, by broadcast and directly`, async () => {
    const before = await written(label)
    const { figures, server } = await bench(
      'broadcast', '--connections', `${DEVICES}`, '--messages', '2', '--rounds', '3', '--processes', '2', ...here(protocol),
    )
    assert.ok(server.startsWith(node.http) && (protocol === 'native' || server.endsWith(protocol)), server)
    assert.ok(figures.deliveries.median > 0 && figures.delivery_latency_p50.median > 0)
    // Two warm-up rounds and three measured ones.
    assert.equal((await written(label)) - before, DEVICES * 2 * (2 + 3))
    const direct = await bench(
      'direct', '--connections', `${DEVICES}`, '--targets', '8', '--in-flight', '2', '--warm-up', '0s', '--duration', '500ms',
      ...here(protocol),
    )
    assert.equal(direct.figures.deliveries_lost.median, 0)
    assert.ok(direct.figures.deliveries.median > 0)
  })

  test(`bench holds idle connections over ${protocol}`, async () => {
    const { figures } = await bench('idle', '--counts', '5,10', '--duration', '500ms', ...here(protocol))
    assert.equal(figures.connections_lost.median, 0)
  })
}

for (const protocol of ['native', 'socketio', 'mqtt', 'xmpp']) {
  test(`devices of bench over ${protocol} acknowledge stored notifications`, async () => {
    const { figures } = await bench(
      'direct', '--connections', '6', '--targets', '3', '--connected-share', '1', '--when', 'stored', '--in-flight', '1',
      '--rate', '20', '--warm-up', '0s', '--duration', '500ms', ...here(protocol),
    )
    assert.equal(figures.deliveries_lost.median, 0)
    assert.ok(figures.deliveries.median > 0)
    // The devices disconnected at once: their last acknowledgements may still be in transit to the store.
    for (let number = 0; number < 6; number++) {
      const name = `bench-${protocol}-${number}`
      const token = hs256(JWT_SECRET, { sub: name, device: name, aud: 'dev', exp: now() + 600 })
      await until(`an empty inbox of ${name}`, async () => (await node.api.call('GET', '/v1/me', { token })).inbox === 0)
    }
  })
}

test('bench rejects contradicting options before anything starts', async () => {
  for (const [options, told] of [
    [['--protocol', 'sse', '--when', 'stored'], /--protocol sse/],
    [['--protocol', 'mqtt', '--server', node.http, '--key', KEY, '--jwt-secret', JWT_SECRET], /--mqtt HOST:PORT/],
    [['--protocol', 'mqtt', '--websocket', node.ws], /omit --protocol/],
  ]) {
    const { code, stderr } = await cli(['bench', 'broadcast', ...options])
    assert.equal(code, 2, stderr)
    assert.match(stderr, told)
  }
})

const missing = spawnSync('mosquitto', ['-h']).error && 'mosquitto is not installed'

test('bench measures Mosquitto with the same devices', { skip: missing ?? false }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-e2e-mosquitto-'))
  const port = await freePort()
  writeFileSync(join(folder, 'mosquitto.conf'), `listener ${port} 127.0.0.1\nallow_anonymous true\n`)
  const mosquitto = spawn('mosquitto', ['-c', join(folder, 'mosquitto.conf')], { stdio: 'ignore' })
  try {
    const there = ['--mqtt-server', `127.0.0.1:${port}`, '--pid', `${mosquitto.pid}`]
    const { figures, server } = await bench('broadcast', '--connections', `${DEVICES}`, '--rounds', '5', '--floor', ...there)
    assert.equal(server, `mqtt://127.0.0.1:${port}`)
    assert.ok(figures.deliveries.median > 0 && figures.deliveries.floor.median > 0)
    const idle = await bench('idle', '--counts', '5,10', '--duration', '500ms', '--inbox', 'in/{device}', ...there)
    assert.equal(idle.figures.connections_lost.median, 0)
  } finally {
    mosquitto.kill()
    rmSync(folder, { recursive: true, force: true })
  }
})
