/** Unmodified programs for MQTT servers: each gets only the address and a device. */

import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import mqttOfExplorer from 'mqtt-of-explorer'

import { connect as mqttClient } from '../lib/mqtt.mjs'
import { Node, cli, freePort } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const here = fileURLToPath(new URL('.', import.meta.url))
let node
let port
let folder

before(async () => {
  port = await freePort()
  folder = await mkdtemp(join(tmpdir(), 'noroshi-compatibility-'))
  node = await Node.start({ args: ['--mqtt', `127.0.0.1:${port}`] })
  const { code, stderr } = await cli(['apps', 'update', 'dev', '--client-publish', '#', '--data-dir', node.data])
  assert.equal(code, 0, stderr)
})
after(async () => {
  await node.stop()
  await rm(folder, { recursive: true, force: true })
})

/** A client that subscribes to the topics. */
const listener = async (...topics) => {
  const client = await mqttClient(`mqtt://127.0.0.1:${port}`, await node.api.register(), {})
  await client.subscribeAsync(topics, { qos: 1 })
  return client
}

/** A program and its output. */
const program = (command, args, options = {}) => {
  const child = spawn(command, args.map(String), options)
  child.printed = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => { child.printed += data })
  return child
}

for (const protocolVersion of [4, 5]) {
  test(`MQTT Explorer's library, version ${protocolVersion}: subscribes to everything, receives bytes and deleted retained messages`, async () => {
    const device = await node.api.register()
    const options = { username: device.device, password: device.token, clientId: `mqtt-explorer-${protocolVersion}` }
    const client = mqttOfExplorer.connect(`mqtt://127.0.0.1:${port}`, { ...options, protocolVersion, reconnectPeriod: 0 })
    const received = []
    client.on('message', (topic, payload, { retain }) => received.push({ topic, payload: [...payload], retain }))
    await once(client, 'connect')
    // The default subscriptions of MQTT Explorer: everything, and $SYS, which is refused without ending the
    // connection.
    const subscribe = promisify((topic, done) => client.subscribe(topic, { qos: 0 }, done))
    assert.deepEqual((await subscribe('#')).map(({ qos }) => qos), [0])
    const [{ qos: refused }] = await subscribe('$SYS/#').catch(() => [{ qos: 128 }])
    assert.ok(refused >= 128, `${refused}`)
    const topic = `explorer/${protocolVersion}`
    const publish = promisify(client.publish.bind(client))
    await publish(topic, Buffer.from([0, 255, 128]), { qos: 1, retain: true })
    await until('the bytes', () => received.some((message) => message.topic === topic))
    assert.deepEqual(received.find((message) => message.topic === topic).payload, [0, 255, 128])
    const retained = async () => {
      const late = await listener(topic)
      await node.api.publish({ to: { topic: topic }, data: 'mark' })
      await until('the marker', () => late.received.some(({ text }) => text.includes('mark')))
      await late.endAsync()
      return late.received.length - 1
    }
    assert.equal(await retained(), 1)
    await publish(topic, '', { qos: 1, retain: true })
    assert.equal(await retained(), 0)
    await promisify(client.end.bind(client))(false, {})
  })

  test(`Node-RED, version ${protocolVersion}: a flow from topic to topic, its birth and will messages`, async () => {
    const device = await node.api.register()
    const own = join(folder, `node-red-${protocolVersion}`)
    const state = { topic: `node-red-${protocolVersion}/state`, qos: '1', retain: 'true' }
    const flows = [
      { id: 't', type: 'tab', label: 'test' },
      {
        id: 'b', type: 'mqtt-broker', broker: '127.0.0.1', port: `${port}`, clientid: 'node-red', autoConnect: true,
        usetls: false, protocolVersion: `${protocolVersion}`, keepalive: '60', cleansession: true,
        birthTopic: state.topic, birthQos: state.qos, birthRetain: state.retain, birthPayload: 'up',
        willTopic: state.topic, willQos: state.qos, willRetain: state.retain, willPayload: 'down',
      },
      { id: 'i', type: 'mqtt in', z: 't', topic: `in-${protocolVersion}/#`, qos: '2', datatype: 'auto-detect', broker: 'b', wires: [['f']] },
      {
        id: 'f', type: 'function', z: 't', outputs: 1, wires: [['o']],
        func: "msg.topic = 'out/' + msg.topic; msg.payload = { got: msg.payload }; return msg;",
      },
      { id: 'o', type: 'mqtt out', z: 't', topic: '', qos: '1', retain: 'true', broker: 'b', wires: [] },
    ]
    await promisify(execFile)('mkdir', [own])
    await writeFile(join(own, 'flows.json'), JSON.stringify(flows))
    await writeFile(join(own, 'flows_cred.json'), JSON.stringify({ b: { user: device.device, password: device.token } }))
    const settings = { uiPort: await freePort(), uiHost: '127.0.0.1', credentialSecret: false, flowFile: 'flows.json' }
    await writeFile(join(own, 'settings.js'), `module.exports = ${JSON.stringify(settings)}`)
    const client = await listener(`out/in-${protocolVersion}/#`, state.topic)
    const nodeRed = program(join(here, 'node_modules/.bin/node-red'), ['-u', own, '-s', join(own, 'settings.js')])
    try {
      await until('the birth message', () => client.received.length === 1, 120_000)
      const publisher = await listener('none')
      for (const qos of [0, 1, 2]) await publisher.publishAsync(`in-${protocolVersion}/${qos}`, JSON.stringify({ qos }), { qos })
      await until('the messages of the flow', () => client.received.length === 4)
      await publisher.endAsync()
    } catch (error) {
      throw new Error(nodeRed.printed, { cause: error })
    } finally {
      nodeRed.kill('SIGKILL')
    }
    await until('the will', () => client.received.length === 5)
    const received = client.received.map(({ topic, text }) => [topic, text])
    assert.deepEqual([received[0], received[4]], [[state.topic, 'up'], [state.topic, 'down']])
    const flow = [0, 1, 2].map((qos) => [`out/in-${protocolVersion}/${qos}`, JSON.stringify({ got: { qos } })])
    assert.deepEqual(received.slice(1, 4), flow)
    await client.endAsync()
  })
}

test('a killed mosquitto_sub leaves a will', async () => {
  const device = await node.api.register({ user: 'mosquitto' })
  const client = await listener('state/lamp')
  const sub = program('mosquitto_sub', [
    '-p', port, '-u', device.device, '-P', device.token, '-t', 'ready/+', '-q', 1, '-C', 2,
    '--will-topic', 'state/lamp', '--will-payload', 'offline', '--will-qos', 1, '--will-retain',
  ])
  await until('the subscriber', async () => (await node.api.presence('mosquitto')).mosquitto.presence === 'active')
  sub.kill('SIGKILL')
  await until('the will', () => client.received.length === 1)
  assert.deepEqual([client.received[0].text, client.received[0].qos], ['offline', 1])
  await client.endAsync()
  const late = await node.api.register()
  const args = ['-p', port, '-u', late.device, '-P', late.token, '-t', 'state/#', '-C', 1, '-W', 20, '-F', '%r %t %p']
  const { stdout } = await promisify(execFile)('mosquitto_sub', args.map(String))
  assert.equal(stdout, '1 state/lamp offline\n', 'retained')
})

test('Home Assistant discovers a sensor and a switch, and toggles the switch', async () => {
  const python = process.env.HOME_ASSISTANT_PYTHON
  assert.ok(python, 'HOME_ASSISTANT_PYTHON: run this by `e2e/run compatibility`')
  const device = await node.api.register()
  const lamp = await listener('homeassistant/status', 'lamp/set')
  const say = (topic, payload) => lamp.publishAsync(topic, payload, { qos: 1, retain: true })
  const announce = (kind, name, rest) => say(`homeassistant/${kind}/lamp/${name}/config`, JSON.stringify({
    name, unique_id: `lamp_${name}`, object_id: `lamp_${name}`, availability_topic: 'lamp/alive',
    device: { identifiers: ['lamp'], name: 'Lamp' }, ...rest,
  }))
  // Published before Home Assistant starts: it finds the retained messages.
  await announce('sensor', 'temperature', { state_topic: 'lamp/temperature', unit_of_measurement: '°C' })
  await say('lamp/alive', 'online')
  const home = program(python, [join(here, 'home_assistant.py'), port, device.device, device.token, join(folder, 'home')])
  const stateIs = (entity, state) => until(`${entity} ${state}`, () => home.printed.includes(`state ${entity} ${state}\n`))
  try {
    // Home Assistant installs its dependencies first.
    await until('the birth message', () => lamp.received.some(({ text }) => text === 'online'), 400_000)
    await say('lamp/temperature', '21.5')
    await stateIs('sensor.lamp_temperature', '21.5')
    await announce('switch', 'power', { state_topic: 'lamp/power', command_topic: 'lamp/set', qos: 1 })
    await say('lamp/power', 'OFF')
    await stateIs('switch.lamp_power', 'off')
    home.stdin.write('switch turn_on switch.lamp_power\n')
    await until('the command', () => lamp.received.some(({ topic, text }) => topic === 'lamp/set' && text === 'ON'))
    await say('lamp/power', 'ON')
    await stateIs('switch.lamp_power', 'on')
    home.stdin.write('\n')
    await once(home, 'exit')
    await until('the will', () => lamp.received.some(({ text }) => text === 'offline'))
  } catch (error) {
    throw new Error(home.printed, { cause: error })
  } finally {
    home.kill('SIGKILL')
  }
  await lamp.endAsync()
})
