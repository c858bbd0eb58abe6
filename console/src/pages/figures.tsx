/** Figures of the overview: live ones, and charts of the last hours or days. Those of one app, or of all with the nodes. */

import { useMemo } from 'preact/hooks'

import { admin, body } from '../api/client'
import { dateTime, duration, millis, quantity, type Unit } from '../app/format'
import { type Live, type LiveFigures, useLive } from '../app/live'
import { useLoad } from '../app/load'
import { amend, place } from '../app/router'
import { app, canEverywhere } from '../app/session'
import { language, type PlainKey, t } from '../i18n'
import { Chart, type Line } from '../ui/chart'
import { ErrorBox } from '../ui/error'
import { Section } from '../ui/head'
import { Segmented } from '../ui/segmented'
import { Skeleton } from '../ui/skeleton'
import { cores, gauge, isEmpty, isSpan, milliseconds, rate, refreshMs, type Series, type SeriesName, type Span, SPANS } from './series'

const OUTAGES = 5

export function Figures() {
  const mayAll = canEverywhere('read')
  const ofAll = mayAll && place.value.query.get('of') !== 'app'
  const asked = place.value.query.get('span')
  const span: Span = isSpan(asked) ? asked : '1h'
  const name = ofAll ? undefined : app.value ?? ''
  return (
    <>
      <LiveTiles key={name ?? '*'} app={name} />
      <Section
        title={t('figures.title')}
        actions={(
          <>
            {mayAll && (
              <Segmented
                label={t('figures.of')}
                value={ofAll ? 'all' : 'app'}
                options={[{ value: 'all', label: t('figures.all') }, { value: 'app', label: t('figures.app') }]}
                onChange={(value) => amend({ of: value === 'all' ? undefined : value })}
              />
            )}
            <Segmented
              label={t('figures.span')}
              value={span}
              options={(Object.keys(SPANS) as Span[]).map((value) => ({ value, label: t(`span.${value}`) }))}
              onChange={(value) => amend({ span: value === '1h' ? undefined : value })}
            />
          </>
        )}
      >
        <Charts app={name} span={span} />
      </Section>
    </>
  )
}

interface TileOf { title: PlainKey; unit: Unit; value(figures: LiveFigures['figures']): number | null }

const figure = (figures: LiveFigures['figures'], name: SeriesName): number | null => figures[name] ?? null
const one = (title: PlainKey, unit: Unit, name: SeriesName): TileOf => ({ title, unit, value: (figures) => figure(figures, name) })
const sum = (title: PlainKey, unit: Unit, ...names: SeriesName[]): TileOf => ({
  title,
  unit,
  value: (figures) => {
    const known = names.map((name) => figure(figures, name)).filter((value) => value !== null)
    return known.length === 0 ? null : known.reduce((total, value) => total + value, 0)
  },
})

const OF_APP: readonly TileOf[] = [
  one('nodes.connections', 'count', 'connections'),
  one('figures.logIns', 'per_second', 'log_ins'),
  one('figures.publishes', 'per_second', 'publishes'),
  one('figures.deliveries', 'per_second', 'deliveries'),
  sum('figures.pushes', 'per_second', 'pushes_accepted', 'pushes_refused'),
  one('figures.quotaRefusals', 'per_second', 'quota_refusals'),
]
const OF_ALL: readonly TileOf[] = [
  ...OF_APP.slice(0, 5),
  { title: 'live.latency', unit: 'milliseconds', value: (figures) => { const p99 = figure(figures, 'delivery_p99'); return p99 === null ? null : p99 * 1000 } },
  sum('figures.backlog', 'count', 'delivery_backlog', 'push_backlog', 'store_backlog'),
  sum('series.errors', 'per_second', 'request_errors', 'drops', 'overloads'),
]

const STATES: Record<Live['state'], PlainKey> = {
  connecting: 'live.connecting', live: 'live.live', paused: 'live.paused', broken: 'live.broken',
}

function LiveTiles({ app: name }: { app: string | undefined }) {
  const { figures, state, error } = useLive(name)
  const missing = figures?.nodes?.filter((node) => node.missing).map((node) => node.name)
  return (
    <section class="section live" aria-label={t('live.title')}>
      <p class={`live-state ${state}`} role="status">{t(STATES[state])}</p>
      <ErrorBox error={error} />
      {figures !== undefined && figures.nodes_missing > 0 && (
        <p class="bad-text">{missing ? t('live.missing', { nodes: missing.join(', ') }) : t('live.missingCount', { count: figures.nodes_missing })}</p>
      )}
      <dl class="tiles">
        {(name === undefined ? OF_ALL : OF_APP).map(({ title, unit, value }) => {
          const shown = figures && value(figures.figures)
          return (
            <div key={title} class="tile">
              <dt>{t(title)}</dt>
              <dd><strong>{shown === null || shown === undefined ? '–' : quantity(shown, unit)}</strong></dd>
            </div>
          )
        })}
      </dl>
    </section>
  )
}

interface ChartOf { title: PlainKey; unit: Unit; area?: boolean; lines(series: Series): Line[] }

const line = (label: PlainKey, points: Line['points'], stroke?: Line['stroke']): Line => ({ label: t(label), points, ...(stroke ? { stroke } : {}) })

const CHARTS_OF_APP: readonly ChartOf[] = [
  { title: 'nodes.connections', unit: 'count', area: true, lines: (s) => [line('nodes.connections', gauge(s, 'connections'))] },
  { title: 'figures.logIns', unit: 'per_second', area: true, lines: (s) => [line('figures.logIns', rate(s, 'log_ins'))] },
  { title: 'figures.publishes', unit: 'per_second', area: true, lines: (s) => [line('figures.publishes', rate(s, 'publishes'))] },
  { title: 'figures.deliveries', unit: 'per_second', area: true, lines: (s) => [line('figures.deliveries', rate(s, 'deliveries'))] },
  { title: 'figures.pushes', unit: 'per_second', lines: (s) => [line('figures.accepted', rate(s, 'pushes_accepted'), 'good'), line('figures.refused', rate(s, 'pushes_refused'), 'bad')] },
  { title: 'figures.quotaRefusals', unit: 'per_second', lines: (s) => [line('figures.quotaRefusals', rate(s, 'quota_refusals'), 'bad')] },
]

const CHARTS_OF_ALL: readonly ChartOf[] = [
  { title: 'nodes.connections', unit: 'count', area: true, lines: (s) => [line('nodes.connections', gauge(s, 'connections'))] },
  { title: 'figures.logIns', unit: 'per_second', lines: (s) => [line('figures.accepted', rate(s, 'log_ins'), 'good'), line('figures.refused', rate(s, 'log_ins_refused'), 'bad')] },
  { title: 'figures.publishes', unit: 'per_second', area: true, lines: (s) => [line('figures.publishes', rate(s, 'publishes'))] },
  { title: 'figures.deliveries', unit: 'per_second', lines: (s) => [line('figures.written', rate(s, 'deliveries')), line('figures.acked', rate(s, 'acks'), 'second')] },
  { title: 'series.latency', unit: 'milliseconds', lines: (s) => [line('figures.p50', milliseconds(s, 'delivery_p50')), line('figures.p99', milliseconds(s, 'delivery_p99'), 'warn')] },
  { title: 'figures.pushes', unit: 'per_second', lines: (s) => [line('figures.accepted', rate(s, 'pushes_accepted'), 'good'), line('figures.refused', rate(s, 'pushes_refused'), 'bad'), line('figures.retried', rate(s, 'push_retries'), 'warn')] },
  { title: 'figures.pushTime', unit: 'milliseconds', lines: (s) => [line('figures.p50', milliseconds(s, 'push_p50')), line('figures.p99', milliseconds(s, 'push_p99'), 'warn')] },
  { title: 'figures.backlog', unit: 'count', lines: (s) => [line('figures.deliveries', gauge(s, 'delivery_backlog')), line('figures.pushes', gauge(s, 'push_backlog'), 'second'), line('figures.store', gauge(s, 'store_backlog'), 'warn')] },
  { title: 'series.errors', unit: 'per_second', lines: (s) => [line('figures.requestErrors', rate(s, 'request_errors'), 'bad'), line('figures.drops', rate(s, 'drops'), 'warn'), line('figures.overloads', rate(s, 'overloads'), 'accent'), line('figures.quotaRefusals', rate(s, 'quota_refusals'), 'second')] },
  { title: 'nodes.cpu', unit: 'count', area: true, lines: (s) => [line('nodes.cpu', cores(s))] },
]

function Charts({ app: name, span }: { app: string | undefined; span: Span }) {
  const load = useLoad(`series ${name ?? '*'} ${span}`, async () => {
    // The server moves it to the begin of a step, so that open pages share an answer.
    const query = { from: new Date(Date.now() - SPANS[span]).toISOString() }
    return name === undefined
      ? body(admin.GET('/v1/series', { params: { query } }))
      : body(admin.GET('/v1/apps/{app}/series', { params: { path: { app: name }, query } }))
  }, refreshMs(span))
  const { data } = load
  // Charts are drawn again only when there are new points.
  const charts = useMemo(() => {
    if (!data) return null
    return (name === undefined ? CHARTS_OF_ALL : CHARTS_OF_APP).map(({ title, unit, area, lines }) => (
      <Chart key={title} title={t(title)} unit={unit} from={millis(data.from)} stepMs={data.step_s * 1000} lines={lines(data)} area={area === true} />
    ))
  }, [data, name, language.value])
  return (
    <>
      <ErrorBox error={load.error} retry={load.reload} />
      {!data && !load.error && <Skeleton rows={4} />}
      {data && isEmpty(data) && <p class="soft">{t('figures.empty', { step: duration(data.step_s * 1000) })}</p>}
      {data && <Outages series={data} />}
      <div class="charts">{charts}</div>
    </>
  )
}

/** Nodes that measured nothing for a while: the sums are without them. */
function Outages({ series: { nodes, missing } }: { series: Series }) {
  const all = nodes
    ? nodes.flatMap((node) => node.missing.map((span) => ({ name: node.name, ...span })))
    : missing.map((span) => ({ name: '', ...span }))
  const newest = all.sort((a, b) => millis(b.from) - millis(a.from)).slice(0, OUTAGES)
  if (newest.length === 0) return null
  return (
    <details class="outages">
      <summary>{t('figures.missing', { count: all.length })}</summary>
      <ul>
        {newest.map(({ name, from, until }) => <li key={`${name} ${from}`}>{name && <strong>{name} </strong>}{dateTime(from)} – {dateTime(until)}</li>)}
      </ul>
    </details>
  )
}
