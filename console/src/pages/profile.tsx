/** Where the node that answers spends its CPU time: takes a profile and draws it, or lists the functions. */

import { useEffect, useMemo, useRef, useState } from 'preact/hooks'

import { admin, type AdminSchemas, body } from '../api/client'
import { ApiError } from '../api/error'
import { number, percent } from '../app/format'
import { language, t } from '../i18n'
import { Button } from '../ui/button'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Select, TextField } from '../ui/field'
import { Head, Section } from '../ui/head'
import { Progress } from '../ui/progress'
import { Segmented } from '../ui/segmented'
import { Table } from '../ui/table'
import { FlameGraph, milliseconds } from './flame-graph'
import { matched, matches, type Sum, sums, treeOf } from './flame-tree'

type Profile = AdminSchemas['CallTree']
type Shape = 'graph' | 'table'

const SECONDS = ['1', '5', '10', '30', '60'] as const
const ROWS = 200

interface Running { stop: AbortController; since: number; seconds: number }

export default function ProfilePage() {
  const [seconds, setSeconds] = useState<(typeof SECONDS)[number]>('10')
  const [running, setRunning] = useState<Running | undefined>(undefined)
  const [profile, setProfile] = useState<Profile | undefined>(undefined)
  const [error, setError] = useState<unknown>(undefined)
  const wanted = useRef<AbortController | undefined>(undefined)
  // Leaving the page stops the sampler.
  useEffect(() => () => wanted.current?.abort(), [])

  async function take(): Promise<void> {
    const stop = new AbortController()
    wanted.current = stop
    setError(undefined)
    setRunning({ stop, since: Date.now(), seconds: Number(seconds) })
    try {
      setProfile(await body(admin.GET('/debug/pprof/profile', { params: { query: { seconds: Number(seconds), format: 'tree' } }, signal: stop.signal })) as Profile)
    } catch (failure) {
      if (!stop.signal.aborted) setError(failure)
    } finally {
      if (wanted.current === stop) setRunning(undefined)
    }
  }

  function cancel(): void {
    running?.stop.abort()
    setRunning(undefined)
  }

  const notBuilt = error instanceof ApiError && error.is('not_built')
  return (
    <>
      <Head title={t('page.profile')} text={t('flame.lead')} />
      <form class="filters" onSubmit={(event) => { event.preventDefault(); if (!running) void take() }}>
        <Select label={t('flame.seconds')} value={seconds} onChange={setSeconds} options={SECONDS.map((value) => ({ value, label: t('flame.second', { count: Number(value) }) }))} />
        <Button type="submit" kind="primary" icon="play" busy={running !== undefined}>{t('flame.take')}</Button>
        {running && <Button icon="stop" onClick={cancel}>{t('action.cancel')}</Button>}
      </form>
      {running && <Sampling {...running} />}
      {notBuilt
        ? <Empty icon="flame" title={t('flame.notBuilt')} text={t('flame.notBuilt.text', { detail: error.message })} />
        : <ErrorBox error={error} />}
      {profile && <Taken profile={profile} />}
      {!profile && !running && !error && <Empty icon="flame" title={t('flame.none')} text={t('flame.none.text')} />}
    </>
  )
}

function Sampling({ since, seconds }: Running) {
  const [now, setNow] = useState(Date.now())
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 500)
    return () => clearInterval(timer)
  }, [])
  return <Progress label={t('flame.sampling')} done={Math.min(seconds, Math.floor((now - since) / 1000))} total={seconds} />
}

function Taken({ profile }: { profile: Profile }) {
  const [shape, setShape] = useState<Shape>('graph')
  const [search, setSearch] = useState('')
  const root = useMemo(() => treeOf(profile, t('flame.all')), [profile, language.value])
  const functions = useMemo(() => sums(root), [root])
  if (profile.sum === 0) return <Empty icon="flame" title={t('flame.idle')} text={t('flame.idle.text')} />
  const found = search ? matched(root, search) : 0
  return (
    <Section title={t('flame.result')}>
      <Facts facts={[
        profile.node !== null && [t('flame.node'), profile.node],
        [t('flame.sum'), t('flame.sum.value', { time: milliseconds(profile.sum), seconds: profile.seconds, cores: number(Math.round(profile.sum / profile.seconds / 1e7) / 100) })],
      ]} />
      <div class="filters">
        <Segmented<Shape> label={t('flame.shape')} value={shape} onChange={setShape} options={[{ value: 'graph', label: t('flame.graph') }, { value: 'table', label: t('flame.table') }]} />
        <TextField label={t('flame.search')} value={search} onChange={setSearch} mono />
        <p class="soft" role="status">{search ? t('flame.found', { share: percent(found / profile.sum) }) : ''}</p>
      </div>
      {shape === 'graph' ? <FlameGraph root={root} search={search} /> : <Functions functions={functions} search={search} sum={profile.sum} />}
    </Section>
  )
}

function Functions({ functions, search, sum }: { functions: Sum[]; search: string; sum: number }) {
  const wanted = functions.filter(({ name }) => search === '' || matches(name, search))
  return (
    <>
      <Table<Sum>
        caption={t('flame.table')}
        load={{ data: wanted.slice(0, ROWS), error: undefined, loading: false, reload: () => undefined }}
        rowKey={({ name }) => name}
        empty={<Empty icon="search" title={t('flame.noMatch')} text={t('flame.noMatch.text')} />}
        columns={[
          { title: t('flame.own'), align: 'end', cell: ({ own }) => <>{milliseconds(own)}<small class="below">{percent(own / sum)}</small></> },
          { title: t('flame.total'), align: 'end', cell: ({ total }) => <>{milliseconds(total)}<small class="below">{percent(total / sum)}</small></> },
          { title: t('flame.function'), cell: ({ name }) => <code class="setting">{name}</code> },
        ]}
      />
      {wanted.length > ROWS && <p class="hint">{t('flame.more', { shown: ROWS, count: wanted.length })}</p>}
    </>
  )
}
