/** A list of names and values. */

import type { ComponentChildren } from 'preact'

export type Fact = readonly [name: string, value: ComponentChildren]

export function Facts({ facts }: { facts: readonly (Fact | false | undefined)[] }) {
  const shown = facts.filter((fact): fact is Fact => Boolean(fact))
  return (
    <dl class="facts">
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value === null || value === undefined || value === false || value === '' ? <span class="none">–</span> : value}</dd>
        </div>
      ))}
    </dl>
  )
}
