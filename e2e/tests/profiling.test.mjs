/** Profiles of a running node in third-party tools: go tool pprof, a browser, and a server with Pyroscope's API. */

import assert from 'node:assert/strict'
import { execFile, spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import { gunzipSync } from 'node:zlib'

import { Node } from '../lib/node.mjs'
import { until } from '../lib/until.mjs'

const go = spawnSync('go', ['version']).status === 0
const run = promisify(execFile)
let node, folder, server, pushes, built

/** Stores each valid push: name, window and the profile from its multipart body. */
function pyroscope() {
  pushes = []
  return new Promise((resolve) => {
    const listener = createServer(async (request, response) => {
      const chunks = []
      for await (const chunk of request) chunks.push(chunk)
      const url = new URL(request.url, 'http://pyroscope')
      const form = await new Response(Buffer.concat(chunks), { headers: { 'content-type': request.headers['content-type'] } }).formData()
      const pprof = Buffer.from(await form.get('profile').arrayBuffer())
      pushes.push({ method: request.method, path: url.pathname, query: Object.fromEntries(url.searchParams), pprof })
      response.end()
    })
    listener.listen(0, '127.0.0.1', () => resolve(listener))
  })
}

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'noroshi-profiling-'))
  server = await pyroscope()
  const pushing = ['--set', `profiling.server=http://127.0.0.1:${server.address().port}`, '--set', 'profiling.interval=5s']
  node = await Node.start()
  const { stderr } = await node.cli('profile', '--seconds', '1', '--out', join(folder, 'first.pb.gz'))
  built = !stderr.includes('not_built')
  if (built) {
    await node.stop()
    node = await Node.start({ args: pushing })
  }
})
after(async () => {
  await node?.stop()
  server?.close()
  server?.closeAllConnections()
  rmSync(folder, { recursive: true, force: true })
})

/** Keeps the node busy during `work`. */
async function busy(work) {
  let going = true
  const load = (async () => {
    while (going) await node.cli('devices', 'list')
  })()
  try {
    return await work()
  } finally {
    going = false
    await load
  }
}

/** The output of go tool pprof for a file. */
async function top(file) {
  const { stdout } = await run('go', ['tool', 'pprof', '-top', '-cum', file], { env: { ...process.env, GOTOOLCHAIN: 'local', PPROF_TMPDIR: folder } })
  return stdout
}

test('go tool pprof reads a pulled profile, and the flame graph is a valid picture', async (t) => {
  if (!built) return t.skip('the binary was built without the feature profiling')
  const file = join(folder, 'pulled.pb.gz')
  await busy(async () => {
    const { code, stderr } = await node.cli('profile', '--seconds', '3', '--hz', '250', '--out', file)
    assert.equal(code, 0, stderr)
  })
  assert.ok(gunzipSync(readFileSync(file)).length > 1_000)
  const { code, stderr } = await node.cli('profile', '--from', file, '--out', join(folder, 'pulled.svg'))
  assert.equal(code, 0, stderr)
  const svg = readFileSync(join(folder, 'pulled.svg'), 'utf8')
  assert.match(svg, /CPU time by thread and function/)
  assert.match(svg, /noroshi_/)
  if (!go) return t.diagnostic('no Go toolchain for go tool pprof')
  const told = await top(file)
  assert.match(told, /Type: cpu/)
  assert.match(told, /Duration: [23]\.?\d*s/)
  assert.match(told, /noroshi_/)
})

test('go tool pprof reads a pushed profile', async (t) => {
  if (!built) return t.skip('the binary was built without the feature profiling')
  await busy(() => until('a push', () => pushes.length > 0, 60_000))
  const { method, path, query, pprof } = pushes.at(-1)
  assert.deepEqual([method, path, query.format, query.sampleRate], ['POST', '/ingest', undefined, '99'])
  assert.match(query.name, /^noroshi\{node=[^,{}=]+,role=api\+gateway\+sender,version=\d+\.\d+\.\d+\}$/)
  assert.ok(Number(query.until) - Number(query.from) <= 60 && Number(query.until) >= Number(query.from))
  if (!go) return t.diagnostic('no Go toolchain for go tool pprof')
  const file = join(folder, 'pushed.pb.gz')
  writeFileSync(file, pprof)
  assert.match(await top(file), /Type: cpu/)
})
