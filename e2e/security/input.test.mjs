/** Invalid text: invalid percent-encoding in every path and query, and half of a surrogate pair in JSON. */

import assert from 'node:assert/strict'
import { request } from 'node:http'
import { after, before, test } from 'node:test'

import { Device } from '../lib/device.mjs'
import { connect as mqttConnect } from '../lib/mqtt.mjs'
import { KEY, Node, freePort } from '../lib/node.mjs'
import { operatorToken } from '../lib/push.mjs'
import { until, within } from '../lib/until.mjs'

let node, device, mqttUrl
before(async () => {
  const mqtt = await freePort()
  node = await Node.start({ args: ['--mqtt', `127.0.0.1:${mqtt}`] })
  mqttUrl = `mqtt://127.0.0.1:${mqtt}`
  device = await node.api.register({ device: 'd1', user: 'u1' })
  await node.api.call('PATCH', '/v1/apps/dev', { body: { client_publish: ['#'] } })
})
after(() => node?.stop())

/** Sends the path unmodified: `fetch` and `URL` would normalise it. */
function ask(port, method, path, { token, body, headers = {} } = {}) {
  return within(
    `${method} ${path}`,
    new Promise((resolve, reject) => {
      const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` }
      const call = request({ host: '127.0.0.1', port, method, path, agent: false, headers: { ...authorization, ...headers } })
      call.on('error', reject)
      call.on('upgrade', (answer, socket) => {
        socket.destroy()
        resolve({ status: answer.statusCode, text: '' })
      })
      call.on('response', (answer) => {
        let text = ''
        // An event stream does not end.
        if (answer.headers['content-type'] === 'text/event-stream') {
          call.destroy()
          return resolve({ status: 200, text })
        }
        answer.on('data', (chunk) => (text += chunk)).on('end', () => resolve({ status: answer.statusCode, text }))
      })
      call.end(body)
    }),
  )
}

const WRONG = ['%zz', '%', '%4', '%ff', '%ed%a0%80']

/** Every path of a document with a method, with each parameter of the path invalid in turn. */
async function routes(port) {
  const document = await (await fetch(`http://127.0.0.1:${port}/openapi.json`)).json()
  return Object.entries(document.paths).flatMap(([path, item]) =>
    ['get', 'put', 'post', 'patch', 'delete'].filter((method) => item[method]).map((method) => [method.toUpperCase(), path]))
}

for (const door of ['public', 'admin']) {
  test(`every path and query of the ${door} address must be percent-encoded UTF-8`, async () => {
    const port = door === 'public' ? node.httpPort : node.adminPort
    const token = door === 'public' ? KEY : operatorToken(node)
    let paths = 0
    for (const [method, path] of await routes(port)) {
      const plain = path.replaceAll(/\{[^}]+\}/g, 'x')
      const wrong = WRONG[paths++ % WRONG.length]
      const broken = [`${plain}?after=${wrong}`, `${plain}?${wrong}=1`]
      for (const [parameter] of path.matchAll(/\{[^}]+\}/g)) {
        broken.push(path.replace(parameter, wrong).replaceAll(/\{[^}]+\}/g, 'x'))
      }
      for (const path of broken) {
        const { status, text } = await ask(port, method, path, { token, body: method === 'GET' ? undefined : '{}' })
        assert.equal(status, 400, `${method} ${path} -> ${status} ${text}`)
        assert.match(text, /percent-encoded/, `${method} ${path}`)
      }
    }
    assert.ok(paths > 10, 'the document lists the routes')
  })
}

test('a topic with an invalid escape is rejected, one with a valid escape accepted', async () => {
  for (const wrong of WRONG) {
    const { status } = await ask(node.httpPort, 'GET', `/v1/topics/${wrong}`, { token: KEY })
    assert.equal(status, 400, wrong)
    const subscribed = await ask(node.httpPort, 'PUT', `/v1/me/topics/${wrong}`, { token: device.token })
    assert.equal(subscribed.status, 400, wrong)
  }
  const good = await ask(node.httpPort, 'PUT', '/v1/me/topics/a%2Fb%20%E6%97%A5', { token: device.token })
  assert.equal(good.status, 204)
  assert.deepEqual((await node.api.call('GET', '/v1/devices/d1')).topics, ['a/b 日'])
})

test('connections reject a query that is not percent-encoded', async () => {
  const upgrade = {
    upgrade: 'websocket', connection: 'Upgrade', 'sec-websocket-version': '13',
    'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==', 'sec-websocket-protocol': 'noroshi.v1',
  }
  for (const wrong of WRONG) {
    for (const query of [`topics=${wrong}`, `token=${wrong}`, `app=${wrong}`]) {
      for (const [path, headers] of [
        ['/v1/connect', upgrade], ['/v1/events', {}], ['/socket.io/', {}],
        ['/mqtt', { ...upgrade, 'sec-websocket-protocol': 'mqtt' }], ['/xmpp', { ...upgrade, 'sec-websocket-protocol': 'xmpp' }],
      ]) {
        const engine = path === '/socket.io/' ? 'EIO=4&transport=polling&' : ''
        const answer = await ask(node.httpPort, 'GET', `${path}?${engine}${query}`, { token: device.token, headers })
        assert.equal(answer.status, 400, `${path}?${query} -> ${answer.status} ${answer.text}`)
      }
    }
  }
})

const LONE = [
  String.raw`"\ud800"`, String.raw`"\uDFFF"`, String.raw`{"\ud800":1}`, String.raw`{"a":[{"b":"x\ud83dy"}]}`,
  String.raw`"\ude00\ud83d"`, String.raw`"\\\ud800"`,
]
const WHOLE = [String.raw`"\ud83d\ude00"`, String.raw`"\\ud800"`, String.raw`{"a":"\u00e9"}`]

test('half of a surrogate pair in a body is answered 400, with its place', async () => {
  const post = (path, body, token = KEY, type = 'application/json') =>
    ask(node.httpPort, 'POST', path, { token, body, headers: { 'content-type': type } })
  for (const json of LONE) {
    for (const body of [
      `{"to":{"users":["u1"]},"data":${json}}`,
      `{"to":{"users":["u1"]},"notification":{"title":"t","extra":${json}}}`,
      `{"to":{"users":["u1"]},"data":1,"push":{"apns":{"x":${json}}}}`,
    ]) {
      const { status, text } = await post('/v1/notifications', body)
      assert.equal(status, 400, `${body} -> ${text}`)
      assert.match(text, /surrogate pair/)
      const told = Number(/at byte (\d+)/.exec(text)?.[1])
      assert.equal(body.slice(told, told + 2), '\\u', `${text} for ${body}`)
      const line = (await post('/v1/notifications/batch', `{"to":{"users":["u1"]},"data":1}\n${body}\n`, KEY, 'application/x-ndjson')).text
      assert.match(line.split('\n')[1], /surrogate pair/)
      const relay = `{"key":"k","expires_at_ms":${Date.now() + 60_000},"notification":${body}}`
      assert.match((await post('/v1/notifications/relay', relay, KEY, 'application/x-ndjson')).text, /surrogate pair/)
    }
    const { status } = await post('/v1/me/inbox/ack', `{"ids":[${json}]}`, device.token)
    assert.equal(status, 400)
  }
  const listener = await Device.connect(node.ws, device.token)
  // The valid lines of the batches above.
  const { length } = (await node.api.me(device.token).inbox(1000)).messages
  await listener.msgs(length)
  for (const json of WHOLE) {
    const { status, text } = await post('/v1/notifications', `{"to":{"users":["u1"]},"data":${json}}`)
    assert.equal(status, 202, text)
    assert.deepEqual((await listener.msg()).data, JSON.parse(json))
  }
  await listener.leave()
})

test('messages published over MQTT are complete in every protocol, and return unchanged over MQTT', async () => {
  const other = await node.api.register({ device: 'd2', user: 'u2' })
  await node.api.me(other.token).subscribe('m')
  const listener = await Device.connect(node.ws, other.token)
  const publisher = await mqttConnect(mqttUrl, device, { clientId: 'd1' })
  await publisher.subscribeAsync('m', { qos: 1 })
  for (const json of LONE) {
    await publisher.publishAsync('m', json, { qos: 1 })
    const { data } = await listener.msg()
    assert.equal(data.mqtt.text, json, 'as text, not as JSON')
  }
  await until('all messages to return', () => publisher.received.length >= LONE.length)
  assert.deepEqual(publisher.received.map(({ text }) => text), LONE)
  await publisher.endAsync()
  await listener.leave()
})
