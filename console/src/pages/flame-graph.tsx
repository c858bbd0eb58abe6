/** A flame graph: callers above, calls below, width is CPU time. Arrows move, Enter enlarges, Escape goes back. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'

import { duration, percent } from '../app/format'
import { t } from '../i18n'
import { type Box, type Call, layout, matches, originOf, short } from './flame-tree'

const ROW = 20
/** About two pixels of a wide screen. */
const LEAST = 0.0015
/** More boxes than this are slow to draw; the narrowest are left out. */
const BOXES_MAX = 3000

interface Props { root: Call; search: string }

export const milliseconds = (nanoseconds: number): string => duration(nanoseconds / 1e6)

export function FlameGraph({ root, search }: Props) {
  const [top, setTop] = useState(root)
  const [chosen, setChosen] = useState(root)
  const box = useRef<SVGSVGElement>(null)
  const moved = useRef(false)
  useEffect(() => { setTop(root); setChosen(root) }, [root])

  const boxes = useMemo(() => {
    const all = layout(top, LEAST)
    if (all.length <= BOXES_MAX) return all
    const least = all.map(({ width }) => width).sort((one, other) => other - one)[BOXES_MAX] ?? LEAST
    return layout(top, Math.max(LEAST, least * 1.001))
  }, [top])
  const rows = (boxes.at(-1)?.row ?? 0) + 1
  const here = boxes.find(({ call }) => call === chosen) ?? boxes[0]

  useLayoutEffect(() => {
    if (moved.current) box.current?.querySelector<SVGElement>('[tabindex="0"]')?.focus()
    moved.current = false
  }, [chosen, top])

  function choose(call: Call | undefined): void {
    if (!call) return
    moved.current = true
    setChosen(call)
  }

  function enlarge(call: Call): void {
    choose(call)
    setTop(call)
  }

  function onKeyDown(event: KeyboardEvent): void {
    if (!here || event.ctrlKey || event.altKey || event.metaKey) return
    const row = boxes.filter((other) => other.row === here.row)
    const at = row.indexOf(here)
    const steps: Record<string, () => void> = {
      ArrowUp: () => choose(here.call.caller),
      ArrowDown: () => choose(boxes.find(({ call }) => call.caller === here.call)?.call),
      ArrowLeft: () => choose(row[at - 1]?.call),
      ArrowRight: () => choose(row[at + 1]?.call),
      Home: () => choose(root),
      Enter: () => enlarge(here.call),
      ' ': () => enlarge(here.call),
      Escape: () => enlarge(top.caller ?? root),
    }
    const step = steps[event.key]
    if (!step) return
    event.preventDefault()
    step()
  }

  return (
    <div class="flame">
      <p class="flame-now" aria-live="polite">
        <strong>{(here?.call ?? root).name}</strong> <span>{describe(here?.call ?? root, root)}</span>
      </p>
      <p class="hint" id="flame-keys">{t('flame.keys')}</p>
      <div class="flame-box" role="region" aria-label={t('flame.graph')} tabIndex={0}>
        <svg ref={box} width="100%" height={rows * ROW} role="tree" aria-label={t('flame.graph')} aria-describedby="flame-keys" onKeyDown={onKeyDown}>
          {boxes.map((one) => (
            <Frame key={one.call.id} box={one} root={root} search={search} chosen={one === here} dim={one.row < 1 ? false : isAbove(one.call, top)} onFocus={() => setChosen(one.call)} onEnlarge={() => enlarge(one.call)} />
          ))}
        </svg>
      </div>
    </div>
  )
}

function isAbove(call: Call, top: Call): boolean {
  for (let above = top.caller; above; above = above.caller) if (above === call) return true
  return false
}

const describe = (call: Call, root: Call): string =>
  t('flame.frame', { total: milliseconds(call.total), share: percent(root.total > 0 ? call.total / root.total : 0), own: milliseconds(call.own) })

interface FrameProps { box: Box; root: Call; search: string; chosen: boolean; dim: boolean; onFocus(): void; onEnlarge(): void }

function Frame({ box: { call, row, from, width }, root, search, chosen, dim, onFocus, onEnlarge }: FrameProps) {
  const kind = matches(call.name, search) ? 'match' : call.caller?.caller === undefined ? 'thread' : originOf(call.name)
  return (
    <svg
      class={`frame ${kind}${dim ? ' dim' : ''}`}
      x={`${from * 100}%`}
      y={row * ROW}
      width={`${width * 100}%`}
      height={ROW - 1}
      role="treeitem"
      aria-level={row + 1}
      aria-selected={chosen}
      aria-label={`${call.name}, ${describe(call, root)}`}
      tabIndex={chosen ? 0 : -1}
      onFocus={onFocus}
      onClick={onEnlarge}
    >
      <rect width="100%" height="100%" />
      {width > 0.015 && <text x="4" y="14">{short(call.name)}</text>}
      <title>{call.name}</title>
    </svg>
  )
}
