/** TLS on the public address, and reloading the certificate on SIGHUP. */

import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { request as open } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { connect } from 'node:tls'

import { issue } from '../lib/certificate.mjs'
import { Device } from '../lib/device.mjs'
import { connect as mqttClient, datas } from '../lib/mqtt.mjs'
import { KEY, Node, freePort } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

let node, folder, cert, key, first, mqttPort
before(async () => {
  mqttPort = await freePort()
  folder = mkdtempSync(join(tmpdir(), 'noroshi-tls-'))
  ;[cert, key] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
  first = issue(cert, key, 'first')
  node = await Node.start({ env: { NOROSHI__TLS__CERT: cert, NOROSHI__TLS__KEY: key }, args: ['--mqtts', `127.0.0.1:${mqttPort}`] })
})
after(async () => {
  await node?.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** The fingerprint of the node's current certificate. */
function shown() {
  return new Promise((resolve, reject) => {
    const socket = connect({ port: node.httpPort, host: '127.0.0.1', rejectUnauthorized: false }, () => {
      resolve(socket.getPeerCertificate().fingerprint256)
      socket.destroy()
    })
    socket.once('error', reject)
  })
}

/** One request over https that trusts only `ca`. */
function https(method, path, ca, token, body) {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
    const request = open({ method, host: '127.0.0.1', port: node.httpPort, path, ca, headers, agent: false }, (response) => {
      let text = ''
      response.on('data', (chunk) => (text += chunk))
      response.on('end', () => resolve({ status: response.statusCode, body: JSON.parse(text) }))
    })
    request.on('error', reject)
    request.end(body && JSON.stringify(body))
  })
}

const wss = (token) => Device.connect(`wss://127.0.0.1:${node.httpPort}`, token, { ca: readFileSync(cert) })

test('API and WebSocket use TLS, and plain HTTP is not served on that port', async () => {
  const ca = readFileSync(cert)
  const registered = await https('POST', '/v1/devices', ca, KEY, { user: 'tls' })
  assert.equal(registered.status, 201)
  assert.match(registered.body.connect.websocket, /^wss:/)
  const device = await wss(registered.body.token)
  const sent = await https('POST', '/v1/notifications', ca, KEY, { to: { users: ['tls'] }, data: 'x'.repeat(4_000) })
  assert.equal(sent.status, 202)
  const msg = await device.msg()
  assert.deepEqual([msg.id, msg.data.length], [sent.body.id, 4_000])
  await device.leave()
  await assert.rejects(fetch(`${node.http}/v1/me`))
})

test('SIGHUP changes the certificate for new connections and keeps open ones', async () => {
  const registered = await https('POST', '/v1/devices', readFileSync(cert), KEY, { user: 'reload' })
  const device = await wss(registered.body.token)
  assert.equal(await shown(), first.fingerprint256)
  const second = issue(cert, key, 'second')
  assert.equal(await shown(), first.fingerprint256, 'not before SIGHUP')
  node.child.kill('SIGHUP')
  await until('the new certificate', async () => (await shown()) === second.fingerprint256)
  await https('POST', '/v1/notifications', readFileSync(cert), KEY, { to: { users: ['reload'] }, data: 'still open' })
  assert.equal((await device.msg()).data, 'still open')
  await device.leave()
})

test('with an unreadable certificate the old one stays in use', async () => {
  const before = await shown()
  const good = readFileSync(cert)
  writeFileSync(cert, 'this is not PEM')
  node.child.kill('SIGHUP')
  await until('a line in the log', () => /cert/i.test(node.log().split('second').at(-1)) && /WARN|ERROR|warn|error/.test(node.log()))
  assert.equal(await shown(), before)
  writeFileSync(cert, good)
})

test('MQTT over TLS uses the same certificate', async () => {
  const ca = readFileSync(cert)
  const { body: device } = await https('POST', '/v1/devices', ca, KEY, { user: 'mqtts' })
  const client = await mqttClient(`mqtts://127.0.0.1:${mqttPort}`, device, { ca })
  assert.equal(client.stream.getPeerCertificate().fingerprint256, await shown())
  await client.subscribeAsync('$noroshi/inbox', { qos: 1 })
  assert.equal((await https('POST', '/v1/notifications', ca, KEY, { to: { users: ['mqtts'] }, data: 1 })).status, 202)
  await until('the notification', () => client.received.length)
  assert.deepEqual(datas(client), [1])
  await client.endAsync()
  await assert.rejects(mqttClient(`mqtts://127.0.0.1:${mqttPort}`, device), /self.signed/)
})
