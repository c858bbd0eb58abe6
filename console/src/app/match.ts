/** Ranks texts by what a person typed: texts and words that begin with it first, then letters in order. */

export function score(text: string, typed: string): number {
  const wanted = typed.trim().toLowerCase()
  const where = text.toLowerCase()
  if (wanted === '') return 1
  if (where.startsWith(wanted)) return 4
  if (where.split(/[\s:·/_-]+/).some((word) => word.startsWith(wanted))) return 3
  if (where.includes(wanted)) return 2
  let from = 0
  for (const letter of wanted.replaceAll(' ', '')) {
    from = where.indexOf(letter, from) + 1
    if (from === 0) return 0
  }
  return 1
}

export function best<T>(items: readonly T[], text: (item: T) => string, typed: string): T[] {
  return items
    .map((item, index) => ({ item, index, score: score(text(item), typed) }))
    .filter((entry) => entry.score > 0)
    .sort((a, b) => b.score - a.score || a.index - b.index)
    .map(({ item }) => item)
}
