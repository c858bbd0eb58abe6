/** A state in a word. The dot repeats the tone for people who scan; the word carries the meaning. */

import { tValue } from '../i18n'

export type Tone = 'good' | 'warn' | 'bad' | 'info' | 'muted'

export function Badge({ tone = 'muted', children }: { tone?: Tone; children: string }) {
  return <span class={`badge ${tone}`}>{children}</span>
}

const TONES: Record<string, Tone> = {
  active: 'good', idle: 'warn', offline: 'muted',
  pending: 'info', done: 'good', cancelled: 'muted', expired: 'muted',
  draft: 'muted', scheduled: 'info', running: 'good', paused: 'warn', aborted: 'bad',
  serving: 'good', draining: 'warn', drained: 'muted', stopping: 'bad',
  killed: 'bad', ended: 'muted', archived: 'muted', announced: 'info', over: 'muted',
  closed: 'good', open: 'bad', 'half-open': 'warn',
  unread: 'info', read: 'muted', waiting: 'info', sent: 'good', refused: 'bad', replaced: 'muted',
}

/** A state of the API with its translation and its tone. */
export function State({ value, of = 'state' }: { value: string; of?: 'state' | 'state.activity' }) {
  return <Badge tone={TONES[value] ?? 'muted'}>{tValue(of, value)}</Badge>
}

const OUTCOMES: Record<string, Tone> = {
  acked: 'good', opened: 'good', pushed: 'good', written: 'info', kept: 'info',
  push_refused: 'bad', push_token_gone: 'bad', push_not_configured: 'bad', evicted: 'bad',
  push_token_suspect: 'warn', no_push_token: 'warn', slow: 'warn', push_expired: 'warn', expired: 'warn',
}
export const outcomeTone = (outcome: string): Tone => OUTCOMES[outcome] ?? 'muted'

export function Outcome({ value }: { value: string }) {
  return <Badge tone={outcomeTone(value)}>{tValue('outcome', value)}</Badge>
}
