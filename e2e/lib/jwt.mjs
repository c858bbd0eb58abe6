/** App JWTs (RFC 7519), signed with node:crypto only. */

import { createHmac, generateKeyPairSync, sign } from 'node:crypto'

const encode = (value) => Buffer.from(JSON.stringify(value)).toString('base64url')
export const now = () => Math.floor(Date.now() / 1000)

export function hs256(secret, claims, header = {}) {
  const text = `${encode({ alg: 'HS256', typ: 'JWT', ...header })}.${encode(claims)}`
  return `${text}.${createHmac('sha256', secret).update(text).digest('base64url')}`
}

/** A key pair that signs, with its public half as a JWK. `alg` is RS256 or ES256. */
export function keyPair(alg, kid) {
  const { publicKey, privateKey } =
    alg === 'RS256'
      ? generateKeyPairSync('rsa', { modulusLength: 2048 })
      : generateKeyPairSync('ec', { namedCurve: 'P-256' })
  return {
    jwk: { ...publicKey.export({ format: 'jwk' }), alg, kid, use: 'sig' },
    sign(claims) {
      const text = `${encode({ alg, typ: 'JWT', kid })}.${encode(claims)}`
      // RFC 7518 §3.4: r and s as 64 bytes, not DER.
      const signature = sign('sha256', Buffer.from(text), { key: privateKey, dsaEncoding: 'ieee-p1363' })
      return `${text}.${signature.toString('base64url')}`
    },
  }
}
