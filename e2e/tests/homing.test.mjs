/** `noroshi bench homing` at a small size: all of it runs, nothing is lost, and `noroshi sim` accepts its report. */

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { missingEngines, temporaryFolder } from '../lib/engines.mjs'
import { cli } from '../lib/node.mjs'

const folder = temporaryFolder('homing')
const REPORT = join(folder, 'homing.json')

test('bench homing measures several nodes, and a killed one loses nothing', { skip: missingEngines() ?? false }, async () => {
  const { code, stdout, stderr } = await cli([
    'bench', 'homing', '--gateways', '3', '--devices', '60', '--targets', '20', '--in-flight', '4', '--rounds', '2',
    '--warm-up', '500ms', '--duration', '2s', '--settle', '200ms', '--pause', '1s', '--json',
  ])
  assert.equal(code, 0, stderr)
  writeFileSync(REPORT, stdout)
  const report = JSON.parse(stdout)
  const figures = Object.fromEntries(report.figures.map(({ key, median }) => [key, median]))
  assert.deepEqual(
    [figures.devices_connected, figures.log_ins_that_failed, figures.deliveries_lost, figures.stored_messages_lost],
    [180, 0, 0, 0],
    stderr,
  )
  assert.equal(figures.devices_of_the_gateway_that_ended, 60)
  assert.ok(figures.connections_lost >= 60)
  assert.ok(figures.deliveries > 0 && figures.stored_messages_accepted_around_it > 0)
  for (const key of ['redis_commands_per_delivery', 'gateway_cpu_per_delivery', 'postgresql_cpu_per_log_in', 'redis_cpu_to_gateway_cpu']) {
    assert.ok(key in figures, `${key} in ${Object.keys(figures)}`)
  }
})

test('sim learns from a report, is validated with it, and writes a page', { skip: missingEngines() ?? false }, async () => {
  const page = join(folder, 'sim.html')
  const { code, stdout, stderr } = await cli([
    'sim', '--measured', REPORT, '--validate', REPORT, '--devices', '1M,10M', '--json', '--out', page,
  ])
  assert.equal(code, 0, stderr)
  const model = JSON.parse(stdout)
  assert.deepEqual(model.outcomes.map(({ sizing }) => sizing.devices), [1_000_000, 10_000_000])
  assert.ok(model.compared.some(({ name }) => name === 'deliveries'), stdout)
  assert.ok(model.parameters.some(({ source }) => source.startsWith('measured: ')))
  const html = readFileSync(page, 'utf8')
  assert.ok(html.includes('Prediction and measurement') && html.includes('Not modelled'))
  assert.ok(html.includes('no prediction') && stderr.includes('no validation'), 'the validation run must differ from the measured one')
})

test('sim rejects unusable reports', async () => {
  for (const [args, wrong] of [
    [['--devices', 'many'], 2],
    [['--set', 'gateway.nothing=1'], 2],
    [['--validate', join(folder, 'no-such-file')], 1],
  ]) {
    const { code, stderr } = await cli(['sim', ...args])
    assert.equal(code, wrong, stderr)
  }
})
