import { bytes, number } from '../app/format'

export const shownQuota = (quota: string, value: number): string =>
  quota.endsWith('_bytes') ? bytes(value) : quota.endsWith('_per_second') ? `${number(value)}/s` : number(value)
