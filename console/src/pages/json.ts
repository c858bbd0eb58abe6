/** JSON that a person typed. */

import { t } from '../i18n'

export function parseObject(text: string): Record<string, unknown> {
  const value = parseJson(text)
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(t('json.object'))
  return value as Record<string, unknown>
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new Error(t('json.invalid', { detail: error instanceof Error ? error.message : String(error) }))
  }
}
