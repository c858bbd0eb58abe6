/** Hand-written XMPP over TCP, for input that no correct client sends (RFC 6120, XEP-0388, XEP-0198). */

import { connect } from 'node:net'

import { within } from './until.mjs'

const SM = 'urn:xmpp:sm:3'
const HEADER =
  "<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' " +
  "xmlns:stream='http://etherx.jabber.org/streams'>"

export class Stream {
  static async open(port) {
    const stream = new Stream(connect(port, '127.0.0.1'))
    await stream.ask(HEADER, '</stream:features>')
    return stream
  }

  constructor(socket) {
    Object.assign(this, { socket, received: '', ended: false, waiting: [] })
    const wake = () => {
      for (const waiter of this.waiting.splice(0)) waiter()
    }
    socket.setEncoding('utf8')
    socket.on('data', (text) => {
      this.received += text
      wake()
    })
    socket.on('error', () => {})
    socket.once('close', () => {
      this.ended = true
      wake()
    })
  }

  /** The input up to and including `end` (text or a pattern). */
  async until(end) {
    for (;;) {
      const found = typeof end === 'string' ? end : end.exec(this.received)?.[0]
      const at = found === undefined ? -1 : this.received.indexOf(found)
      if (at >= 0) {
        const text = this.received.slice(0, at + found.length)
        this.received = this.received.slice(text.length)
        return text
      }
      if (this.ended) throw new Error(`the stream ended before ${end}: ${this.received}`)
      await within(`${end} after ${this.received}`, new Promise((resolve) => this.waiting.push(resolve)))
    }
  }

  say(text) {
    this.socket.write(text)
  }

  async ask(text, end) {
    this.say(text)
    return this.until(end)
  }

  /** SASL2 with the given content; the answer up to its end. */
  authenticate(device, token, inside) {
    const plain = Buffer.from(`\0${device}\0${token}`).toString('base64')
    const open = "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'>"
    const text = `${open}<initial-response>${plain}</initial-response>${inside}</authenticate>`
    return this.ask(text, /<\/(success|failure)>/)
  }

  /** A session that can be resumed, by its id. */
  async begin(device, token) {
    const bind = `<bind xmlns='urn:xmpp:bind:0'><enable xmlns='${SM}' resume='true'/></bind>`
    const answer = await this.authenticate(device, token, bind)
    const id = /<enabled [^>]*id='([^']+)'/.exec(answer)?.[1]
    if (!id) throw new Error(`no session: ${answer}`)
    this.jid = /<authorization-identifier>([^<]+)</.exec(answer)[1]
    await this.until('</stream:features>')
    return id
  }

  resume(device, token, previd) {
    return this.authenticate(device, token, `<resume xmlns='${SM}' previd='${previd}' h='0'/>`)
  }

  /** Waits until the service has read everything so far; the stream is alive. */
  sync() {
    return this.ask("<iq type='get' id='sync' to='localhost'><ping xmlns='urn:xmpp:ping'/></iq>", /<iq[^>]*id='sync'[^>]*>/)
  }

  async closed() {
    while (!this.ended) await within('the end', new Promise((resolve) => this.waiting.push(resolve)))
    return this.received
  }

  /** Closes the stream: its session is not resumed. */
  end() {
    this.say('</stream:stream>')
    return this.closed()
  }

  /** Drops the connection without closing the stream. */
  vanish() {
    this.socket.resetAndDestroy()
  }
}
