/** One field for everything that has an id. A single hit opens at once. */

import { useEffect, useRef, useState } from 'preact/hooks'

import { useLoad } from '../app/load'
import { amend, go, place } from '../app/router'
import { app, at } from '../app/session'
import { t } from '../i18n'
import { State } from '../ui/badge'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Head } from '../ui/head'
import { Icon, type IconName } from '../ui/icon'
import { Skeleton } from '../ui/skeleton'
import { type Hit, type Kind, lookUp } from './lookup'

const ICONS: Record<Kind, IconName> = {
  user: 'user', device: 'device', notification: 'bell', topic: 'topic', campaign: 'campaign', activity: 'activity',
}

export default function Search() {
  const asked = place.value.query.get('q')?.trim() ?? ''
  const [text, setText] = useState(asked)
  const field = useRef<HTMLInputElement>(null)
  useEffect(() => setText(asked), [asked])
  useEffect(() => {
    if (!asked) field.current?.focus()
  }, [])
  return (
    <>
      <Head title={t('page.search')} text={t('search.lead')} />
      <form class="search-form" role="search" aria-label={t('page.search')} onSubmit={(event) => { event.preventDefault(); amend({ q: text.trim() }) }}>
        <input ref={field} class="input mono" type="search" aria-label={t('search.label')} placeholder={t('search.placeholder')} autocomplete="off" spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        <Button type="submit" kind="primary" icon="search">{t('search.submit')}</Button>
      </form>
      {asked ? <Results key={`${app.value} ${asked}`} text={asked} /> : <Empty icon="search" title={t('search.start')} text={t('search.start.text')} />}
    </>
  )
}

function Results({ text }: { text: string }) {
  const load = useLoad(text, () => lookUp(text))
  const hits = load.data?.hits
  // With a failure, the hit may not be the only one.
  const only = hits?.length === 1 && load.data?.errors.length === 0 ? hits[0] : undefined
  useEffect(() => {
    if (only) go(at(only.kind, { id: only.id }), 'replace')
  }, [only])
  if (load.error) return <ErrorBox error={load.error} retry={load.reload} />
  if (!hits) return <Skeleton rows={4} />
  return (
    <>
      {load.data?.errors.map((error, index) => <ErrorBox key={index} error={error} retry={load.reload} />)}
      {hits.length === 0
        ? <Empty icon="search" title={t('search.nothing', { text })} text={t('search.nothing.text', { app: app.value ?? '' })} />
        : <ul class="hits" aria-label={t('search.hits')}>{hits.map((hit) => <li key={hit.kind}><HitLink hit={hit} /></li>)}</ul>}
    </>
  )
}

function HitLink({ hit }: { hit: Hit }) {
  return (
    <a class="hit" href={at(hit.kind, { id: hit.id })}>
      <Icon name={ICONS[hit.kind]} />
      <span class="hit-kind">{t(`kind.${hit.kind}`)}</span>
      <span class="hit-id">{hit.id}</span>
      {hit.name && <span class="soft">{hit.name}</span>}
      {hit.devices !== undefined && <span class="soft">{hit.more ? t('search.manyDevices', { count: hit.devices }) : t('search.devices', { count: hit.devices })}</span>}
      {hit.state && <State value={hit.state} of={hit.kind === 'activity' ? 'state.activity' : 'state'} />}
    </a>
  )
}
