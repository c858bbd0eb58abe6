/** Codes of an authenticator app (RFC 6238 with its defaults), from the secret in base32. */

import { createHmac } from 'node:crypto'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'

function decode(secret) {
  const bits = [...secret.replaceAll('=', '')].map((letter) => ALPHABET.indexOf(letter).toString(2).padStart(5, '0'))
  return Buffer.from(bits.join('').match(/.{8}/g).map((byte) => Number.parseInt(byte, 2)))
}

export function totp(secret, at = Date.now()) {
  const counter = Buffer.alloc(8)
  counter.writeBigUInt64BE(BigInt(Math.floor(at / 30_000)))
  const mac = createHmac('sha1', decode(secret)).update(counter).digest()
  const offset = mac.at(-1) & 15
  return String((mac.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, '0')
}
