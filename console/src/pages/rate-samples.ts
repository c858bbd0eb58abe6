/** The rate of a campaign since the page was opened, in even steps: a step without an answer, as in a hidden tab, is a gap. */

export interface Samples { from: number; points: readonly (number | null)[] }

export const SAMPLES_MAX = 300

export function sampled({ from, points }: Samples, value: number, now: number, stepMs: number): Samples {
  if (points.length === 0) return { from: now, points: [value] }
  // An answer that comes early gets a step of its own.
  const step = Math.max(points.length, Math.round((now - from) / stepMs))
  const missing = Math.min(SAMPLES_MAX, step - points.length)
  const all = [...points, ...Array.from({ length: missing }, () => null), value]
  const kept = all.slice(-SAMPLES_MAX)
  return { from: from + (step + 1 - kept.length) * stepMs, points: kept }
}
