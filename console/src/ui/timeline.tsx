/** What happened, in order, with the time since the step before. */

import type { ComponentChildren } from 'preact'

import { dateTime, duration, millis, type Moment } from '../app/format'
import type { Tone } from './badge'

export interface Step { at: Moment; tone: Tone; title: string; text?: string | undefined; /** Of `text`, if it is not the person's. */ lang?: string; body?: ComponentChildren }

export function Timeline({ steps }: { steps: readonly Step[] }) {
  return (
    <ol class="timeline">
      {steps.map((step, index) => {
        const before = steps[index - 1]
        return (
          <li key={index} class={step.tone}>
            <div class="timeline-head">
              <strong>{step.title}</strong>
              <time dateTime={new Date(millis(step.at)).toISOString()}>{dateTime(step.at, true)}</time>
              {before && <span class="delta">+{duration(Math.max(0, millis(step.at) - millis(before.at)))}</span>}
            </div>
            {step.text && <p lang={step.lang}>{step.text}</p>}
            {step.body}
          </li>
        )
      })}
    </ol>
  )
}
