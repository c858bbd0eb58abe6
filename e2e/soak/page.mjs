/** The page of a run: its verdict, slopes, and a chart per figure. One file without requests to other servers. */

const WIDTH = 900
const HEIGHT = 150
const MARGIN = { left: 70, right: 10, top: 8, bottom: 20 }

const escape = (text) => String(text).replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`)

export const number = (value) => {
  if (value === undefined || !Number.isFinite(value)) return '–'
  const size = Math.abs(value)
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2)
}

function chart({ name, unit, lives }, events, seconds) {
  const values = lives.flat().map(({ value }) => value).filter((value) => value !== undefined)
  if (values.length === 0) return ''
  // Spread would exceed the stack with many samples.
  const [low, high] = values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity])
  const room = high - low || 1
  const x = (at) => MARGIN.left + (at / seconds) * (WIDTH - MARGIN.left - MARGIN.right)
  const y = (value) => HEIGHT - MARGIN.bottom - ((value - low) / room) * (HEIGHT - MARGIN.top - MARGIN.bottom)
  const lines = lives.map((life) => {
    const points = life.filter(({ value }) => value !== undefined).map(({ at, value }) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`)
    return `<polyline points="${points.join(' ')}"/>`
  })
  const mark = ({ at, what }) => {
    const place = `x1="${x(at)}" x2="${x(at)}" y1="${MARGIN.top}" y2="${HEIGHT - MARGIN.bottom}"`
    return `<line ${place}><title>${escape(what)}</title></line>`
  }
  const marks = events.map(mark)
  const label = (text, left, top, anchor) => `<text x="${left}" y="${top}" text-anchor="${anchor}">${escape(text)}</text>`
  return `<h3>${escape(name)}, ${escape(unit)}</h3>
<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escape(name)}">${marks.join('')}${lines.join('')}
${label(number(high), MARGIN.left - 6, MARGIN.top + 8, 'end')}${label(number(low), MARGIN.left - 6, HEIGHT - MARGIN.bottom, 'end')}
${label('0', MARGIN.left, HEIGHT - 4, 'start')}${label(`${(seconds / 60).toFixed(1)} min`, WIDTH - MARGIN.right, HEIGHT - 4, 'end')}</svg>`
}

export function page({ title, verdicts, figures, counts, events, seconds }) {
  const row = ({ name, unit, fit, bound }) => {
    const verdict = fit === undefined ? 'too few samples' : bound === undefined ? '' : fit.low > bound ? 'GROWS' : 'within the bound'
    const cells = [name, unit, ...[fit?.slope, fit?.low, fit?.high, bound].map(number), fit?.samples ?? 0, verdict]
    return `<tr>${cells.map((cell) => `<td>${escape(cell)}</td>`).join('')}</tr>`
  }
  const failures = verdicts.map((text) => `<li>${escape(text)}</li>`)
  const head = ['figure', 'unit', 'slope per hour', '95 % from', 'to', 'bound', 'samples', '']
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>${escape(title)}</title>
<style>
body { font: 14px/1.5 system-ui, sans-serif; max-width: 920px; margin: 2em auto; padding: 0 1em; color: #222; background: #fff }
table { border-collapse: collapse } td, th { padding: 2px 10px; border-bottom: 1px solid #ddd; text-align: right }
td:first-child, th:first-child { text-align: left }
svg { width: 100%; border: 1px solid #ddd } polyline { fill: none; stroke: #1463a5; stroke-width: 1.5 }
line { stroke: #d08a1e; stroke-dasharray: 3 3 } text { font-size: 11px; fill: #555 }
.bad { color: #b00020 } .good { color: #1b6e2c }
</style>
<h1>${escape(title)}</h1>
${verdicts.length === 0 ? '<p class="good">Nothing was lost, and nothing grows.</p>' : `<ul class="bad">${failures.join('')}</ul>`}
<p>${Object.entries(counts).map(([name, count]) => `${escape(name)}: ${escape(count)}`).join(' · ')}</p>
<table><tr>${head.map((cell) => `<th>${cell}</th>`).join('')}</tr>${figures.map(row).join('')}</table>
<p>Events: ${events.map(({ at, what }) => `${Math.round(at)} s ${escape(what)}`).join(' · ')}</p>
${figures.map((figure) => chart(figure, events, seconds)).join('\n')}
</html>
`
}
