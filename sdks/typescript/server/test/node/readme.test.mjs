/** The first message of the README, with the package as npm would install it. */

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { BIN, KEY, Node } from '../../../../../e2e/lib/node.mjs'
import { until } from '../../../../../e2e/lib/until.mjs'
import { install } from '../../../scripts/pack.mjs'
import { tsc } from '../../../scripts/packages.mjs'
import { discard } from '../../../test/discard.mjs'
import { client } from './lib.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const readme = readFileSync(join(root, 'README.md'), 'utf8')
const require = createRequire(import.meta.url)
const blocks = (text, language) => [...text.matchAll(new RegExp(`^( *)\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\``, 'gm'))].map(([, indent, block]) => block.replace(new RegExp(`^${indent}`, 'gm'), ''))
const first = readme.slice(0, readme.indexOf('## In a backend'))

let folder
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'noroshi-readme-'))
  install(['server'], folder)
})
after(() => rmSync(folder, { recursive: true, force: true }))

test('the README leads to a first message', async () => {
  const node = await Node.start()
  const shell = blocks(first, 'console').map((text) => text.replace(/^\$ /gm, '').trim())
  assert.equal(shell.length, 3, 'start, listen, install')
  const [command, ...args] = shell[1].split(' ')
  assert.equal(command, 'noroshi')
  const listening = spawn(BIN, args, { env: { ...process.env, NOROSHI_DATA: node.data, NOROSHI_KEY: KEY } })
  let printed = ''
  for (const stream of [listening.stdout, listening.stderr]) stream.on('data', (chunk) => (printed += chunk))
  try {
    const [program] = blocks(first, 'js')
    writeFileSync(join(folder, 'publish.mjs'), program.replaceAll('http://127.0.0.1:8080', node.http).replaceAll('my-development-key', KEY))
    await until('the device to be connected', async () => (await client(node).presence(['u1'])).u1.presence === 'active')
    const output = execFileSync(process.execPath, ['publish.mjs'], { cwd: folder, encoding: 'utf8' })
    assert.match(output, /^[0-9a-f-]{36}: accepted for 1 user\n$/)
    await until('the message', () => printed.includes('Hello'))
  } finally {
    listening.kill()
    await discard(node)
  }
})

test('the package works for `require`', () => {
  const program = `const { Noroshi, JwtSigner, verifyWebhook } = require('@noroshi/server'); if (!Noroshi || !JwtSigner || !verifyWebhook) process.exit(1)`
  writeFileSync(join(folder, 'required.cjs'), program)
  execFileSync(process.execPath, ['required.cjs'], { cwd: folder })
})

test('the other examples compile, with the types of Node.js and without those of browsers', () => {
  const examples = blocks(readme, 'ts').filter((text) => !text.includes('@opentelemetry'))
  assert.ok(examples.length >= 7)
  const given = `
import type { Notification, Recipient } from '@noroshi/server'
declare const order: { id: string; user: string }, id: string
declare function requeue(order: object, ms: number | undefined): void
declare function notificationsFromDatabase(): AsyncIterable<Notification>
declare function users(): Iterable<Recipient>
declare function isMember(user: string | null, topic: string): Promise<boolean>
import { verifyWebhook } from '@noroshi/server'
export const ofBuffer = (body: Buffer) => verifyWebhook({}, body, { secret: [] })
declare const log: { warn(...values: unknown[]): void }
`
  const files = examples.map((text, n) => {
    const client = text.includes('new Noroshi(') || !text.includes('noroshi.') ? '' : `import { Noroshi } from '@noroshi/server'\ndeclare const noroshi: Noroshi\n`
    const file = `example-${n}.mts`
    writeFileSync(join(folder, file), `${given}${client}${text}\nexport {}\n`)
    return file
  })
  mkdirSync(join(folder, 'node_modules', '@types'), { recursive: true })
  for (const name of ['@types/node', 'undici-types']) symlinkSync(dirname(require.resolve(`${name}/package.json`)), join(folder, 'node_modules', name))
  const compilerOptions = { target: 'ES2022', lib: ['ES2022'], types: ['node'], module: 'NodeNext', strict: true, exactOptionalPropertyTypes: true, noEmit: true, skipLibCheck: false, preserveSymlinks: true }
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files }))
  try {
    execFileSync(process.execPath, [tsc, '-p', folder], { encoding: 'utf8' })
  } catch (error) {
    // Version 7 finds errors in the types of Node.js too.
    const errors = error.stdout.split('\n').filter((line) => line.includes(': error ') && !line.includes('/@types/node/'))
    assert.deepEqual(errors, [], error.stdout)
  }
})
