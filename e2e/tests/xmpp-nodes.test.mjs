/**
 * Accounts of conformance suites at the PubSub service and with push registrations, with the npm client
 * `@xmpp/client`: nodes (XEP-0060 §8) and `<enable/>` (XEP-0357).
 */

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'

import { client, xml } from '@xmpp/client'

import { Node, freePort } from '../lib/node.mjs'
import { until, within } from '../lib/until.mjs'
import { Stream } from '../lib/xmpp.mjs'

const PUBSUB = 'http://jabber.org/protocol/pubsub'
const OWNER = `${PUBSUB}#owner`
const FORM = 'jabber:x:data'
const NAMES = ['romeo', 'juliet', 'nurse', 'tybalt']

let node, port
before(async () => {
  port = await freePort()
  const accounts = NAMES.flatMap((name) => ['--xmpp-account', `${name}:secret`])
  node = await Node.start({ args: ['--xmpp', `127.0.0.1:${port}`, '--conformance', '--set', 'server.shards=2', ...accounts] })
})
after(() => node?.stop())

/** An available account; its received events are in `received`. */
async function connect(username, resource) {
  const service = `xmpp://127.0.0.1:${port}`
  const xmpp = client({ service, domain: 'localhost', resource, username, password: 'secret' })
  xmpp.reconnect.stop()
  Object.assign(xmpp, { received: [], timeout: 5_000 })
  xmpp.on('stanza', (stanza) => stanza.is('message') && xmpp.received.push(stanza))
  xmpp.on('error', () => {})
  const online = new Promise((resolve, reject) => {
    xmpp.once('online', resolve)
    xmpp.start().catch((error) => error.name === 'TimeoutError' || reject(error))
  })
  await within('the client to be online', online)
  const back = new Promise((resolve) => xmpp.on('stanza', (stanza) => stanza.is('presence') && resolve()))
  await xmpp.send(xml('presence'))
  await within('its own presence', back)
  return xmpp
}

const ask = async (xmpp, type, namespace, ...children) => {
  const request = xml('iq', { type, to: 'pubsub.localhost' }, xml('pubsub', { xmlns: namespace }, ...children))
  return (await xmpp.iqCaller.request(request)).getChild('pubsub')
}

const bare = (xmpp) => xmpp.jid.bare().toString()
const subscribe = (xmpp, name) => ask(xmpp, 'set', PUBSUB, xml('subscribe', { node: name, jid: bare(xmpp) }))
const publish = (xmpp, name, id) =>
  ask(xmpp, 'set', PUBSUB, xml('publish', { node: name }, xml('item', { id }, xml('e', { xmlns: 'e' }, id))))

const field = (name, value) => xml('field', { var: name }, xml('value', {}, value))
const configuration = (options) => {
  const fields = Object.entries(options).map(([name, value]) => field(`pubsub#${name}`, value))
  return xml('x', { xmlns: FORM, type: 'submit' }, field('FORM_TYPE', `${PUBSUB}#node_config`), ...fields)
}
const create = (xmpp, name, options = {}) =>
  ask(xmpp, 'set', PUBSUB, xml('create', { node: name }), xml('configure', {}, configuration(options)))

/** Of the events of a node: the ids of items, and `delete`. */
const events = (xmpp, name) =>
  xmpp.received.flatMap((message) => {
    const event = message.getChild('event', `${PUBSUB}#event`)
    const items = event?.getChild('items')
    if (event?.getChild('delete')?.attrs.node === name) return ['delete']
    return items?.attrs.node === name ? items.getChildren('item').map((item) => item.attrs.id) : []
  })

test('an account creates a node that others subscribe to until it deletes it', async () => {
  const [romeo, juliet, nurse] = await Promise.all(['romeo', 'juliet', 'nurse'].map((name) => connect(name, 'nodes')))
  await create(romeo, 'news', { title: 'News', access_model: 'whitelist' })
  await assert.rejects(subscribe(juliet, 'news'), /not-allowed/)
  const member = xml('affiliation', { jid: 'juliet@localhost', affiliation: 'member' })
  await ask(romeo, 'set', OWNER, xml('affiliations', { node: 'news' }, member))
  const { subscription } = (await subscribe(juliet, 'news')).getChild('subscription').attrs
  assert.equal(subscription, 'subscribed')
  await assert.rejects(publish(juliet, 'news', 'hers'), /forbidden/)
  const published = await publish(romeo, 'news', 'first')
  assert.equal(published.getChild('publish').getChild('item').attrs.id, 'first')
  await until('the event', () => events(juliet, 'news').length === 1)
  const items = await ask(juliet, 'get', PUBSUB, xml('items', { node: 'news' }))
  assert.equal(items.getChild('items').getChild('item').getChildText('e'), 'first')
  await assert.rejects(ask(nurse, 'get', PUBSUB, xml('items', { node: 'news' })), /not-allowed/)
  await assert.rejects(ask(juliet, 'set', OWNER, xml('delete', { node: 'news' })), /forbidden/)
  await ask(romeo, 'set', OWNER, xml('delete', { node: 'news' }))
  await until('the end of the node', () => events(juliet, 'news').length === 2)
  assert.deepEqual(events(juliet, 'news'), ['first', 'delete'])
  assert.deepEqual(nurse.received, [])
  await Promise.all([romeo, juliet, nurse].map((xmpp) => xmpp.stop()))
})

test('subscribers receive the events of a node in the order of its items, from any publisher', async () => {
  const all = await Promise.all(NAMES.map((name) => connect(name, 'order')))
  const options = { publish_model: 'open', max_items: 'max' }
  await create(all[0], 'busy', options)
  await Promise.all(all.map((xmpp) => subscribe(xmpp, 'busy')))
  const count = 200
  const publishAll = (xmpp, n) => Promise.all(Array.from({ length: count }, (_, i) => publish(xmpp, 'busy', `${n}-${i}`)))
  await Promise.all(all.map(publishAll))
  await until('all events', () => all.every((xmpp) => events(xmpp, 'busy').length === count * all.length))
  const kept = (await ask(all[0], 'get', PUBSUB, xml('items', { node: 'busy' }))).getChild('items').getChildren('item')
  const [first, ...others] = all.map((xmpp) => events(xmpp, 'busy'))
  assert.deepEqual(first.slice(-kept.length), kept.map((item) => item.attrs.id))
  for (const other of others) assert.deepEqual(other, first)
  await Promise.all(all.map((xmpp) => xmpp.stop()))
})

test('a resumed subscriber still receives events, and a resumed owner receives the pending approval request', async () => {
  const romeo = await connect('romeo', 'resumption')
  await create(romeo, 'resumed', { access_model: 'authorize' })
  const begin = async (name) => {
    const stream = await Stream.open(port)
    stream.previd = await stream.begin(name, 'secret')
    await stream.ask('<presence/>', /<presence[^>]*>/)
    return stream
  }
  const resume = async (name, broken) => {
    broken.vanish()
    const stream = await Stream.open(port)
    assert.match(await stream.resume(name, 'secret', broken.previd), /<resumed /)
    // The text before the answer belongs to the next expectation.
    stream.received = (await stream.sync()) + stream.received
    return stream
  }
  let juliet = await begin('juliet')
  const subscription = `<subscribe node='resumed' jid='juliet@localhost'/>`
  const request = `<iq type='set' id='s' to='pubsub.localhost'><pubsub xmlns='${PUBSUB}'>${subscription}</pubsub></iq>`
  await juliet.ask(request, "subscription='pending'")
  // An account that becomes an owner after the request, and whose connection breaks.
  const affiliation = xml('affiliation', { jid: 'nurse@localhost', affiliation: 'owner' })
  let nurse = await begin('nurse')
  await ask(romeo, 'set', OWNER, xml('affiliations', { node: 'resumed' }, affiliation))
  nurse = await resume('nurse', nurse)
  await nurse.until('<value>juliet@localhost</value>')
  juliet = await resume('juliet', juliet)
  const approval = xml('subscription', { jid: 'juliet@localhost', subscription: 'subscribed' })
  await ask(romeo, 'set', OWNER, xml('subscriptions', { node: 'resumed' }, approval))
  await juliet.until("jid='juliet@localhost' subscription='subscribed'")
  await publish(romeo, 'resumed', 'afterwards')
  await juliet.until("<item id='afterwards'>")
  await Promise.all([juliet.end(), nurse.end(), romeo.stop()])
})

test('the push service of an offline account receives the number of waiting messages', async () => {
  const push = await connect('tybalt', 'push')
  const requests = []
  push.iqCallee.set(PUBSUB, 'pubsub', ({ stanza }) => requests.push(stanza) > 0)
  const juliet = await connect('juliet', 'away')
  const enable = xml('enable', { xmlns: 'urn:xmpp:push:0', jid: push.jid.toString(), node: 'n' })
  await juliet.iqCaller.set(enable)
  await juliet.stop()
  const romeo = await connect('romeo', 'talks')
  const say = (text) => romeo.send(xml('message', { to: 'juliet@localhost', type: 'chat' }, xml('body', {}, text)))
  for (const count of [1, 2]) {
    await say('wherefore')
    await until('the request', () => requests.length === count)
    const request = requests[count - 1]
    assert.equal(request.attrs.from, 'juliet@localhost')
    assert.ok(!request.toString().includes('wherefore'), 'no content of the messages')
    const published = request.getChild('pubsub').getChild('publish')
    assert.equal(published.attrs.node, 'n')
    const form = published.getChild('item').getChild('notification', 'urn:xmpp:push:0').getChild('x', FORM)
    const fields = form.getChildren('field').map((field) => [field.attrs.var, field.getChildText('value')])
    assert.deepEqual(fields, [['FORM_TYPE', 'urn:xmpp:push:summary'], ['message-count', String(count)]])
  }
  // The account returns: the server delivers the stored messages, and sends no further request.
  const back = await connect('juliet', 'away')
  await until('both', () => back.received.length === 2)
  await say('here')
  await until('the third', () => back.received.length === 3)
  await back.iqCaller.set(xml('disable', { xmlns: 'urn:xmpp:push:0', jid: push.jid.toString() }))
  await back.stop()
  await say('nobody is told')
  const again = await connect('juliet', 'away')
  await until('the fourth', () => again.received.length === 1)
  await push.iqCaller.get(xml('ping', 'urn:xmpp:ping'), 'localhost')
  assert.equal(requests.length, 2)
  await Promise.all([push, romeo, again].map((xmpp) => xmpp.stop()))
})
