/**
 * Messages in the language of the person. `t` takes a key of `en.ts`; a key or a placeholder that does not exist is a
 * type error. `{count|device|devices}` chooses by number; plain `{count}` prints it.
 */

import { batch, signal } from '@preact/signals'

import { en } from './en'
import { count } from './number'

export type Key = keyof typeof en
export type Messages = Record<Key, string>
export const LANGUAGES = { en: 'English', ja: '日本語' } as const
export type Language = keyof typeof LANGUAGES

export const language = signal<Language>('en')
const messages = signal<Messages>(en)

type Placeholder<Text extends string> = Text extends `${string}{${infer Inner}}${infer Rest}`
  ? (Inner extends `${infer Name}|${string}` ? Name : Inner) | Placeholder<Rest>
  : never
/** Keys of messages without placeholders. */
export type PlainKey = { [K in Key]: Placeholder<(typeof en)[K]> extends never ? K : never }[Key]
export type Values<K extends Key> = [Placeholder<(typeof en)[K]>] extends [never]
  ? []
  : [values: Record<Placeholder<(typeof en)[K]>, string | number>]

let chosen: Language = 'en'

export async function speak(to: Language): Promise<void> {
  chosen = to
  const loaded = to === 'ja' ? (await import('./ja')).ja : en
  // The person chose again while the messages were on their way.
  if (chosen !== to) return
  batch(() => {
    messages.value = loaded
    language.value = to
  })
}

/** The language of the browser, if we have it. */
export function preferred(languages: readonly string[]): Language {
  const known = languages.map((tag) => tag.slice(0, 2)).find((tag) => tag in LANGUAGES)
  return (known as Language | undefined) ?? 'en'
}

export function t<K extends Key>(key: K, ...values: Values<K>): string {
  return fill(messages.value[key], values[0] ?? {}, language.value)
}

/** The message of a value that the server chose, such as a state; values that are newer than the page appear as sent. */
export function tValue(prefix: string, value: string): string {
  return known(`${prefix}.${value}`) ?? value.replaceAll('_', ' ')
}

/** The message of a key that may be newer than the page. */
export const known = (key: string): string | undefined => messages.value[key as Key]

export function fill(text: string, values: Record<string, string | number>, tongue: Language): string {
  return text.replace(/\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g, (whole, name: string, one?: string, other?: string) => {
    const value = values[name]
    if (value === undefined) return whole
    const shown = typeof value === 'number' ? count(value, tongue) : value
    if (one === undefined) return shown
    return `${shown} ${value === 1 ? one : other}`
  })
}
