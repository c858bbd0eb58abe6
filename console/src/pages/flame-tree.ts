/** A profile as a tree: what a flame graph shows, what a table lists, and what a search finds. No DOM. */

export interface RawProfile {
  names: readonly string[]
  frames: readonly { caller: number | null; name: number; total: number; own: number }[]
  sum: number
}

export interface Call {
  /** Place in the profile; -1 for all threads. */
  id: number
  name: string
  total: number
  own: number
  caller: Call | undefined
  /** The largest first. */
  calls: Call[]
}

/** A frame on the screen: `from` and `width` are shares of the graph, `row` counts from the top. */
export interface Box { call: Call; row: number; from: number; width: number }

export interface Sum { name: string; own: number; total: number }

/** All threads as the calls of one root. */
export function treeOf(profile: RawProfile, all: string): Call {
  const root: Call = { id: -1, name: all, total: profile.sum, own: 0, caller: undefined, calls: [] }
  const known: Call[] = []
  profile.frames.forEach(({ caller, name, total, own }, id) => {
    const above = (caller === null ? root : known[caller]) ?? root
    const call: Call = { id, name: profile.names[name] ?? '?', total, own, caller: above, calls: [] }
    above.calls.push(call)
    known.push(call)
  })
  for (const call of [root, ...known]) call.calls.sort((one, other) => other.total - one.total)
  return root
}

/** The callers of `top`, then `top`, then its calls as far as they are `least` wide. Rows are in order, boxes of a row too. */
export function layout(top: Call, least: number): Box[] {
  const path: Call[] = []
  for (let call: Call | undefined = top; call; call = call.caller) path.unshift(call)
  const boxes: Box[] = path.map((call, row) => ({ call, row, from: 0, width: 1 }))
  let row = path.length
  let above = boxes.slice(-1)
  while (above.length > 0) {
    const below: Box[] = []
    for (const { call, from } of above) {
      let at = from
      for (const inner of call.calls) {
        const width = top.total > 0 ? inner.total / top.total : 0
        if (width >= least) below.push({ call: inner, row, from: at, width })
        at += width
      }
    }
    boxes.push(...below)
    above = below
    row += 1
  }
  return boxes
}

/** Time by function. A function that calls itself counts once. */
export function sums(root: Call): Sum[] {
  const found = new Map<string, Sum>()
  const open = new Map<string, number>()
  const steps: { call: Call; leave: boolean }[] = root.calls.map((call) => ({ call, leave: false }))
  for (let step = steps.pop(); step; step = steps.pop()) {
    const { name, own, total, calls } = step.call
    const depth = open.get(name) ?? 0
    if (step.leave) {
      open.set(name, depth - 1)
      continue
    }
    const sum = found.get(name) ?? { name, own: 0, total: 0 }
    sum.own += own
    if (depth === 0) sum.total += total
    found.set(name, sum)
    open.set(name, depth + 1)
    steps.push({ call: step.call, leave: true }, ...calls.map((call) => ({ call, leave: false })))
  }
  return [...found.values()].sort((one, other) => other.own - one.own || other.total - one.total)
}

/** Time in functions whose name contains the text; calls within a match count once. */
export function matched(root: Call, text: string): number {
  let sum = 0
  const rest = [...root.calls]
  for (let call = rest.pop(); call; call = rest.pop()) {
    if (matches(call.name, text)) sum += call.total
    else rest.push(...call.calls)
  }
  return sum
}

export const matches = (name: string, text: string): boolean => text !== '' && name.toLowerCase().includes(text.toLowerCase())

/** The last two parts of a path: `shard::deliver` of `noroshi_gateway::shard::deliver`. Generics stay. */
export function short(name: string): string {
  const plain = name.replace(/<.*$/, '')
  const parts = plain.split('::')
  return parts.length < 3 || plain === '' ? name : `${parts.slice(-2).join('::')}${name.slice(plain.length)}`
}

export type Origin = 'own' | 'runtime' | 'other'

/** Code of Noroshi, of the language and its runtime, or of others. */
export function originOf(name: string): Origin {
  if (/\bnoroshi(_\w+)?::/.test(name)) return 'own'
  return /^<?(&|\*|dyn |impl )*\(?(std|core|alloc|tokio|futures\w*|hyper\w*|axum\w*|tower\w*|h2|mio)\b/.test(name) ? 'runtime' : 'other'
}
