/** Short reports of what happened; a live region announces them. */

import { signal } from '@preact/signals'

import { ApiError } from '../api/error'
import { detailText, errorText } from '../app/error-text'
import { t } from '../i18n'
import { Icon } from './icon'

type Tone = 'good' | 'bad'
interface Entry { id: number; text: string; tone: Tone; detail?: string | undefined }

const SHOWN_MS = 6000
const SHOWN_MAX = 4

const entries = signal<readonly Entry[]>([])
let last = 0

function bounded(all: readonly Entry[]): readonly Entry[] {
  const dropped = all.length > SHOWN_MAX ? all.find(({ tone }) => tone === 'good') ?? all[0] : undefined
  return all.filter((entry) => entry !== dropped)
}

export function toast(text: string, tone: Tone = 'good', detail?: string): void {
  const id = ++last
  entries.value = bounded([...entries.value, { id, text, tone, detail }])
  // Errors stay until the person dismisses them, or more errors come.
  if (tone === 'good') setTimeout(() => dismiss(id), SHOWN_MS)
}

export function toastError(error: unknown): void {
  const problem = error instanceof ApiError ? error.problem : undefined
  toast(errorText(error), 'bad', problem && [detailText(error), problem.code, problem.requestId].filter(Boolean).join(' · '))
}

function dismiss(id: number): void {
  entries.value = entries.value.filter((entry) => entry.id !== id)
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite" aria-label={t('toast.label')}>
      {entries.value.map((entry) => (
        <div key={entry.id} class={`toast ${entry.tone}`}>
          <Icon name={entry.tone === 'good' ? 'check' : 'notice'} />
          <div>
            {entry.text}
            {entry.detail && <code class="toast-detail">{entry.detail}</code>}
          </div>
          <button type="button" class="copy" aria-label={t('action.dismiss')} onClick={() => dismiss(entry.id)}><Icon name="close" /></button>
        </div>
      ))}
    </div>
  )
}
