/** A chart of time series. uPlot is loaded with the first chart; the figures are also available as a table. */

import { useEffect, useRef, useState } from 'preact/hooks'

import { dateTime, quantity, type Unit, utc } from '../app/format'
import { dark } from '../app/preference'
import { language, t } from '../i18n'

export interface Line { label: string; points: (number | null)[]; stroke?: Stroke }
export type Stroke = 'accent' | 'second' | 'good' | 'warn' | 'bad'

interface Props {
  title: string
  unit: Unit
  /** Of the first point, in milliseconds. */
  from: number
  stepMs: number
  lines: readonly Line[]
  /** Shows the first line's values as a filled area. */
  area?: boolean
}

export const STROKES: readonly Stroke[] = ['accent', 'second', 'good', 'warn', 'bad']

const lastOf = (points: readonly (number | null)[]): number | null => points.findLast((point) => point !== null) ?? null

export function Chart({ title, unit, from, stepMs, lines, area }: Props) {
  const box = useRef<HTMLDivElement>(null)
  const [asTable, setAsTable] = useState(false)
  const empty = lines.every(({ points }) => points.every((point) => point === null))
  const appearance = `${dark.value} ${utc.value} ${language.value}`

  useEffect(() => {
    const element = box.current
    if (!element || asTable || empty) return undefined
    let plot: { destroy(): void } | undefined
    let wanted = true
    import('./plot').then(
      ({ draw }) => {
        if (wanted) plot = draw(element, { unit, from, stepMs, lines, area: area === true && lines.length === 1 })
      },
      // Without the code that draws, the figures are a table.
      () => wanted && setAsTable(true),
    )
    return () => {
      wanted = false
      plot?.destroy()
    }
  }, [from, stepMs, lines, unit, area, asTable, empty, appearance])

  const summary = lines.map(({ label, points }) => {
    const last = lastOf(points)
    return `${label}: ${last === null ? t('chart.none') : quantity(last, unit)}`
  }).join('; ')

  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title">{title}</span>
        <span class="chart-now">
          {lines.map(({ label, points, stroke }, index) => {
            const last = lastOf(points)
            return (
              <span key={label} class={`chart-key ${stroke ?? STROKES[index % STROKES.length]}`}>
                {lines.length > 1 && <small>{label}</small>}
                <strong>{last === null ? '–' : quantity(last, unit)}</strong>
              </span>
            )
          })}
        </span>
        <button type="button" class="link-button" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          {t('chart.table')}<span class="hidden"> {title}</span>
        </button>
      </figcaption>
      {empty ? <p class="chart-empty">{t('chart.empty')}</p>
        : asTable ? <Figures title={title} unit={unit} from={from} stepMs={stepMs} lines={lines} />
        : <div class="chart-plot" ref={box} role="img" aria-label={`${title}. ${summary}`} />}
    </figure>
  )
}

const ROWS_MAX = 100

function Figures({ title, unit, from, stepMs, lines }: Omit<Props, 'area'>) {
  const length = lines[0]?.points.length ?? 0
  const rows = Array.from({ length: Math.min(length, ROWS_MAX) }, (_, index) => length - 1 - index)
  return (
    <div class="chart-table" role="region" aria-label={title} tabIndex={0}>
      <table class="table">
        <thead><tr><th scope="col">{t('column.time')}</th>{lines.map(({ label }) => <th key={label} scope="col" class="end">{label}</th>)}</tr></thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row}>
              <td>{dateTime(from + row * stepMs)}</td>
              {lines.map(({ label, points }) => {
                const point = points[row]
                return <td key={label} class="end">{point === null || point === undefined ? '–' : quantity(point, unit)}</td>
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}
