/** A client with a record of what it showed. */

import { WebSocket } from 'ws'

import { hs256, now } from '../../../../../e2e/lib/jwt.mjs'
import { JWT_SECRET } from '../../../../../e2e/lib/node.mjs'
import { until } from '../../../../../e2e/lib/until.mjs'
import { Noroshi } from '../../dist/index.js'

export const jwt = (device, lifetime = 3600, user = `user-of-${device}`) =>
  hs256(JWT_SECRET, { sub: user, device, iat: now(), exp: now() + lifetime })

export function client(url, device, options = {}) {
  const shown = []
  const states = []
  const errors = []
  const recovered = []
  const asked = []
  const noroshi = new Noroshi({
    url,
    runtime: { WebSocket },
    getToken: ({ reason }) => {
      asked.push(reason)
      return jwt(device, options.lifetime)
    },
    ...options,
  })
  noroshi.on('message', ({ data }) => shown.push(data))
  noroshi.on('state', (state) => states.push(state))
  noroshi.on('recovered', (event) => recovered.push(event))
  noroshi.on('error', (error) => errors.push(error))
  noroshi.connect()
  const connected = (transport = 'websocket') =>
    until(`${device} to be connected`, () => noroshi.state.state === 'connected' && noroshi.state.transport === transport)
  const shows = (count) => until(`${device} to show ${count} messages, not ${shown.length}`, () => shown.length >= count)
  return { noroshi, shown, states, errors, recovered, asked, connected, shows, device, user: `user-of-${device}` }
}
