/** New secrets, made in the browser: the server never shows them again. */

/** For Standard Webhooks: 32 random bytes. */
export function webhookSecret(): string {
  return `whsec_${btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32))))}`
}

/** A VAPID key: the private scalar of P-256, as base64url. Browsers offer this over HTTPS and on localhost only. */
export async function vapidKey(): Promise<string> {
  const { privateKey } = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign'])
  return (await crypto.subtle.exportKey('jwk', privateKey)).d ?? ''
}
export const canMakeKeys = (): boolean => typeof crypto.subtle !== 'undefined'

/** 32 random bytes as base64url, such as the secret of app JWTs. */
export function secretText(): string {
  return btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(32)))).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
}
