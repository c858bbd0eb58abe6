/**
 * The slope of a figure over time with its 95 % confidence interval.
 *
 * A restart begins a new *life* of a process, with its own level: the fit has one intercept per life and one slope for
 * all. The first part of a life is warm-up and left out. Neighbouring samples resemble each other, so that the
 * textbook interval would be too narrow: the number of samples is reduced to that of independent ones with the
 * same information, n (1 - r) / (1 + r), where r is the correlation of neighbouring residuals.
 */

/** Student's t for 95 %, two-sided; the error of this approximation is below 1 % from 5 degrees of freedom on. */
const student = (freedom) => 1.96 + 2.4 / freedom + 3 / freedom ** 2

const HOUR = 3_600

/**
 * `lives` are lists of `{ at, value }`, with `at` in seconds. Returns `{ slope, low, high, samples, hours }` per hour;
 * undefined if there are too few samples.
 */
export function fit(lives, { warmUp = 0 } = {}) {
  const used = lives
    .map((life) => life.filter(({ at, value }) => value !== undefined && at - life[0].at >= warmUp))
    .filter((life) => life.length >= 3)
  const centred = used.map((life) => {
    const mean = (key) => life.reduce((sum, sample) => sum + sample[key], 0) / life.length
    const [at, value] = [mean('at'), mean('value')]
    return life.map((sample) => ({ x: (sample.at - at) / HOUR, y: sample.value - value }))
  })
  const all = centred.flat()
  if (all.length < 8) return undefined
  const sum = (of) => all.reduce((total, sample) => total + of(sample), 0)
  const squares = sum(({ x }) => x * x)
  const slope = sum(({ x, y }) => x * y) / squares
  const residuals = centred.map((life) => life.map(({ x, y }) => y - slope * x))
  const variance = residuals.flat().reduce((total, residual) => total + residual ** 2, 0)
  const neighbours = residuals.reduce((total, life) => total + life.slice(1).reduce((part, one, at) => part + one * life[at], 0), 0)
  const correlation = variance > 0 ? Math.min(Math.max(neighbours / variance, 0), 0.98) : 0
  const independent = (all.length * (1 - correlation)) / (1 + correlation)
  // One intercept per life and the slope are fitted.
  const freedom = Math.max(independent - used.length - 1, 1)
  const spread = (variance / all.length) * (independent / freedom)
  const error = Math.sqrt(spread / (squares * (independent / all.length)))
  const half = student(freedom) * error
  const hours = used.reduce((total, life) => total + life.at(-1).at - life[0].at, 0) / HOUR
  return { slope, low: slope - half, high: slope + half, samples: all.length, hours }
}
