/** Time series that look like a day of a service: the same at each call for the same moment. */

import { Problem } from './problem.mjs'

const HOUR_MS = 3_600_000
const NAMES = {
  connections: [{}, 12_000], logins: [{}, 42], publishes: [{}, 310], deliveries: [{}, 4200],
  latency_p50: [{}, 11], latency_p99: [{}, 64], backlog: [{}, 900], errors: [{}, 0.4],
}
const noise = (n) => {
  const x = Math.sin(n * 12.9898) * 43_758.5453
  return x - Math.floor(x)
}
function value(height, at, seed) {
  const day = Math.sin((at / HOUR_MS / 24) * 2 * Math.PI - 1.9)
  return Math.round(height * (0.7 + 0.35 * day + 0.06 * Math.sin(at / 400_000 + seed) + 0.08 * noise(at / 10_000 + seed)) * 100) / 100
}

export function series(query) {
  const from = Number(query.get('from'))
  const until = Number(query.get('until'))
  const step = Number(query.get('step') ?? 10)
  if (!(from < until) || !Number.isFinite(from)) throw new Problem(400, 'invalid_parameter', 'from must be before until', 'from')
  const count = Math.min(2000, Math.floor((until - from) / (step * 1000)))
  const points = (height, seed) => Array.from({ length: count }, (_, index) => value(height, from + index * step * 1000, seed))
  const all = query.get('names').split(',').flatMap((name, seed) => {
    if (name === 'push_responses') {
      return [['apns', 120], ['fcm', 210], ['webpush', 34]].map(([service, height], index) => ({ name, labels: { service }, points: points(height, index) }))
    }
    if (!NAMES[name]) throw new Problem(400, 'invalid_parameter', `no series ${name}`, 'names')
    return [{ name, labels: NAMES[name][0], points: points(NAMES[name][1], seed) }]
  })
  return { step_seconds: step, from, series: all }
}
