/** Keys as bytes and as base64url. */

export function encode(bytes: ArrayBuffer | null | undefined): string {
  const text = btoa(String.fromCharCode(...new Uint8Array(bytes ?? new ArrayBuffer(0))))
  return text.replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '')
}

export function decode(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (char) => char.charCodeAt(0))
}

/** The push token of the API. */
export const tokenOf = (subscription: PushSubscription) => ({
  endpoint: subscription.endpoint,
  keys: { p256dh: encode(subscription.getKey('p256dh')), auth: encode(subscription.getKey('auth')) },
})

export type Token = ReturnType<typeof tokenOf>

export const TOKEN_PATH = '/v1/me/push-tokens/webpush'
export const OPENED_PATH = '/v1/me/opened'
/** Ids of a request. */
export const OPENED_MAX = 1_000
