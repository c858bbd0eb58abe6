const plain = new Map<string, Intl.NumberFormat>()

/** A whole number with the separators of the language. */
export function count(value: number, language: string): string {
  let format = plain.get(language)
  if (!format) plain.set(language, (format = new Intl.NumberFormat(language, { maximumFractionDigits: 1 })))
  return format.format(value)
}
