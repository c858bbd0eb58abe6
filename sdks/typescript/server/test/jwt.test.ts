import assert from 'node:assert/strict'
import { createHmac, createPublicKey, generateKeyPairSync, verify, webcrypto, type KeyObject } from 'node:crypto'
import { expect, test } from 'vitest'

import { JwtSigner } from '../src/index.js'

const SECRET = 'a secret of at least thirty-two bytes'
const now = () => 1_700_000_000_900

function read(token: string) {
  const [header, claims] = token.split('.').slice(0, 2).map((part) => JSON.parse(Buffer.from(part, 'base64url').toString()))
  return { header, claims, text: token.slice(0, token.lastIndexOf('.')), signature: Buffer.from(token.split('.')[2]!, 'base64url') }
}

test('a secret signs with HS256', async () => {
  const jwts = new JwtSigner({ secret: SECRET, audience: 'shop', issuer: 'https://id.example.com', now })
  const token = await jwts.sign({ user: 'ユーザー', device: 'd1', topics: ['news'], claims: { team: 'a', sub: 'somebody else', exp: 1 } })
  assert.match(token, /^[\w-]+\.[\w-]+\.[\w-]+$/)
  const { header, claims, text, signature } = read(token)
  assert.deepEqual(header, { alg: 'HS256', typ: 'JWT' })
  assert.deepEqual(claims, { team: 'a', sub: 'ユーザー', exp: 1_700_003_600, iss: 'https://id.example.com', aud: 'shop', device: 'd1', topics: ['news'], iat: 1_700_000_000 })
  assert.deepEqual(signature, createHmac('sha256', SECRET).update(text).digest())
  const bytes = new JwtSigner({ secret: new TextEncoder().encode(SECRET), audience: 'shop', issuer: 'https://id.example.com', now })
  assert.deepEqual(read(await bytes.sign({ user: 'u', device: 'd', expiresInSeconds: 60.9 })).claims, { iss: 'https://id.example.com', aud: 'shop', sub: 'u', device: 'd', iat: 1_700_000_000, exp: 1_700_000_060 })
})

const pairs: [string, { publicKey: KeyObject; privateKey: KeyObject }][] = [
  ['RS256', generateKeyPairSync('rsa', { modulusLength: 2048 })],
  ['ES256', generateKeyPairSync('ec', { namedCurve: 'P-256' })],
]
test.each(pairs)('a private key signs with %s', async (alg, { publicKey, privateKey }) => {
  const jwk = privateKey.export({ format: 'jwk' })
  const algorithm = alg === 'RS256' ? { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' } : { name: 'ECDSA', namedCurve: 'P-256' }
  const key = await webcrypto.subtle.importKey('jwk', jwk as never, algorithm, false, ['sign'])
  const named = { ...jwk, kid: 'k1', use: 'sig', key_ops: ['verify'], alg }
  for (const signer of [new JwtSigner({ privateKey: named }), new JwtSigner({ privateKey: key, keyId: 'k1' })]) {
    const { header, text, signature } = read(await signer.sign({ user: 'u1', device: 'd1' }))
    assert.deepEqual(header, { alg, typ: 'JWT', kid: 'k1' })
    assert.ok(verify('sha256', Buffer.from(text), { key: createPublicKey(publicKey.export({ format: 'pem', type: 'spki' })), dsaEncoding: 'ieee-p1363' }, signature))
  }
})

test('wrong keys and claims are rejected', async () => {
  assert.throws(() => new JwtSigner({}), TypeError)
  assert.throws(() => new JwtSigner({ secret: SECRET, privateKey: {} }), TypeError)
  assert.throws(() => new JwtSigner({ secret: 'short' }), /32 bytes/)
  for (const curve of ['P-384', 'secp256k1']) {
    const jwk = generateKeyPairSync('ec', { namedCurve: curve }).privateKey.export({ format: 'jwk' })
    await expect(new JwtSigner({ privateKey: jwk }).sign({ user: 'u', device: 'd' })).rejects.toThrow(/P-256/)
  }
  const { publicKey } = (await webcrypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify'])) as webcrypto.CryptoKeyPair
  await expect(new JwtSigner({ privateKey: publicKey }).sign({ user: 'u', device: 'd' })).rejects.toThrow(/must sign/)
  const jwts = new JwtSigner({ secret: SECRET })
  for (const claims of [
    { user: '', device: 'd' },
    { user: 'u', device: '' },
    { user: 'あ'.repeat(86), device: 'd' },
    { user: 'u', device: 'd'.repeat(129) },
    { user: undefined as never, device: 'd' },
    { user: 'u', device: 'd', expiresInSeconds: 0 },
    { user: 'u', device: 'd', expiresInSeconds: Number.NaN },
  ]) {
    await expect(jwts.sign(claims)).rejects.toThrow(RangeError)
  }
})
