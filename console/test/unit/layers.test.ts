/// <reference types="vite/client" />
import { expect, test } from 'vitest'

/** What each folder may import; `app/X` is one file of the folder. Pages are loaded by the routes, on demand. */
const MAY: Readonly<Record<string, readonly string[]>> = {
  i18n: ['i18n'],
  api: ['api'],
  style: [],
  ui: ['ui', 'i18n', 'api/error', 'app/error-text', 'app/format', 'app/load', 'app/preference'],
  reference: ['reference', 'api', 'i18n', 'app/session'],
  app: ['app', 'ui', 'api', 'i18n', 'reference'],
  pages: ['pages', 'app', 'ui', 'api', 'i18n', 'reference', 'style'],
}
/** Types only: a message for each value of the API. */
const EXCEPT = ['i18n/value.ts']

const files = import.meta.glob<string>('../../src/*/**/*.{ts,tsx}', { query: '?raw', import: 'default', eager: true })

test.each(Object.keys(MAY))('%s imports what its layer may', (folder) => {
  const found = Object.entries(files).flatMap(([path, source]) => {
    const name = path.replace('../../src/', '')
    if (!name.startsWith(`${folder}/`) || EXCEPT.includes(name)) return []
    return [...source.matchAll(/^(?:import|export)\b(?:[^'\n]*\bfrom)? '(\.[^']*)'/gm)].flatMap(([, target = '']) => {
      const to = target.startsWith('../') ? target.slice(3) : `${folder}/${target.slice(2)}`
      return MAY[folder]?.some((allowed) => to === allowed || to.startsWith(`${allowed}/`)) ? [] : [`${name} imports ${to}`]
    })
  })
  expect(found).toEqual([])
})
