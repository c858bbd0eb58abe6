/** A browser's name out of its User-Agent, for a list of sessions; the whole text is in the title. */
export function agentText(agent: string): string {
  const browsers: [RegExp, string][] = [[/Edg\//, 'Edge'], [/OPR\//, 'Opera'], [/Firefox\//, 'Firefox'], [/Chrome\//, 'Chrome'], [/Safari\//, 'Safari']]
  const systems: [RegExp, string][] = [[/iPhone|iPad/, 'iOS'], [/Android/, 'Android'], [/Windows/, 'Windows'], [/Mac OS X/, 'macOS'], [/Linux/, 'Linux']]
  const name = (list: [RegExp, string][]): string | undefined => list.find(([pattern]) => pattern.test(agent))?.[1]
  return [name(browsers), name(systems)].filter(Boolean).join(' · ') || agent.slice(0, 60) || '–'
}
