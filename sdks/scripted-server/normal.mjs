/** Observations in the form of the vectors. */

/** Tokens of vectors are JWTs whose claim `jti` is their name, or opaque texts. */
export function tokenName(token) {
  try {
    return JSON.parse(Buffer.from(token.split('.')[1], 'base64url').toString()).jti
  } catch {
    return token
  }
}

/** The name of the token in an `Authorization` header. */
export const bearer = (header) => tokenName((header ?? '').replace(/^Bearer /, ''))

export function frame(text) {
  const value = JSON.parse(text)
  return { frame: typeof value.token === 'string' ? { ...value, token: tokenName(value.token) } : value }
}

/** The observation of a request; `headers` are lower case. */
export function request(method, url, headers, body) {
  const { pathname, searchParams } = new URL(url, 'http://localhost')
  const query = Object.fromEntries(searchParams)
  if (pathname === '/v1/events') {
    const open = { open: 'sse', token: bearer(headers.authorization), ...query }
    return headers['last-event-id'] ? { ...open, last_event_id: headers['last-event-id'] } : open
  }
  const seen = { method, path: pathname, token: bearer(headers.authorization) }
  if (Object.keys(query).length) seen.query = query
  if (headers['if-none-match']) seen.if_none_match = headers['if-none-match']
  if (body) seen.body = JSON.parse(body)
  return { request: seen }
}

/** An event stream's form of a frame. */
export const event = (value) => `event: ${value.t}\n${value.ack ? `id: ${value.id}\n` : ''}data: ${JSON.stringify(value)}\n\n`

/** Sockets have no common order, so each kind of observation is compared in its own. */
export function byKind(observations) {
  const kinds = { open: [], frame: [], close: [], request: [] }
  for (const one of observations) kinds[Object.keys(one).find((key) => key in kinds)].push(one)
  return kinds
}
