/** Draws lines with uPlot, in the colours of the theme. Loaded on demand. */

import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'

import { dateTime, quantity, type Unit, zone } from '../app/format'
import { language } from '../i18n'
import { type Line, STROKES } from './chart'

interface Drawing { unit: Unit; from: number; stepMs: number; lines: readonly Line[]; area: boolean }

const HEIGHT = 136
/** Charts of one page show the same moment under the pointer. */
const cursor = uPlot.sync('console')

const SECOND = 1
const DAY = 86_400

function axisTime(at: number, step: number): string {
  return new Intl.DateTimeFormat(language.value === 'ja' ? 'ja-JP' : 'en-GB', {
    ...(step >= DAY ? { month: 'short', day: 'numeric' } as const : { hour: '2-digit', minute: '2-digit' } as const),
    ...(step < 60 * SECOND ? { second: '2-digit' } as const : {}),
    timeZone: zone(),
  }).format(at * 1000)
}

export function isolated(points: readonly (number | null)[]): number[] {
  const isThere = (index: number): boolean => points[index] !== null && points[index] !== undefined
  return [...points.keys()].filter((index) => isThere(index) && !isThere(index - 1) && !isThere(index + 1))
}

export function draw(element: HTMLElement, { unit, from, stepMs, lines, area }: Drawing): { destroy(): void } {
  const styles = getComputedStyle(element)
  const colour = (name: string): string => styles.getPropertyValue(`--${name}`).trim()
  const length = Math.max(...lines.map(({ points }) => points.length))
  const times = Array.from({ length }, (_, index) => (from + index * stepMs) / 1000)
  const font = `11px ${styles.fontFamily}`
  const axis = { stroke: colour('text-soft'), font, grid: { stroke: colour('line-soft'), width: 1 }, ticks: { show: false } }

  const tip = document.createElement('div')
  tip.className = 'plot-tip'

  const options: uPlot.Options = {
    width: element.clientWidth,
    height: HEIGHT,
    padding: [8, 18, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: cursor.key }, y: false, points: { size: 6 }, drag: { x: false, y: false } },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), zone()),
    scales: { y: { range: (_, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, size: 22, space: 52, values: (_, splits, __, ___, step) => splits.map((at) => axisTime(at, step)) },
      { ...axis, size: 58, space: 34, values: (_, splits) => splits.map((value) => quantity(value, unit)) },
    ],
    series: [
      {},
      ...lines.map((line, index): uPlot.Series => {
        const stroke = colour(line.stroke ?? STROKES[index % STROKES.length] ?? 'accent')
        return {
          label: line.label,
          stroke,
          width: 1.5,
          // A point without neighbours has no line.
          points: { show: true, size: 4, fill: stroke, filter: () => isolated(line.points) },
          ...(area ? { fill: `${stroke}22` } : {}),
        }
      }),
    ],
    hooks: {
      setCursor: [(plot) => {
        const { idx, left } = plot.cursor
        const at = idx === null || idx === undefined ? undefined : times[idx]
        tip.hidden = at === undefined || left === undefined || left < 0
        if (at === undefined || idx === null || idx === undefined || left === undefined) return
        tip.replaceChildren(
          textLine('time', dateTime(at * 1000)),
          ...lines.map(({ label, points }) => {
            const point = points[idx]
            return textLine('div', `${label}  ${point === null || point === undefined ? '–' : quantity(point, unit)}`)
          }),
        )
        const room = plot.over.clientWidth - tip.offsetWidth - 12
        tip.style.transform = `translate(${left > room ? left - tip.offsetWidth - 12 : left + 12}px, 4px)`
      }],
    },
  }
  const plot = new uPlot(options, [times, ...lines.map(({ points }) => points)], element)
  tip.hidden = true
  plot.over.append(tip)
  const resize = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }))
  resize.observe(element)
  return {
    destroy() {
      resize.disconnect()
      plot.destroy()
    },
  }
}

function textLine(tag: string, text: string): HTMLElement {
  const line = document.createElement(tag)
  line.textContent = text
  return line
}
