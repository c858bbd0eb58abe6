/** The content of deploy/ is valid: configurations, the systemd unit, manifests, alerts, and examples for Redis. */

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { Program, missingEngines, temporaryFolder } from '../lib/engines.mjs'
import { BIN, cli, freePort } from '../lib/node.mjs'

const DEPLOY = fileURLToPath(new URL('../../deploy', import.meta.url))
const has = (command) => spawnSync('sh', ['-c', `command -v ${command}`]).status === 0

const configurations = [
  ['compose', 'noroshi.toml'],
  ['systemd', 'noroshi.toml'],
  ...readdirSync(join(DEPLOY, 'kubernetes', 'config')).map((name) => ['kubernetes', 'config', name]),
]

for (const path of configurations) {
  test(`${path.join('/')} is a valid configuration`, async () => {
    const folder = temporaryFolder('deploy')
    const key = join(folder, 'push.key')
    writeFileSync(key, 'ab'.repeat(32))
    // The key has another path here.
    const text = readFileSync(join(DEPLOY, ...path), 'utf8').replace('/etc/noroshi/secrets/push.key', key)
    const config = join(folder, 'noroshi.toml')
    writeFileSync(config, text)
    const { code, stdout, stderr } = await cli(['config', 'check', '--config', config], {
      NOROSHI__STORE__URL: 'postgres://noroshi:secret@postgres/noroshi?sslmode=require',
      NOROSHI__CLUSTER__REDIS: 'redis://:secret@redis:6379',
      NOROSHI__NODE__NAME: 'node-1',
    })
    assert.deepEqual([code, stderr], [0, ''], stdout)
  })
}

test('the variables of compose and Kubernetes are configuration keys', async () => {
  const texts = ['compose/compose.yaml', 'kubernetes/api.yaml', 'kubernetes/gateway.yaml', 'kubernetes/sender.yaml', 'Dockerfile']
  const found = new Set()
  for (const text of texts) {
    for (const [name] of readFileSync(join(DEPLOY, text), 'utf8').matchAll(/NOROSHI__[A-Z_]+/g)) found.add(name)
  }
  const { stdout } = await cli(['config', 'print', '--json', '--data', temporaryFolder('deploy')])
  const keys = new Set(JSON.parse(stdout).map(({ key }) => key))
  assert.ok(found.size >= 5, [...found].join())
  for (const name of found) {
    const key = name.replace('NOROSHI__', '').toLowerCase().replaceAll('__', '.')
    assert.ok(keys.has(key), `${name}: there is no key ${key}`)
  }
})

test('alerts and the dashboard use existing metrics and labels', () => {
  const page = readFileSync(join(DEPLOY, '..', 'docs', 'metrics.md'), 'utf8')
  const known = new Map()
  for (const [, name, kind, labels] of page.matchAll(/^\| `(noroshi_\w+)` \| (\w+) \| ([^|]*) \|/gm)) {
    const own = [...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label)
    const names = kind === 'histogram' ? ['_bucket', '_sum', '_count'].map((end) => name + end) : [name]
    for (const one of names) known.set(one, new Set([...own, 'instance', 'job', 'le']))
  }
  assert.ok(known.size > 150, `${known.size} metrics are documented`)
  const dashboard = JSON.parse(readFileSync(join(DEPLOY, 'grafana', 'noroshi.json'), 'utf8'))
  const asked = dashboard.panels.flatMap((panel) => (panel.targets ?? []).map(({ expr }) => expr))
  asked.push(...dashboard.annotations.list.map(({ expr }) => expr), ...dashboard.templating.list.map(({ query }) => query.query ?? ''))
  const alerts = readFileSync(join(DEPLOY, 'prometheus', 'alerts.yaml'), 'utf8')
  const named = []
  for (const text of [...asked, alerts]) {
    for (const [, metric, selector = ''] of text.matchAll(/\b(noroshi_\w+)(?:\{([^}]*)\})?/g)) {
      named.push(metric)
      assert.ok(known.has(metric), `${metric} is in ${text}`)
      for (const [, label] of selector.matchAll(/(\w+)\s*[!=]/g)) assert.ok(known.get(metric).has(label), `${label} of ${metric}`)
    }
  }
  // Grouping labels of the dashboard.
  for (const expr of asked) {
    const metric = /\b(noroshi_\w+)/.exec(expr)?.[1]
    for (const [, labels] of expr.matchAll(/\bby \(([^)]*)\)/g)) {
      for (const label of labels.split(', ')) assert.ok(known.get(metric).has(label), `${label} of ${metric}`)
    }
  }
  assert.ok(asked.length > 50 && named.length > 90, `${named.length} names in ${asked.length} queries`)
  assert.equal(new Set(dashboard.panels.map(({ id }) => id)).size, dashboard.panels.length)
})

test('promtool accepts the alerts, and they fire as expected', (t) => {
  if (!has('promtool')) return t.skip('no promtool (Debian package prometheus)')
  for (const args of [['check', 'rules', 'alerts.yaml'], ['test', 'rules', 'alerts_test.yaml'], ['check', 'config', 'prometheus.yaml']]) {
    const checked = spawnSync('promtool', args, { cwd: join(DEPLOY, 'prometheus'), encoding: 'utf8' })
    assert.equal(checked.status, 0, checked.stdout + checked.stderr)
  }
})

test('commands in alerts exist', async () => {
  const alerts = readFileSync(join(DEPLOY, 'prometheus', 'alerts.yaml'), 'utf8')
  const commands = [...alerts.matchAll(/`noroshi ([a-z -]+)`/g)].map(([, command]) => command)
  assert.ok(commands.length >= 3)
  for (const command of commands) assert.equal((await cli([...command.split(' '), '--help'])).code, 0, command)
})

test('URLs in examples are valid', async () => {
  const texts = ['redis/sentinel/sentinel.conf', 'redis/cluster/redis.conf', 'kubernetes/secret.example.yaml', 'README.md']
  const urls = texts.flatMap((text) => readFileSync(join(DEPLOY, text), 'utf8').match(/redis(-sentinel|-cluster)?:\/\/[^\s`"]+/g) ?? [])
  assert.ok(urls.length >= 3, urls.join())
  for (const url of urls) {
    const { code, stderr } = await cli(['config', 'check', '--data', temporaryFolder('deploy')], {
      NOROSHI__STORE__URL: 'postgres://noroshi@postgres/noroshi',
      NOROSHI__CLUSTER__REDIS: url,
    })
    assert.equal(code, 0, `${url}: ${stderr}`)
  }
})

test('the systemd unit is valid', { skip: has('systemd-analyze') ? false : 'systemd-analyze is not installed' }, () => {
  const unit = join(temporaryFolder('deploy'), 'noroshi.service')
  // Replaces the path of the program, which is not installed.
  writeFileSync(unit, readFileSync(join(DEPLOY, 'systemd', 'noroshi.service'), 'utf8').replaceAll('/usr/local/bin/noroshi', BIN))
  const { status, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', unit], { encoding: 'utf8' })
  assert.deepEqual([status, stderr.split('\n').filter((line) => line.includes('noroshi.service'))], [0, []])
})

test('kubectl builds the manifests', { skip: has('kubectl') ? false : 'kubectl is not installed' }, () => {
  const text = execFileSync('kubectl', ['kustomize', join(DEPLOY, 'kubernetes')], { encoding: 'utf8' })
  const kinds = [...text.matchAll(/^kind: (\w+)$/gm)].map(([, kind]) => kind)
  for (const kind of ['Deployment', 'StatefulSet', 'PodDisruptionBudget', 'Service', 'Secret', 'ConfigMap', 'NetworkPolicy']) {
    assert.ok(kinds.includes(kind), kind)
  }
  assert.ok(text.includes('registry.example.com/noroshi:'), 'the image has a name')
})

test('Redis and Sentinel start with their examples', { skip: missingEngines() ?? false }, async () => {
  const examples = [
    ['sentinel/master.conf', 'redis-server', []],
    ['sentinel/replica.conf', 'redis-server', ['--replicaof', '127.0.0.1', '1']],
    ['cluster/redis.conf', 'redis-server', ['--cluster-port', String(await freePort())]],
    ['sentinel/sentinel.conf', 'redis-sentinel', []],
  ]
  for (const [path, command, more] of examples) {
    const folder = temporaryFolder('deploy')
    const config = join(folder, 'redis.conf')
    const port = await freePort()
    // The host names of the examples do not resolve here.
    const text = readFileSync(join(DEPLOY, 'redis', path), 'utf8').replace(/redis-1 6379/g, '127.0.0.1 6379')
    writeFileSync(config, text.replace(/^port .*$/m, `port ${port}`).replace('bind 0.0.0.0', 'bind 127.0.0.1'))
    mkdirSync(join(folder, 'data'))
    const args = [config, '--dir', join(folder, 'data'), ...more]
    const program = new Program({ name: path, command, args, log: join(folder, 'log') })
    program.start()
    await program.ready(async () => {
      const words = ['-p', String(port), ...(command === 'redis-server' ? ['-a', 'change-me', '--no-auth-warning'] : []), 'PING']
      return execFileSync('redis-cli', words, { encoding: 'utf8' }).trim() === 'PONG'
    })
    await program.stop()
  }
  assert.equal(spawnSync('sh', [join(DEPLOY, 'redis', 'cluster', 'create.sh')]).status, 2, 'too few servers')
})
