/** The page of the present address: loads its code, names the window, moves the focus to its title. */

import type { ComponentType } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'

import { t } from '../i18n'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Head } from '../ui/head'
import { Skeleton } from '../ui/skeleton'
import { place, visit } from './router'
import { DETAILS, type Loader, NO_APP, type Page, PAGES, WITHOUT_APP } from './routes'
import { app, at, isFront, isServed, mayOpen, unknownApp } from './session'

const loaded = new Map<Loader, ComponentType>()

export function View() {
  const { page, query } = place.value
  const entry = PAGES.find(({ name }) => name === page)
  const found = entry ?? DETAILS[page]
  const menu = entry ?? PAGES.find(({ name }) => name === DETAILS[page]?.parent)
  const load = app.value || WITHOUT_APP.includes(page) ? found?.load : NO_APP
  const [, setRound] = useState(0)
  const [error, setError] = useState<unknown>(undefined)
  const id = query.get('id')

  useEffect(() => {
    if (!found) return
    const about = [id, t(found.title), app.value].filter(Boolean).join(' · ')
    document.title = `${about} · Noroshi`
  })
  useEffect(() => {
    setError(undefined)
    if (!load || loaded.has(load)) return undefined
    let wanted = true
    load().then(
      (module) => {
        loaded.set(load, module.default)
        setRound((n) => n + 1)
      },
      (failure: unknown) => wanted && setError(failure),
    )
    return () => void (wanted = false)
  }, [load])
  const shown = useRef<number | undefined>(undefined)
  const ready = load !== undefined && loaded.has(load)
  useEffect(() => {
    if (!ready) return
    const now = visit.value
    // The first page leaves the focus at the start of the document.
    if (shown.current !== undefined && shown.current !== now) focusTitle()
    shown.current = now
  }, [visit.value, ready])

  if (!found || !load) return <><Head title={t('view.missing')} /><Empty icon="search" title={page} text={t('view.missing.text')}><a class="button" href={at('overview')}>{t('page.overview')}</a></Empty></>
  // The first app instead of this one would show the data of another app.
  if (unknownApp.value !== undefined && app.value && isOfApp(page, menu)) {
    return <><Head title={t(found.title)} /><Empty icon="search" title={t('view.noApp', { app: unknownApp.value })} text={t('view.noApp.text')}><a class="button" href={at('overview')}>{t('palette.app', { app: app.value })}</a></Empty></>
  }
  if (menu && !isServed(menu)) {
    return <><Head title={t(found.title)} /><Empty icon="cell" title={t('view.elsewhere')} text={t(isFront() ? 'problem.not_at_a_front' : 'view.onlyFront')} /></>
  }
  if (entry && !mayOpen(entry)) {
    return <><Head title={t(entry.title)} /><Empty icon="rule" title={t('view.forbidden')} text={t('permission.missing', { permission: t(`permission.${entry.permission}`) })} /></>
  }
  if (error) return <><Head title={t(found.title)} /><ErrorBox error={error} retry={() => location.reload()} /></>
  const Component = loaded.get(load)
  // Another app or another id mounts a new page.
  return Component ? <Component key={`${page} ${app.value} ${visit.value}`} /> : <><Head title={t(found.title)} /><Skeleton rows={8} /></>
}

const isOfApp = (page: string, menu: Page | undefined): boolean => menu?.everywhere !== true && page !== 'account' && page !== 'components'

/** So that screen readers and the keyboard continue at the new page. */
function focusTitle(): void {
  const active = document.activeElement
  if (active && active !== document.body && document.getElementById('content')?.contains(active)) return
  document.querySelector<HTMLElement>('#content h1')?.focus({ preventScroll: true })
}
