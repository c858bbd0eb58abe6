/** Parts of a whole, as a bar and in words. */

import { percent } from '../app/format'

export function Shares({ parts }: { parts: readonly { name: string; weight: number }[] }) {
  const whole = Math.max(1, parts.reduce((sum, { weight }) => sum + weight, 0))
  let from = 0
  return (
    <div class="shares">
      <svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">
        {parts.map(({ name, weight }, index) => {
          const width = weight / whole * 100
          const x = from
          from += width
          return <rect key={name} class={`share-${index % 5}`} x={x} width={width} height="1" />
        })}
      </svg>
      <span>{parts.map(({ name, weight }) => `${name} ${percent(weight / whole)}`).join(' · ')}</span>
    </div>
  )
}
