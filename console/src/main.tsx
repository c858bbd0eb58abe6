/** Starts the console: preferences, session, page. */

import { type ComponentType, render } from 'preact'
import { useEffect, useState } from 'preact/hooks'

import { watchInput } from './app/attendance'
import { applyPreferences } from './app/preference'
import { follow, place } from './app/router'
import { OUTSIDE } from './app/routes'
import { loadSession, session } from './app/session'
import { Shell } from './app/shell'
import { SignIn } from './app/sign-in'
import { Outside } from './app/outside'
import { t } from './i18n'
import { ErrorBox } from './ui/error'
import { Toasts } from './ui/toast'
import './style/token.css'
import './style/base.css'
import './style/control.css'
import './style/content.css'
import './style/shell.css'

function Console() {
  const [error, setError] = useState<unknown>(undefined)
  const outside = OUTSIDE[place.value.page]
  useEffect(() => {
    if (!outside) loadSession().catch(setError)
  }, [outside])
  if (outside) return <Lazy key={place.value.page} load={outside.load} />
  if (error) return <Failed error={error} />
  if (session.value === undefined) return null
  return session.value ? <Shell /> : <SignIn />
}

function Lazy({ load }: { load(): Promise<{ default: ComponentType }> }) {
  const [Component, setComponent] = useState<{ it: ComponentType } | undefined>(undefined)
  const [error, setError] = useState<unknown>(undefined)
  useEffect(() => void load().then((module) => setComponent({ it: module.default }), setError), [])
  if (error) return <Failed error={error} />
  return Component ? <Component.it /> : null
}

const Failed = ({ error }: { error: unknown }) =>
  <Outside title={t('error.title')}><ErrorBox error={error} retry={() => location.reload()} /></Outside>

const root = document.getElementById('console')
if (!root) throw new Error('index.html has no #console')
await applyPreferences()
follow()
watchInput(window)
render(<><Console /><Toasts /></>, root)
