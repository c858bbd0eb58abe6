/** The stanzas that Conversations and Dino send, through slixmpp: as a device, and as an account with a password. */

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import { Node, freePort } from '../lib/node.mjs'

const script = fileURLToPath(new URL('xmpp_client.py', import.meta.url))
let node
let port

before(async () => {
  port = await freePort()
  const accounts = ['romeo', 'juliet'].flatMap((name) => ['--xmpp-account', `${name}:secret`])
  node = await Node.start({ args: ['--xmpp', `127.0.0.1:${port}`, '--conformance', ...accounts] })
})
after(() => node.stop())

const play = async (...args) => {
  const { stdout } = await promisify(execFile)(process.env.XMPP_PYTHON, [script, ...args.map(String)])
  return JSON.parse(stdout)
}

const steps = ['log-in', 'stream management', 'discovery and capabilities', 'roster with a version', 'archive', 'ping', 'own ping',
  'software version', 'resumption', 'ping afterwards']
const works = (...more) => Object.fromEntries([...steps, ...more].map((step) => [step, 'ok']))
/** Features that Noroshi does not offer; both programs work without them. */
const absent = { blocking: 'service-unavailable', 'file upload': 'absent' }
const own = {
  conversations: {
    account: { "push to the app's server": 'remote-server-not-found', 'bookmarks in PEP, closed': 'conflict' },
    device: { "push to the app's server": 'service-unavailable', 'bookmarks in PEP, closed': 'service-unavailable' },
  },
  dino: {
    account: { 'bookmarks in private storage': 'service-unavailable' },
    device: { 'bookmarks in private storage': 'service-unavailable' },
  },
}

for (const client of ['conversations', 'dino']) {
  test(`${client} as an account`, async () => {
    const done = await play(client, port, 'romeo@localhost', 'secret', 'juliet@localhost')
    assert.deepEqual(done, {
      ...works('carbons', 'avatar', 'message'), ...absent, 'own card': 'item-not-found', ...own[client].account,
    })
  })
  test(`${client} as a device`, async () => {
    const { device, token } = await node.api.register({ user: client })
    const done = await play(client, port, `${device}@localhost`, token)
    const none = { carbons: 'service-unavailable', avatar: 'service-unavailable', 'own card': 'service-unavailable' }
    assert.deepEqual(done, { ...works(), ...absent, ...none, ...own[client].device })
  })
}
