/** The first message of the README, with the package as npm would install it. */

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { KEY, Node } from '../../../../../e2e/lib/node.mjs'
import { until } from '../../../../../e2e/lib/until.mjs'
import { install } from '../../../scripts/pack.mjs'
import { discard } from '../../../test/discard.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const readme = readFileSync(join(root, 'README.md'), 'utf8')
/** The commands and programs of the first message. */
const blocks = [...readme.slice(0, readme.indexOf('## In a page')).matchAll(/```(\w+)\n([\s\S]*?)```/g)].map(([, language, text]) => ({ language, text: text.replace(/^ {3}/gm, '') }))

test('the README leads to a first message', async () => {
  const node = await Node.start()
  const folder = mkdtempSync(join(tmpdir(), 'noroshi-readme-'))
  try {
    install(['client'], folder)
    symlinkSync(dirname(createRequire(import.meta.url).resolve('ws/package.json')), join(folder, 'node_modules', 'ws'))

    const here = (text) => text.replaceAll('http://127.0.0.1:8080', node.http).replaceAll('my-development-key', KEY)
    const shell = blocks.filter(({ language }) => language === 'console').map(({ text }) => here(text).replace(/^\$ /gm, ''))
    assert.equal(shell.length, 4, 'start, register, install, send')
    const token = execFileSync('bash', ['-c', `set -e\n${shell[1]}\nprintf %s "$TOKEN"`], { encoding: 'utf8' })
    const program = here(blocks.find(({ language }) => language === 'js').text)
    writeFileSync(join(folder, 'listen.mjs'), program)
    const listening = spawn(process.execPath, ['listen.mjs'], { cwd: folder, env: { ...process.env, TOKEN: token } })
    let printed = ''
    for (const stream of [listening.stdout, listening.stderr]) stream.on('data', (chunk) => (printed += chunk))
    try {
      await until('the program to be connected', () => printed.includes('connected'))
      execFileSync('bash', ['-c', shell[3]], { encoding: 'utf8' })
      await until('the message', () => printed.includes('Hello'))
    } finally {
      listening.kill()
    }

    // The same package for `require`.
    writeFileSync(join(folder, 'required.cjs'), `const { Noroshi, Connection } = require('@noroshi/client'); if (!Noroshi || !Connection) process.exit(1)`)
    execFileSync(process.execPath, ['required.cjs'], { cwd: folder })
  } finally {
    rmSync(folder, { recursive: true, force: true })
    await discard(node)
  }
})
