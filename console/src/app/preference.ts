/** Language, theme and time zone of this browser: the only things the console stores in it. */

import { effect, signal } from '@preact/signals'

import { language, type Language, LANGUAGES, preferred, speak } from '../i18n'
import { now, utc } from './format'

export type Theme = 'system' | 'light' | 'dark'
export const theme = signal<Theme>('system')
/** What the page shows, whatever the reason. */
export const dark = signal(false)

const KEY = 'noroshi.console'
interface Stored { language?: Language; theme?: Theme; utc?: boolean }

function stored(): Stored {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}') as Stored
  } catch {
    return {}
  }
}

export async function applyPreferences(): Promise<void> {
  const saved = stored()
  theme.value = saved.theme === 'light' || saved.theme === 'dark' ? saved.theme : 'system'
  utc.value = saved.utc === true
  await speak(saved.language && saved.language in LANGUAGES ? saved.language : preferred(navigator.languages))

  const system = matchMedia('(prefers-color-scheme: dark)')
  const systemDark = signal(system.matches)
  system.addEventListener('change', (event) => void (systemDark.value = event.matches))
  effect(() => {
    dark.value = theme.value === 'dark' || (theme.value === 'system' && systemDark.value)
    document.documentElement.dataset['theme'] = dark.value ? 'dark' : 'light'
    document.documentElement.lang = language.value
  })
  effect(() => {
    const values: Stored = { language: language.value, theme: theme.value, utc: utc.value }
    try {
      localStorage.setItem(KEY, JSON.stringify(values))
    } catch {
      // Private windows may refuse; the choice then lasts until the page is closed.
    }
  })
  setInterval(() => document.visibilityState === 'visible' && (now.value = Date.now()), 10_000)
}
