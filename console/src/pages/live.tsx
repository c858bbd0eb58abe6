/** Live: what happens to the app's notifications and devices now, event by event. */

import { Component } from 'preact'
import { useCallback, useEffect, useRef, useState } from 'preact/hooks'

import { dateTime, utc } from '../app/format'
import { amend, place } from '../app/router'
import { app, at } from '../app/session'
import { language, type PlainKey, t, tValue } from '../i18n'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { copyText } from '../ui/copy'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Checks } from '../ui/field'
import { FilterField, FilterForm } from '../ui/filter'
import { Head } from '../ui/head'
import { json, type Omission, type Row, type Tail } from './tail'
import { FIELDS, type Filter, filterOf, GROUP_NAMES, valuesOf } from './tail-filter'
import { type TailState, type TailView, useTail } from './tail-stream'
import { omissionText, second, summary, time, tone } from './tail-text'

/** Rows in the document; more on request, so that each text of the stream stays cheap. */
const SHOWN = 200

const LABELS: Record<(typeof FIELDS)[number], PlainKey> = {
  user: 'kind.user', device: 'kind.device', topic: 'kind.topic', notification: 'kind.notification', campaign: 'notifications.campaign',
}

export default function Live() {
  const filter = filterOf(place.value.query)
  const view = useTail(app.value ?? '', filter)
  const key = JSON.stringify([app.value, valuesOf(filter)])
  return (
    <>
      <Head title={t('page.live')} text={t('tail.lead')} />
      <TailFilter filter={filter} />
      <Controls view={view} />
      <ErrorBox error={view.error} />
      <Omissions tail={view.tail} />
      <Rows key={`${key} rows`} view={view} />
    </>
  )
}

function TailFilter({ filter }: { filter: Filter }) {
  const [typed, setTyped] = useState(filter)
  const values = valuesOf(filter)
  const isFiltered = Object.values(values).some((value) => value !== undefined)
  useEffect(() => setTyped(filter), [JSON.stringify(values)])
  const apply = (chosen: Filter): void => amend(valuesOf(chosen))
  const kinds = (
    <Checks
      label={t('tail.kinds')}
      value={typed.groups}
      options={GROUP_NAMES.map((value) => ({ value, label: t(`tail.group.${value}`) }))}
      onChange={(groups) => {
        const chosen = { ...typed, groups: GROUP_NAMES.filter((name) => groups.includes(name)) }
        setTyped(chosen)
        if (chosen.groups.length > 0) apply(chosen)
      }}
    />
  )
  return (
    <FilterForm className="tail-filters" isFiltered={isFiltered} onApply={() => apply(typed)} onClear={() => apply({ groups: GROUP_NAMES })} more={kinds}>
      {FIELDS.map((name) => (
        <FilterField key={name} label={t(LABELS[name])} value={typed[name] ?? ''} onChange={(value) => setTyped({ ...typed, [name]: value })} />
      ))}
    </FilterForm>
  )
}

const STATES: Record<TailState, PlainKey> = {
  stopped: 'tail.stopped', unattended: 'tail.unattended', hidden: 'tail.hidden', connecting: 'live.connecting', live: 'live.live',
  paused: 'tail.paused', broken: 'tail.broken', refused: 'tail.stopped',
}

function Controls({ view: { tail, state, start, stop, pause, resume, clear } }: { view: TailView }) {
  const isOpen = state !== 'stopped' && state !== 'unattended' && state !== 'refused'
  const isEmpty = tail.rows.length === 0
  return (
    <div class="bar tail-bar">
      <p class={`live-state ${state === 'live' ? 'live' : state === 'broken' || state === 'refused' ? 'broken' : 'paused'}`} role="status">{t(STATES[state])}</p>
      {isOpen && (state === 'paused'
        ? <Button kind="primary" icon="play" onClick={resume}>{tail.held.length > 0 ? t('tail.resumeWith', { count: tail.held.length }) : t('tail.resume')}</Button>
        : <Button icon="pause" reason={state === 'live' ? undefined : t(STATES[state])} onClick={pause}>{t('tail.pause')}</Button>)}
      {isOpen
        ? <Button kind="quiet" icon="stop" onClick={stop}>{t('tail.stop')}</Button>
        : <Button kind="primary" icon="play" onClick={start}>{t('tail.start')}</Button>}
      <Button kind="quiet" icon="copy" reason={isEmpty ? t('tail.nothing') : undefined} onClick={() => void copyText(json(tail.rows))}>{t('tail.copyAll')}</Button>
      <Button kind="quiet" reason={isEmpty ? t('tail.nothing') : undefined} onClick={clear}>{t('tail.clear')}</Button>
      <span class="soft tail-count">{t('tail.count', { count: tail.rows.length })}</span>
    </div>
  )
}

/** What the list lacks. */
function Omissions({ tail: { omissions, nodesMissing, missing, dropped } }: { tail: Tail }) {
  const isMissing = nodesMissing > 0
  if (omissions.length === 0 && !isMissing && dropped === 0) return null
  return (
    <ul class="tail-omissions" aria-label={t('tail.stated')}>
      {omissions.map((omission) => <li key={`${omission.kind} ${omission.from}`}>{omission.kind !== 'devices' && <Span {...omission} />}{omissionText(omission)}</li>)}
      {isMissing && <li>{missing.length > 0 ? t('tail.missing', { nodes: missing.join(', ') }) : t('tail.missingCount', { count: nodesMissing })}</li>}
      {dropped > 0 && <li>{t('tail.dropped', { count: dropped })}</li>}
    </ul>
  )
}

function Span({ from, until }: Omission) {
  const [first, last] = [second(from), second(until)]
  return (
    <span class="tail-span">
      <time dateTime={from} title={dateTime(from)}>{first}</time>
      {last !== first && <> – <time dateTime={until} title={dateTime(until)}>{last}</time></>}
    </span>
  )
}

function Rows({ view: { tail, state, pause } }: { view: TailView }) {
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set())
  const [shown, setShown] = useState(SHOWN)
  /** The row that Tab reaches; the arrow keys lead to the others. */
  const [current, setCurrent] = useState<number>()
  const list = useRef<HTMLOListElement>(null)
  const view = useRef({ state, pause })
  view.current = { state, pause }
  const rows = tail.rows.slice(0, shown)
  const isEmpty = tail.rows.length === 0
  useEffect(() => {
    if (isEmpty) { setOpen(new Set()); setShown(SHOWN); setCurrent(undefined) }
  }, [isEmpty])

  /** Nobody can read a row that moves away, or find their place in a list that moves. */
  const halt = useCallback((): void => {
    if (view.current.state === 'live') view.current.pause()
  }, [])
  const toggle = useCallback((key: number, opens: boolean): void => {
    setOpen((before) => {
      const next = new Set(before)
      if (opens) next.add(key)
      else next.delete(key)
      return next
    })
    if (opens) halt()
  }, [])
  const reach = useCallback((key: number, byKeyboard: boolean): void => {
    setCurrent(key)
    if (byKeyboard) halt()
  }, [])
  function move(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.target as Element).matches('.tail-row')) return
    const buttons = [...(list.current?.querySelectorAll<HTMLButtonElement>('.tail-row') ?? [])]
    const here = buttons.indexOf(event.target as HTMLButtonElement)
    const to = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: buttons.length - 1 }[event.key]
    const next = to === undefined ? undefined : buttons[to]
    if (to === undefined) return
    event.preventDefault()
    next?.focus()
  }

  if (isEmpty) {
    const waits = state === 'live' || state === 'paused'
    return <Empty icon="tail" title={t(waits ? 'tail.waiting' : 'tail.empty')} text={t(waits ? 'tail.waiting.text' : 'tail.empty.text')}>{waits && <CodeBlock label={t('devices.command')} value={'noroshi send --user u1 --title "Hello"'} />}</Empty>
  }
  const reachable = rows.some(({ key }) => key === current) ? current : rows[0]?.key
  return (
    <>
      <ol class="tail" ref={list} aria-label={t('tail.list')} aria-describedby="tail-keys" onKeyDown={move}>
        {rows.map((row) => (
          <TailRow key={row.key} row={row} look={`${language.value} ${utc.value}`} isOpen={open.has(row.key)} isReachable={row.key === reachable} toggle={toggle} reach={reach} />
        ))}
      </ol>
      <p class="hidden" id="tail-keys">{t('tail.keys')}</p>
      {tail.rows.length > shown && <p class="tail-more"><Button small onClick={() => setShown(shown + SHOWN)}>{t('tail.more', { count: Math.min(SHOWN, tail.rows.length - shown) })}</Button></p>}
    </>
  )
}

interface RowProps { row: Row; /** Language and time zone. */ look: string; isOpen: boolean; isReachable: boolean; toggle(key: number, opens: boolean): void; reach(key: number, byKeyboard: boolean): void }

/** Drawn again only if it changed: four times a second, most rows did not. */
class TailRow extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    const { row, look, isOpen, isReachable } = this.props
    return next.row !== row || next.look !== look || next.isOpen !== isOpen || next.isReachable !== isReachable
  }

  override render({ row: { key, event }, isOpen, isReachable, toggle, reach }: RowProps) {
    const id = `tail-${key}`
    return (
      <li>
        <button
          type="button"
          class="tail-row"
          aria-expanded={isOpen}
          aria-controls={isOpen ? id : undefined}
          tabIndex={isReachable ? 0 : -1}
          onFocus={(event) => reach(key, event.currentTarget.matches(':focus-visible'))}
          onClick={() => toggle(key, !isOpen)}
        >
          <time dateTime={event.at}>{time(event.at)}</time>
          <Badge tone={tone(event)}>{tValue('event', event.event)}</Badge>
          <span class="tail-summary">{summary(event)}</span>
        </button>
        {isOpen && <Detail id={id} row={{ key, event }} />}
      </li>
    )
  }
}

function Detail({ id, row: { event } }: { id: string; row: Row }) {
  const { id: notification, campaign, topic } = event
  const device = event.device ?? (event.devices?.length === 1 ? event.devices[0]?.id : undefined)
  const user = event.user ?? (event.devices?.length === 1 ? event.devices[0]?.user : undefined)
  const hasLinks = notification || device || user || topic || campaign
  return (
    <div class="tail-detail" id={id}>
      {hasLinks && <p class="chips">
        {notification && <a href={at('notification', { id: notification, device })}>{t('kind.notification')}</a>}
        {device && <a href={at('device', { id: device })}>{t('kind.device')}</a>}
        {user && <a href={at('user', { id: user })}>{t('kind.user')}</a>}
        {topic && <a href={at('topic', { id: topic })}>{t('kind.topic')}</a>}
        {campaign && <a href={at('campaign', { id: campaign })}>{t('kind.campaign')}</a>}
      </p>}
      <CodeBlock label={t('tail.json')} value={event} />
    </div>
  )
}
