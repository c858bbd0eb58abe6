/** Ctrl/Cmd+K: pages, apps and settings by name, or a search for what was typed. */

import { useEffect, useState } from 'preact/hooks'

import { LANGUAGES, type Language, speak, t } from '../i18n'
import { Combobox, type Choice } from '../ui/combobox'
import { Dialog } from '../ui/dialog'
import type { Listed } from '../reference/document'
import { utc } from './format'
import { best } from './match'
import { type Theme, theme } from './preference'
import { address, go } from './router'
import { PAGES } from './routes'
import { app, at, mayOpen, session, signOut } from './session'

function commands(): Choice[] {
  const pages = PAGES
    .filter(mayOpen)
    .map((page): Choice => ({ id: page.name, label: t(page.title), group: t('palette.pages'), icon: page.icon, hint: `g ${page.key}`, run: () => go(at(page.name)) }))
  const apps = (session.value?.apps ?? []).filter((name) => name !== app.value)
    .map((name): Choice => ({ id: `app-${name}`, label: t('palette.app', { app: name }), group: t('palette.apps'), icon: 'right', run: () => go(address('overview', { app: name })) }))
  const settings: Choice[] = [
    ...(['light', 'dark', 'system'] as Theme[]).map((value): Choice => ({ id: value, label: t('palette.theme', { theme: t(`theme.${value}`) }), group: t('palette.settings'), icon: 'sun', run: () => void (theme.value = value) })),
    ...Object.entries(LANGUAGES).map(([tag, name]): Choice => ({ id: tag, label: t('palette.language', { language: name }), group: t('palette.settings'), icon: 'globe', run: () => void speak(tag as Language) })),
    { id: 'utc', label: utc.value ? t('palette.local') : t('palette.utc'), group: t('palette.settings'), icon: 'activity', run: () => void (utc.value = !utc.value) },
    { id: 'account', label: t('page.account'), group: t('palette.settings'), icon: 'user', run: () => go(at('account')) },
    { id: 'sign-out', label: t('session.signOut'), group: t('palette.settings'), icon: 'right', run: () => void signOut() },
  ]
  return [...pages, ...apps, ...settings]
}

/** With fewer letters, everything fits. */
const OPERATION_LETTERS_MIN = 3
const OPERATIONS_MAX = 6

/** Operations of the API by their words; their list is loaded with the palette. */
function useOperations(wanted: string): Choice[] {
  const [search, setSearch] = useState<((typed: string) => Listed[]) | undefined>(undefined)
  useEffect(() => {
    // Without the list, the palette still has everything else.
    Promise.all([import('../reference/document'), import('../reference/operations')])
      .then(([{ find }, { OPERATIONS }]) => setSearch(() => (typed: string) => find(OPERATIONS, typed)), () => undefined)
  }, [])
  if (!search || wanted.length < OPERATION_LETTERS_MIN) return []
  return search(wanted).slice(0, OPERATIONS_MAX).map(({ id, method, path, summary }): Choice => ({
    id: `operation-${id}`, label: `${summary.replaceAll('`', '')} · ${method} ${path}`, group: t('palette.operations'), icon: 'code', run: () => go(at('reference', { id })),
  }))
}

export function Palette({ onClose }: { onClose(): void }) {
  const [typed, setTyped] = useState('')
  const wanted = typed.trim()
  const operations = useOperations(wanted)
  const search: Choice[] = wanted === '' ? [] : [{
    id: 'search', label: t('palette.search', { text: wanted }), group: t('palette.search.group'), icon: 'search',
    run: () => go(at('search', { q: wanted })),
  }]
  const found = best(commands(), ({ label }) => label, wanted)
  // Groups stay together even if their members fit differently well.
  const groups = [...new Set(found.map(({ group }) => group))]
  const choices = [...groups.flatMap((group) => found.filter((choice) => choice.group === group)), ...search, ...operations]
    .map((choice): Choice => ({
      ...choice,
      run: () => {
        onClose()
        choice.run()
      },
    }))
  return (
    <Dialog title={t('palette.title')} onClose={onClose}>
      <Combobox label={t('palette.title')} placeholder={t('palette.placeholder')} value={typed} onInput={setTyped} choices={choices} nothing={t('palette.nothing')} />
    </Dialog>
  )
}
