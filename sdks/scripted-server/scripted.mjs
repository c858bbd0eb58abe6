/** The service's part of the vectors over real sockets: server.mjs explains it. */

import { createServer } from 'node:http'
import { isDeepStrictEqual } from 'node:util'
import { WebSocketServer } from 'ws'

import { byKind, event, frame, request } from './normal.mjs'

const BODY_BYTES_MAX = 4 << 20
const OBSERVATIONS_MAX = 10_000
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))
/** How long a step or an `expect` waits for the library, on a slow machine too. */
const WAIT_MS = 5_000

async function bodyOf(message) {
  let text = ''
  for await (const chunk of message.setEncoding('utf8')) {
    text += chunk
    if (text.length > BODY_BYTES_MAX) throw new Error('the body is too large')
  }
  return text
}

function answer(response, { status = 200, headers = {}, body }) {
  response.writeHead(status, { 'content-type': status >= 400 ? 'application/problem+json' : 'application/json', ...headers })
  response.end(body === undefined ? undefined : JSON.stringify(body))
}

/** The peer's library answers pings in order, so it has read everything before the pong. */
const settled = (socket) =>
  new Promise((resolve) => {
    const done = () => {
      clearTimeout(late)
      socket.off('pong', done)
      socket.off('close', done)
      resolve()
    }
    const late = setTimeout(done, WAIT_MS)
    socket.on('pong', done)
    socket.on('close', done)
    socket.ping()
  })

/** Listens on a port of its own, 0 for any. Returns its address, and what ends it. */
export async function listen(port = 0) {
  const sockets = new WebSocketServer({ noServer: true })
  /** Of connections and requests that wait for a step, oldest first. */
  const dialled = []
  const requests = []
  /** The connection that steps are about: `{socket}` or `{stream}`. */
  let current
  let observed = []
  const all = new Set()
  const endedByUs = new WeakSet()

  function observe(observation) {
    observed.push(observation)
    if (observed.length > OBSERVATIONS_MAX) throw new Error('a client sends without end')
  }

  function reset() {
    for (const end of all) end()
    all.clear()
    dialled.length = 0
    requests.length = 0
    observed = []
    current = undefined
  }

  async function oldest(queue) {
    for (const deadline = Date.now() + WAIT_MS; !queue.length; await sleep(2)) {
      if (Date.now() > deadline) throw new Error('nothing waits for this step')
    }
    return queue.shift()
  }

  const steps = {
    async accept() {
      const waiting = await oldest(dialled)
      current = waiting.accept()
      if (current.socket) await settled(current.socket)
      else await sleep(30)
    },
    async refuse(options) {
      const waiting = await oldest(dialled)
      waiting.refuse(options)
      await sleep(30)
    },
    async send(value) {
      if (current.stream) {
        current.stream.write(event(value))
        return sleep(30)
      }
      const isRaw = typeof value.raw === 'string'
      current.socket.send(isRaw ? value.raw : value.binary ? Buffer.from([0]) : JSON.stringify(value))
      await settled(current.socket)
    },
    async send_many({ count, frame }) {
      const { socket } = current
      const text = JSON.stringify(frame)
      for (let n = 1; n <= count; n++) socket.send(text.replaceAll('#', String(n)))
      await settled(socket)
    },
    async end({ code }) {
      const { socket, stream } = current
      current = undefined
      endedByUs.add(socket ?? stream)
      if (stream) stream.end()
      else if (code) socket.close(code)
      else socket.terminate()
      if (socket) await new Promise((resolve) => (socket.readyState === 3 ? resolve() : socket.once('close', resolve)))
      await sleep(30)
    },
    async reply(options) {
      const response = await oldest(requests)
      if (options.status === 0) response.destroy()
      else answer(response, options)
      await sleep(30)
    },
  }

  async function expect(expected) {
    const wanted = byKind(expected)
    for (const deadline = Date.now() + WAIT_MS; ; await sleep(5)) {
      if (isDeepStrictEqual(byKind(observed), wanted)) {
        observed = []
        return { status: 200, body: {} }
      }
      if (Date.now() > deadline) {
        const body = { expected, observed }
        observed = []
        return { status: 409, body }
      }
    }
  }

  async function control(path, text) {
    if (path === '/control/reset') reset()
    else if (path === '/control/expect') return expect(JSON.parse(text))
    else if (path === '/control/step') {
      const [[name, options]] = Object.entries(JSON.parse(text))
      if (!Object.hasOwn(steps, name)) throw new Error(`not a step: ${name}`)
      await steps[name](options)
    } else return { status: 404, body: {} }
    return { status: 200, body: {} }
  }

  const server = createServer(async (message, response) => {
    const text = await bodyOf(message)
    if (message.url.startsWith('/control/')) {
      const result = await control(message.url, text).catch((error) => ({ status: 400, body: { error: error.message } }))
      return answer(response, result)
    }
    const seen = request(message.method, message.url, message.headers, text)
    observe(seen)
    all.add(() => {
      endedByUs.add(response)
      response.destroy()
    })
    if (!seen.open) return requests.push(response)
    response.once('close', () => endedByUs.has(response) || response.writableEnded || observe({ close: null }))
    dialled.push({
      accept() {
        response.writeHead(200, { 'content-type': 'text/event-stream' })
        response.flushHeaders()
        return { stream: response }
      },
      refuse: (options) => answer(response, options),
    })
  })

  server.on('upgrade', (message, tcp, head) => {
    const { searchParams } = new URL(message.url, 'http://localhost')
    observe({ open: 'websocket', ...Object.fromEntries(searchParams) })
    const gone = () => observe({ close: null })
    tcp.once('close', gone)
    // Without both, the end of the connection is not noticed.
    const ended = () => tcp.destroy()
    tcp.once('end', ended)
    tcp.resume()
    tcp.on('error', () => {})
    all.add(() => {
      tcp.off('close', gone)
      tcp.destroy()
    })
    dialled.push({
      accept() {
        tcp.off('close', gone)
        tcp.off('end', ended)
        let socket
        sockets.handleUpgrade(message, tcp, head, (opened) => (socket = opened))
        socket.on('message', (data) => observe(frame(data.toString())))
        socket.on('close', (code) => endedByUs.has(socket) || observe({ close: code === 1006 ? null : code }))
        socket.on('error', () => {})
        all.add(() => {
          endedByUs.add(socket)
          socket.terminate()
        })
        return { socket }
      },
      refuse({ status = 503, headers = {} }) {
        tcp.off('close', gone)
        const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
        tcp.end(`HTTP/1.1 ${status} Refused\r\nContent-Length: 0\r\nConnection: close\r\n${lines.join('')}\r\n`)
      },
    })
  })

  // A client's pool may send a request on a connection at the moment at which it ends.
  server.keepAliveTimeout = 600_000
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve))
  const close = () => {
    reset()
    server.closeAllConnections()
    server.close()
  }
  return { url: `http://127.0.0.1:${server.address().port}`, close }
}
