/** HTTP/2 with Node's client: sessions that end with their test, requests as promises, and a `fetch` for event streams. */

import { connect, constants } from 'node:http2'
import { Readable } from 'node:stream'

import { within } from './until.mjs'

/** One connection: with prior knowledge in plain text, with ALPN under TLS. */
export class Client {
  constructor(base, options = {}) {
    this.session = connect(base, options)
    this.goaways = []
    this.session.on('goaway', (code) => this.goaways.push(code))
    // Errors of a connection appear at its requests.
    this.session.on('error', () => {})
    this.settings = new Promise((resolve) => this.session.once('remoteSettings', resolve))
    this.closed = new Promise((resolve) => this.session.once('close', resolve))
  }

  /** The settings of the node, once received. */
  ready() {
    return within('the settings of the node', this.settings)
  }

  /** A stream whose head is sent. */
  open(method, path, headers = {}, options = {}) {
    return this.session.request({ ':method': method, ':path': path, ...headers }, options)
  }

  /** A whole request; `body` is sent as JSON unless it is text. Rejects with the error of a stream that was reset. */
  call(method, path, { token, body, headers = {} } = {}) {
    const text = body === undefined || typeof body === 'string' ? body : JSON.stringify(body)
    const all = { ...(token ? { authorization: `Bearer ${token}` } : {}), ...headers }
    if (text !== undefined) Object.assign(all, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text), ...headers })
    const stream = this.open(method, path, all, { endStream: text === undefined })
    if (text !== undefined) stream.end(text)
    return answered(stream)
  }

  /** A replacement for `fetch`. */
  fetch = (url, init = {}) =>
    new Promise((resolve, reject) => {
      const { pathname, search } = new URL(url)
      const stream = this.open(init.method ?? 'GET', pathname + search, { ...init.headers }, { endStream: true })
      init.signal?.addEventListener('abort', () => stream.close(constants.NGHTTP2_CANCEL))
      stream.once('error', reject)
      stream.once('response', (headers) => {
        const plain = Object.entries(headers).filter(([name]) => !name.startsWith(':'))
        const response = new Response(Readable.toWeb(stream), { status: headers[':status'], headers: plain })
        Object.defineProperty(response, 'url', { value: String(url) })
        resolve(response)
      })
    })

  close() {
    this.session.destroy()
  }
}

/** The whole answer of a stream: `{status, headers, text, body}`. */
export function answered(stream) {
  const answer = new Promise((resolve, reject) => {
    let [head, text] = [undefined, '']
    stream.setEncoding('utf8')
    stream.on('response', (headers) => (head = headers))
    stream.on('data', (chunk) => (text += chunk))
    stream.on('error', reject)
    stream.on('close', () => {
      if (!head) return reject(Object.assign(new Error(`reset by ${stream.rstCode}`), { rstCode: stream.rstCode }))
      const json = /^application\/(problem\+)?json/.test(head['content-type'] ?? '')
      resolve({ status: head[':status'], headers: head, text, body: json ? JSON.parse(text) : text, rstCode: stream.rstCode })
    })
  })
  return within('an answer over HTTP/2', answer)
}
