/** How the service does: time series of an app or of the cluster, and the nodes. */

import { useMemo } from 'preact/hooks'

import { body, session as api } from '../api/client'
import * as series from '../api/series'
import { ALL_SERIES, type Span, SPANS, type Unit } from '../api/series'
import type { Series } from '../api/session'
import { millis } from '../app/format'
import { useLoad } from '../app/load'
import { amend, place } from '../app/router'
import { app, at, canEverywhere } from '../app/session'
import { t, tValue } from '../i18n'
import { Chart, type Line, type Stroke } from '../ui/chart'
import { ErrorBox } from '../ui/error'
import { Head, Section } from '../ui/head'
import { Segmented } from '../ui/segmented'
import { Skeleton } from '../ui/skeleton'
import { NodeTable } from './node-table'

interface Panel {
  title: 'series.connections' | 'series.logins' | 'series.publishes' | 'series.deliveries' | 'series.latency' | 'series.push_responses' | 'series.backlog' | 'series.errors'
  names: readonly { name: string; unit: Unit }[]
  stroke?: Stroke
}

const PANELS: readonly Panel[] = [
  { title: 'series.connections', names: [series.CONNECTIONS] },
  { title: 'series.deliveries', names: [series.DELIVERIES] },
  { title: 'series.publishes', names: [series.PUBLISHES] },
  { title: 'series.latency', names: [series.LATENCY_P50, series.LATENCY_P99] },
  { title: 'series.push_responses', names: [series.PUSH_RESPONSES] },
  { title: 'series.logins', names: [series.LOGINS] },
  { title: 'series.backlog', names: [series.BACKLOG] },
  { title: 'series.errors', names: [series.ERRORS], stroke: 'bad' },
]

const span = (): Span => {
  const asked = place.value.query.get('span')
  return asked !== null && asked in SPANS ? asked as Span : '1h'
}

export default function Overview() {
  const chosen = span()
  const whole = canEverywhere('read') && place.value.query.get('scope') === 'all'
  const { ms, step } = SPANS[chosen]
  const refreshMs = Math.max(10_000, step * 1000 / 2)
  const answer = useLoad(`${chosen} ${whole} ${app.value}`, () => {
    const until = Math.floor(Date.now() / (step * 1000)) * step * 1000
    return body(api.GET('/v1/series', {
      params: {
        query: {
          ...(whole || !app.value ? {} : { app: app.value }),
          names: ALL_SERIES.map(({ name }) => name).join(','),
          from: until - ms, until, step,
        },
      },
    }))
  }, refreshMs)
  const lines = useMemo(() => PANELS.map((panel) => panelLines(panel, answer.data?.series ?? [])), [answer.data])

  return (
    <>
      <Head title={t('page.overview')} text={whole ? t('overview.all') : t('overview.app', { app: app.value ?? '' })}>
        {canEverywhere('read') && (
          <Segmented
            label={t('overview.scope')}
            value={whole ? 'all' : 'app'}
            options={[{ value: 'app', label: t('overview.scope.app') }, { value: 'all', label: t('overview.scope.all') }]}
            onChange={(scope) => amend({ scope: scope === 'all' ? scope : undefined })}
          />
        )}
        <Segmented
          label={t('overview.span')}
          value={chosen}
          options={(Object.keys(SPANS) as Span[]).map((value) => ({ value, label: tValue('span', value) }))}
          onChange={(value) => amend({ span: value })}
        />
      </Head>
      <ErrorBox error={answer.error} retry={answer.reload} />
      {!answer.data && !answer.error && <Skeleton rows={8} />}
      {answer.data && (
        <div class="charts">
          {PANELS.map((panel, index) => (
            <Chart
              key={panel.title}
              title={t(panel.title)}
              unit={panel.names[0]?.unit ?? 'count'}
              from={millis(answer.data?.from ?? 0)}
              stepMs={(answer.data?.step_seconds ?? step) * 1000}
              lines={lines[index] ?? []}
              area={panel.names.length === 1}
            />
          ))}
        </div>
      )}
      {canEverywhere('read') && (
        <Section title={t('page.nodes')} actions={<a href={at('nodes')}>{t('overview.nodes')}</a>}><NodeTable /></Section>
      )}
    </>
  )
}

/** The lines of a chart: one per series, named by its labels if several share the name. */
function panelLines({ names, title, stroke }: Panel, all: readonly Series[]): Line[] {
  return names.flatMap(({ name }) => {
    const own = all.filter((one) => one.name === name)
    return own.map(({ labels, points }): Line => ({
      label: own.length > 1 ? Object.values(labels).map((value) => tValue('service', value)).join(' ') : names.length > 1 ? tValue('series', name) : t(title),
      points,
      ...(stroke ? { stroke } : {}),
    }))
  })
}
