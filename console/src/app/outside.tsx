/** The frame of pages for people who are not signed in. */

import type { ComponentChildren } from 'preact'
import { useEffect } from 'preact/hooks'

import { type Language, language, LANGUAGES, speak } from '../i18n'
import { Mark } from './mark'

export function Outside({ title, children }: { title: string; children: ComponentChildren }) {
  useEffect(() => {
    document.title = `${title} · Noroshi`
  }, [title])
  return (
    <main class="outside">
      <div class="outside-card">
        <p class="outside-mark"><Mark /> Noroshi</p>
        <h1>{title}</h1>
        {children}
      </div>
      <div class="outside-foot">
        {Object.entries(LANGUAGES).map(([tag, name]) => (
          <button key={tag} type="button" class="link-button" lang={tag} aria-pressed={language.value === tag} onClick={() => void speak(tag as Language)}>{name}</button>
        ))}
      </div>
    </main>
  )
}
