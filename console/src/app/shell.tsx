/** The frame of all pages: menu, search field, account. */

import { useEffect, useRef, useState } from 'preact/hooks'

import { type Language, language, LANGUAGES, speak, t } from '../i18n'
import { Questions, withdrawQuestion } from '../ui/ask'
import { Icon } from '../ui/icon'
import { Menu } from '../ui/menu'
import { ConfirmLogin } from './confirm'
import { utc } from './format'
import { Help } from './help'
import { Mark } from './mark'
import { Palette } from './palette'
import { type Theme, theme } from './preference'
import { address, go, place, visit } from './router'
import { DETAILS, PAGES, type Page } from './routes'
import { app, at, mayOpen, session, signOut } from './session'
import { listen } from './shortcut'
import { View } from './view'

export function Shell() {
  const [overlay, setOverlay] = useState<'palette' | 'help' | undefined>(undefined)
  const [menu, setMenu] = useState(false)
  const search = useRef<HTMLInputElement>(null)
  const burger = useRef<HTMLButtonElement>(null)
  const close = (): void => setOverlay(undefined)
  function closeMenu(): void {
    setMenu(false)
    burger.current?.focus()
  }

  useEffect(() => listen({
    search: () => search.current?.select(),
    palette: () => setOverlay('palette'),
    help: () => setOverlay('help'),
  }), [])
  useEffect(() => setMenu(false), [place.value])
  useEffect(() => withdrawQuestion, [visit.value, app.value])

  return (
    <div class={`shell${menu ? ' menu-open' : ''}`} onKeyDown={(event) => menu && event.key === 'Escape' && closeMenu()}>
      <a class="skip" href="#content">{t('shell.skip')}</a>
      <Sidebar />
      <div class="veil" onClick={() => setMenu(false)} />
      <div class="column">
        <header class="topbar">
          <button ref={burger} type="button" class="copy burger" aria-label={t('shell.menu')} aria-expanded={menu} aria-controls="sidebar" onClick={() => setMenu(!menu)}><Icon name="menu" /></button>
          <form class="search" role="search" onSubmit={(event) => { event.preventDefault(); const q = search.current?.value.trim(); if (q) go(at('search', { q })) }}>
            <Icon name="search" />
            <input
              ref={search}
              type="search"
              aria-label={t('search.label')}
              placeholder={t('search.placeholder')}
              autocomplete="off"
              spellcheck={false}
              onKeyDown={(event) => event.key === 'Escape' && event.currentTarget.blur()}
            />
            <kbd aria-hidden="true">/</kbd>
          </form>
          <button type="button" class="button quiet palette-button" onClick={() => setOverlay('palette')}><span>{t('shell.commands')}</span><kbd>Ctrl K</kbd></button>
          <AccountMenu help={() => setOverlay('help')} />
        </header>
        <main id="content" class="content" tabIndex={-1}><View /></main>
      </div>
      {overlay === 'palette' && <Palette onClose={close} />}
      {overlay === 'help' && <Help onClose={close} />}
      <Questions />
      <ConfirmLogin />
    </div>
  )
}

/** Neighbours of the present entry stay visible too. */
const MENU_MARGIN = 48
const GROUPS: Page['group'][] = ['watch', 'send', 'app', 'team', 'node']

function Sidebar() {
  const here = DETAILS[place.value.page]?.parent ?? place.value.page
  const pages = PAGES.filter(mayOpen)
  const menu = useRef<HTMLElement>(null)
  // On a low screen the entry may be out of sight. `scrollIntoView` would scroll the page too.
  useEffect(() => {
    const bar = menu.current
    const entry = bar?.querySelector('[aria-current]')?.getBoundingClientRect()
    if (!bar || !entry) return
    const { top, bottom } = bar.getBoundingClientRect()
    if (entry.bottom > bottom - MENU_MARGIN) bar.scrollTop += entry.bottom - bottom + MENU_MARGIN
    else if (entry.top < top + MENU_MARGIN) bar.scrollTop -= top + MENU_MARGIN - entry.top
  }, [here])
  return (
    <nav ref={menu} class="sidebar" id="sidebar" aria-label={t('shell.menu')}>
      <a class="brand" href={at('overview')}><Mark /> Noroshi</a>
      <AppSwitcher />
      {GROUPS.map((group) => {
        const members = pages.filter((page) => page.group === group)
        return members.length > 0 && (
          <div key={group} class="sidebar-group">
            <h2>{t(`group.${group}`)}</h2>
            <ul>
              {members.map((page) => (
                <li key={page.name}>
                  <a href={at(page.name)} aria-current={page.name === here ? 'page' : undefined}><Icon name={page.icon} />{t(page.title)}</a>
                </li>
              ))}
            </ul>
          </div>
        )
      })}
    </nav>
  )
}

function AppSwitcher() {
  const apps = session.value?.apps ?? []
  if (!app.value) return <p class="app-none">{t('shell.noApp')}</p>
  return (
    <Menu
      className="app-menu"
      label={t('shell.app')}
      button={<><span class="app-letter" aria-hidden="true">{app.value[0]?.toUpperCase()}</span><span class="app-name">{app.value}</span><Icon name="down" /></>}
      items={apps.map((name) => ({
        label: name,
        checked: name === app.value,
        // Ids of one app mean nothing in another one: pages of one thing lead back to their list.
        href: address(DETAILS[place.value.page]?.parent ?? place.value.page, { app: name }),
      }))}
    />
  )
}

function AccountMenu({ help }: { help(): void }) {
  const person = session.value?.person
  return (
    <Menu
      className="account-menu"
      label={t('shell.account', { person: person?.email ?? '' })}
      button={<span class="avatar" aria-hidden="true">{(person?.name || person?.email || '?').slice(0, 1).toUpperCase()}</span>}
      items={[
        { label: person?.email ?? t('page.account'), href: at('account') },
        'line',
        ...(['system', 'light', 'dark'] as Theme[]).map((value) => ({ label: t('palette.theme', { theme: t(`theme.${value}`) }), checked: theme.value === value, onChoose: () => void (theme.value = value) })),
        'line',
        ...Object.entries(LANGUAGES).map(([tag, name]) => ({ label: name, checked: language.value === tag, onChoose: () => void speak(tag as Language) })),
        'line',
        { label: t('palette.local'), checked: !utc.value, onChoose: () => void (utc.value = false) },
        { label: t('palette.utc'), checked: utc.value, onChoose: () => void (utc.value = true) },
        'line',
        { label: t('help.title'), onChoose: help },
        { label: t('session.signOut'), onChoose: () => void signOut() },
      ]}
    />
  )
}
