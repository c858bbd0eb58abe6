/** Signs app JWTs, with which devices log in (docs/authorization.md). */

/** A `CryptoKey`, which not every environment declares. */
export interface SigningKey {
  readonly type: string
  readonly algorithm: { readonly name: string }
  readonly usages: readonly string[]
}

/** A private key as a JSON Web Key (RFC 7517). */
export interface PrivateJwk {
  kty?: string | undefined
  crv?: string | undefined
  kid?: string | undefined
  [parameter: string]: unknown
}

export interface JwtSignerOptions {
  /** The app's secret: at least 32 bytes. Signs with HS256. */
  secret?: string | Uint8Array
  /** A private key: signs with RS256, or ES256 for P-256. The app knows the public half by its JWKS. */
  privateKey?: SigningKey | PrivateJwk
  /** Names the key in the app's JWKS. Default: `kid` of `privateKey`. */
  keyId?: string
  /** `iss`. Required if the app declares an issuer. */
  issuer?: string
  /** `aud`. The app's name, or the audience that it declares: it tells the node which app the token belongs to. */
  audience?: string
  /** Seconds until a token expires; a device's session ends then, unless it renews the token. Default: 3,600. */
  expiresInSeconds?: number
  /** Milliseconds since 1970. Default: `Date.now`. */
  now?: () => number
}

export interface JwtClaims {
  /** 1 to 255 bytes. */
  user: string
  /** The id of one installed app: 1 to 128 bytes. */
  device: string
  /** Durable subscriptions. */
  topics?: string[]
  /** Default: that of the signer. */
  expiresInSeconds?: number
  /** More claims, for example for topic rules. */
  claims?: Record<string, unknown>
}

const HS256 = { name: 'HMAC', hash: 'SHA-256' }
const RS256 = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' }
const ES256 = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
const encoder = new TextEncoder()

/**
 * Signs tokens without a request to the service. The first use of a token creates its device.
 *
 * ```ts
 * const jwts = new JwtSigner({ secret: process.env.NOROSHI_JWT_SECRET, audience: 'shop' })
 * const token = await jwts.sign({ user: 'u1', device: 'phone-1' })
 * ```
 */
export class JwtSigner {
  readonly #options: JwtSignerOptions
  #key: Promise<CryptoKey> | undefined

  constructor(options: JwtSignerOptions) {
    const { secret, privateKey } = options
    if ((secret === undefined) === (privateKey === undefined)) throw new TypeError('pass either secret or privateKey')
    if (secret !== undefined && bytes(secret).length < 32) throw new RangeError('secret must have at least 32 bytes (RFC 7518 §3.2)')
    this.#options = options
  }

  async sign({ user, device, topics, expiresInSeconds = this.#options.expiresInSeconds ?? 3_600, claims = {} }: JwtClaims): Promise<string> {
    const { issuer, audience, privateKey, now = Date.now } = this.#options
    length('user', user, 255)
    length('device', device, 128)
    if (!(expiresInSeconds > 0)) throw new RangeError('expiresInSeconds must be greater than 0')
    const key = await (this.#key ??= this.#import())
    const alg = key.algorithm.name === HS256.name ? 'HS256' : key.algorithm.name === ES256.name ? 'ES256' : 'RS256'
    const keyId = this.#options.keyId ?? (privateKey as { kid?: string } | undefined)?.kid
    const iat = Math.floor(now() / 1000)
    const payload = {
      ...claims,
      ...(issuer !== undefined && { iss: issuer }),
      ...(audience !== undefined && { aud: audience }),
      sub: user,
      device,
      ...(topics !== undefined && { topics }),
      iat,
      exp: iat + Math.floor(expiresInSeconds),
    }
    const text = `${part({ alg, typ: 'JWT', ...(keyId !== undefined && { kid: keyId }) })}.${part(payload)}`
    const algorithm = { HS256, RS256, ES256 }[alg]
    return `${text}.${base64url(new Uint8Array(await crypto.subtle.sign(algorithm, key, encoder.encode(text))))}`
  }

  async #import(): Promise<CryptoKey> {
    const { secret, privateKey } = this.#options
    if (secret !== undefined) return crypto.subtle.importKey('raw', bytes(secret), HS256, false, ['sign'])
    if (!('kty' in privateKey!)) return usable(privateKey as CryptoKey)
    const { kty, crv } = privateKey as PrivateJwk
    if (kty !== 'RSA' && !(kty === 'EC' && crv === 'P-256')) throw new TypeError('privateKey must be of RSA or P-256')
    // `use`, `key_ops` and `alg` of a JWK may be those of its public half.
    const { use: _, key_ops: __, alg: ___, ...jwk } = privateKey as PrivateJwk
    return crypto.subtle.importKey('jwk', jwk as JsonWebKey, kty === 'RSA' ? RS256 : ES256, false, ['sign'])
  }
}

function usable(key: CryptoKey): CryptoKey {
  const { name, hash, namedCurve } = key.algorithm as { name: string; hash?: { name: string }; namedCurve?: string }
  const fits = name === ES256.name ? namedCurve === 'P-256' : (name === RS256.name || name === HS256.name) && hash?.name === 'SHA-256'
  if (!fits || !key.usages.includes('sign')) throw new TypeError('privateKey must sign with RS256, ES256 or HS256')
  return key
}

function length(name: string, text: string, max: number): void {
  const { length } = encoder.encode(text)
  if (typeof text !== 'string' || length < 1 || length > max) throw new RangeError(`${name} must have 1 to ${max} bytes`)
}

const bytes = (secret: string | Uint8Array) => (typeof secret === 'string' ? encoder.encode(secret) : (secret as Uint8Array<ArrayBuffer>))
const part = (value: object) => base64url(encoder.encode(JSON.stringify(value)))
const base64url = (data: Uint8Array) => btoa(String.fromCharCode(...data)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '')
