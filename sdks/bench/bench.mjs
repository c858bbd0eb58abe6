/**
 * Compares the client with others in one run: size, and CPU time and memory of a process and of a page that receive messages.
 *
 *   node bench.mjs [--messages 100000] [--rounds 5] [--no-browser]
 *
 * Rounds of all libraries alternate, and the median counts. Compare ratios: absolute numbers depend on the machine.
 */

import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { parseArgs } from 'node:util'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { chromium } from 'playwright-core'

import { PROTOCOLS, serve } from './servers.mjs'

const { values } = parseArgs({
  options: { messages: { type: 'string', default: '100000' }, rounds: { type: 'string', default: '5' }, 'no-browser': { type: 'boolean', default: false } },
})
const messages = Number(values.messages)
const rounds = Number(values.rounds)
const names = Object.keys(PROTOCOLS)
const here = new URL('.', import.meta.url).pathname

async function bundle(contents) {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: here },
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    platform: 'browser',
    define: { global: 'globalThis' },
    write: false,
    logLevel: 'error',
  })
  return Buffer.from(outputFiles[0].contents)
}

/** What a page downloads for messages of topics. */
async function sizes() {
  const exports = {
    noroshi: `export { Connection } from '@noroshi/client'`,
    'noroshi, everything': `export * from '@noroshi/client'`,
    centrifuge: `export { Centrifuge } from 'centrifuge'`,
    'socket.io-client': `export { io } from 'socket.io-client'`,
    'pusher-js': `export { default } from 'pusher-js'`,
    mqtt: `export { default } from 'mqtt'`,
  }
  const result = {}
  for (const [name, source] of Object.entries(exports)) result[name] = gzipSync(await bundle(source), { level: 9 }).length
  return result
}

async function inNode(name) {
  const server = await serve(name)
  const child = spawn(process.execPath, ['--expose-gc', `${here}client-process.mjs`, name, server.url, messages], { stdio: ['ignore', 'pipe', 'inherit'] })
  let text = ''
  child.stdout.on('data', (part) => (text += part))
  const exit = new Promise((resolve) => child.once('exit', resolve))
  const sending = server.send(messages)
  if ((await exit) !== 0) throw new Error(`${name} failed in Node.js`)
  await sending
  server.close()
  return JSON.parse(text)
}

async function inChromium(browser, name) {
  const server = await serve(name)
  const address = name.startsWith('mqtt') || name === 'centrifuge' ? server.url.replace('http', 'ws') : server.url
  const script = await bundle(`
    import start from './clients/${name}.mjs'
    let count = 0, checksum = 0
    globalThis.start = () => {
      globalThis.client = start({ url: '${address}' }, ({ n }) => { checksum += n; count++ })
    }
    globalThis.seen = () => [count, checksum]`)
  const site = createServer((request, response) => {
    const isScript = request.url === '/script.js'
    response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html')
    response.end(isScript ? script : '<!doctype html><script type="module" src="/script.js"></script>')
  })
  await new Promise((resolve) => site.listen(0, '127.0.0.1', resolve))
  const context = await browser.newContext()
  const page = await context.newPage()
  await page.goto(`http://127.0.0.1:${site.address().port}/`)
  const devtools = await context.newCDPSession(page)
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' })
  const metrics = async () => {
    await devtools.send('HeapProfiler.collectGarbage')
    const { metrics } = await devtools.send('Performance.getMetrics')
    return Object.fromEntries(metrics.map(({ name, value }) => [name, value]))
  }
  const idle = await metrics()
  await page.evaluate(() => globalThis.start())
  const received = async (total) => {
    for (;;) {
      const [count, checksum] = await page.evaluate(() => globalThis.seen())
      if (count >= total && checksum === (count * (count + 1)) / 2) return
      await new Promise((resolve) => setTimeout(resolve, 100))
    }
  }
  await server.send(1_000)
  await received(1_000)
  const before = await metrics()
  await server.send(messages)
  await received(messages + 1_000)
  const after = await metrics()
  await context.close()
  server.close()
  site.close()
  return { cpuMs: ((after.TaskDuration - before.TaskDuration) * 1_000) / (messages / 10_000), heapBytes: after.JSHeapUsedSize - idle.JSHeapUsedSize }
}

const median = (numbers) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)]

async function rows(where, run) {
  const all = Object.fromEntries(names.map((name) => [name, []]))
  for (let round = 0; round < rounds; round++) for (const name of names) all[name].push(await run(name))
  const result = names.map((name) => ({
    name,
    cpuMs: median(all[name].map(({ cpuMs }) => cpuMs)),
    heapKb: median(all[name].map(({ heapBytes }) => heapBytes)) / 1_024,
  }))
  const [{ cpuMs }] = result
  console.log(`\n${where}: ${messages} messages, median of ${rounds} rounds`)
  console.log('| library | CPU ms per 10,000 messages | ratio | heap KiB |\n|---|--:|--:|--:|')
  for (const row of result) console.log(`| ${row.name} | ${row.cpuMs.toFixed(1)} | ${(row.cpuMs / cpuMs).toFixed(2)} | ${row.heapKb.toFixed(0)} |`)
}

console.log('| bundle | gzip bytes |\n|---|--:|')
for (const [name, bytes] of Object.entries(await sizes())) console.log(`| ${name} | ${bytes.toLocaleString('en')} |`)
await rows('Node.js', inNode)
if (!values['no-browser']) {
  const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find(existsSync)
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--no-first-run'] })
  await rows('Chromium', (name) => inChromium(browser, name))
  await browser.close()
}
