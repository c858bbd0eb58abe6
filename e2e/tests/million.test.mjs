/** `noroshi bench million` at a small size: the plan, the check of limits, and all phases. */

import assert from 'node:assert/strict'
import { test } from 'node:test'

import { missingEngines } from '../lib/engines.mjs'
import { cli } from '../lib/node.mjs'

test('the plan of a million shows processes, memory and limits, and starts nothing', async () => {
  const { code, stdout, stderr } = await cli(['bench', 'million', '--plan'])
  assert.equal(code, 0, stderr)
  for (const part of ['1000000 devices', 'two sockets per device', 'open files of the machine', 'tcp']) {
    assert.ok(stdout.toLowerCase().includes(part), `${part} in ${stdout}`)
  }
})

test('a machine that is too small is rejected with the names of its settings', async () => {
  const { code, stderr } = await cli(['bench', 'million', '--devices', '100000000'])
  assert.notEqual(code, 0)
  assert.ok(stderr.includes('this machine cannot hold') && stderr.includes('--plan'), stderr)
})

test('bench million connects, publishes, loses and drains gateways', { skip: missingEngines() ?? false }, async () => {
  const { code, stdout, stderr } = await cli([
    'bench', 'million', '--devices', '150', '--clients', '2', '--idle', '1s', '--settle', '200ms', '--rounds', '2', '--direct', '60',
    '--in-flight', '4', '--drains', '2', '--json',
  ])
  assert.equal(code, 0, stderr)
  const report = JSON.parse(stdout)
  const figures = Object.fromEntries(report.figures.map(({ key, median }) => [key, median]))
  assert.deepEqual(
    [figures.devices, figures.gateway_nodes, figures.client_processes, figures.log_ins_that_failed, figures.random_messages_accepted, figures.random_messages_lost],
    [150, 3, 2, 0, 60, 0],
    stderr,
  )
  // 50, unless a device found its gateway busy and logged in at another one.
  assert.ok(figures.killed_gateway_devices >= 40, stderr)
  assert.ok(figures.killed_gateway_connections_lost >= 1, stderr)
  assert.equal(figures.rolling_drain_gateways, 2)
  assert.ok(figures.rolling_drain_connections_moved >= 100, stderr)
  for (const key of [
    'memory_of_a_gateway_without_devices_proportional', 'memory_of_gateways_proportional', 'kernel_tcp_sockets', 'idle_gateway_cpu',
    'topic_message_to_all_time_to_reach_all', 'gateway_cpu_per_random_message', 'processes_of_postgresql', 'connections_to_redis',
  ]) {
    assert.ok(key in figures, `${key} in ${Object.keys(figures)}`)
  }
  assert.ok(stderr.includes('killing a gateway') && stderr.includes('drains'), 'progress is printed')
})
