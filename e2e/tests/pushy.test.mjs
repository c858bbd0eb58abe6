/**
 * APNs as implemented by pushy: its server accepts a node's pushes, with a handler that checks every header, the
 * provider token and the payload. Needs Java 17 and, the first time, mvn; skipped without them.
 */

import assert from 'node:assert/strict'
import { generateKeyPairSync, randomBytes } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'

import { issueFromAuthority } from '../lib/certificate.mjs'
import * as java from '../lib/java.mjs'
import { Node, freePort } from '../lib/node.mjs'
import { addCredential, unique } from '../lib/push.mjs'
import { until, within } from '../lib/until.mjs'

const TOPIC = 'com.example.app'
const SLOW_MS = 100_000

const skip = java.unavailable()

/** pushy's server on a free port, for one provider key. */
class Pushy {
  static async start(folder, publicKey) {
    const [ca, cert, key] = ['ca.pem', 'server.pem', 'server.key'].map((name) => join(folder, name))
    issueFromAuthority(ca, cert, key)
    const pushy = new Pushy()
    pushy.ca = ca
    pushy.port = await freePort()
    writeFileSync(join(folder, 'public.pem'), publicKey.export({ type: 'spki', format: 'pem' }))
    pushy.java = java.start('Pushy', 'strict', pushy.port, cert, key, join(folder, 'public.pem'), TOPIC)
    await until('pushy to listen', () => {
      assert.equal(pushy.java.child.exitCode, null, pushy.java.stderr)
      return pushy.java.stdout.includes('listening')
    }, SLOW_MS)
    return pushy
  }

  /** Stops it; returns its counts `{taken, refused}`. */
  async stop() {
    this.java.child.stdin.end()
    const code = await within('pushy to end', this.java.exited, SLOW_MS)
    assert.equal(code, 0, this.java.stderr)
    const [, taken, refused] = this.java.stdout.match(/taken (\d+) refused (\d+)/)
    return { taken: Number(taken), refused: Number(refused) }
  }
}

// The runner counts a skipped test, but not a skipped suite.
test("pushy's APNs server is here", { skip }, () => {})

describe("pushy's APNs server", { skip }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-pushy-'))
  let pushy, node
  // Expected counts of accepted and rejected pushes.
  const wanted = { taken: 0, refused: 0 }

  before(async () => {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
    pushy = await Pushy.start(folder, publicKey)
    node = await Node.start({ args: ['--set', `egress.ca_file=${pushy.ca}`] })
    await addCredential(node, {
      service: 'apns',
      environment: 'production',
      key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
      key_id: 'ABC123DEFG',
      team_id: 'DEF123GHIJ',
      topic: TOPIC,
      endpoint: `https://localhost:${pushy.port}`,
    })
  })

  after(async () => {
    await node?.stop()
    // The last test stops it.
    pushy?.java.child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  })

  async function phones(count) {
    const lines = Array.from({ length: count }, () => ({
      user: unique('user'),
      device: unique('device'),
      push_token: { service: 'apns', environment: 'production', token: randomBytes(32).toString('hex') },
    }))
    return node.api.registerBatch(lines)
  }

  const reached = (id, outcome, count) =>
    until(`${count} ${outcome}`, async () => {
      const { counts } = await node.api.notification(id)
      return counts[outcome] === count ? counts : undefined
    })

  const MESSAGES = {
    'an alert': { notification: { title: '狼煙 🔥', body: 'b', image: 'https://e.example/i.png', url: 'https://e.example/' }, data: { n: 1 } },
    'data alone, in the background': { data: { n: 1 } },
    'one that collapses, by a key of any form': { notification: { title: 't' }, collapse_key: 'x'.repeat(40) + ' № 1' },
    'an urgent one': { notification: { title: 't' }, urgency: 'high', ttl: '1m' },
    'one for which there is time': { notification: { title: 't' }, urgency: 'very-low' },
    'one with fields of its own': {
      notification: { title: 't' },
      push: { apns: { headers: { 'apns-priority': '5', 'apns-collapse-id': 'own' }, payload: { aps: { badge: 3, sound: 'default' } } } },
    },
    'the largest': { notification: { title: 't' }, data: 'x'.repeat(3_900) },
  }
  for (const [name, message] of Object.entries(MESSAGES)) {
    test(`accepts ${name}`, async () => {
      const [{ device }] = await phones(1)
      const push = { mode: 'always', ...message.push }
      const { id } = await node.api.publish({ to: { devices: [device] }, ...message, push })
      await reached(id, 'pushed', 1)
      wanted.taken++
    })
  }

  test('accepts a thousand in parallel', async () => {
    const devices = (await phones(1_000)).map((one) => one.device)
    const { id } = await node.api.publish({ to: { devices }, notification: { title: 'all' }, push: { mode: 'always' } })
    await reached(id, 'pushed', 1_000)
    wanted.taken += 1_000
  })

  test('rejects another topic with its own reason', async () => {
    const [{ device }] = await phones(1)
    const push = { mode: 'always', apns: { headers: { 'apns-topic': 'com.example.other' } } }
    const { id } = await node.api.publish({ to: { devices: [device] }, notification: { title: 't' }, push })
    const refused = await until('the outcome', async () => {
      const { steps } = await node.api.trace(id, device)
      return steps.find((step) => step.outcome.startsWith('push_'))
    })
    assert.equal(refused.reason, 'BadTopic', JSON.stringify(refused))
    wanted.refused++
  })

  test('has counted each push once', async () => {
    assert.ok(wanted.taken >= 1_000)
    assert.deepEqual(await pushy.stop(), wanted)
  })
})
