import { percent } from '../app/format'

/** How much of a limit is used. */
export function Meter({ label, value }: { label: string; value: number }) {
  const tone = value >= 0.95 ? 'bad' : value >= 0.8 ? 'warn' : 'accent'
  return (
    <span class="meter">
      <svg class={`bar ${tone}`} viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label={`${label}: ${percent(value)}`}>
        <rect width={Math.min(100, value * 100)} height="1" />
      </svg>
      <span aria-hidden="true">{percent(value)}</span>
    </span>
  )
}
