/** Time-based one-time passwords (RFC 6238), for the fake server and for the "phone" of the tests. */

import { createHmac, randomBytes } from 'node:crypto'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'

export const newSecret = () => Array.from(randomBytes(32), (byte) => ALPHABET[byte & 31]).join('')

function decode(secret) {
  let bits = ''
  for (const letter of secret) bits += ALPHABET.indexOf(letter).toString(2).padStart(5, '0')
  return Buffer.from(bits.match(/.{8}/g).map((byte) => Number.parseInt(byte, 2)))
}

export function totp(secret, at = Date.now()) {
  const counter = Buffer.alloc(8)
  counter.writeBigUInt64BE(BigInt(Math.floor(at / 30_000)))
  const mac = createHmac('sha1', decode(secret)).update(counter).digest()
  const offset = mac[19] & 15
  return String((mac.readUInt32BE(offset) & 0x7fffffff) % 1_000_000).padStart(6, '0')
}

/** The code of this or the previous half minute. */
export const isCode = (secret, code) => [0, -30_000].some((shift) => totp(secret, Date.now() + shift) === code)
