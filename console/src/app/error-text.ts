import { ApiError, Unreachable } from '../api/error'
import { known, language, t } from '../i18n'

/**
 * The sentence for people. The server writes English: in other languages the sentence of the error's code, and `serverText`
 * beside it.
 */
export function errorText(error: unknown): string {
  if (error instanceof Unreachable) return t('error.unreachable')
  return translated(error) ?? serverText(error)
}

/** What the server wrote, if `errorText` is something else. */
export const detailText = (error: unknown): string | undefined => (translated(error) === undefined ? undefined : serverText(error))

const serverText = (error: unknown): string => (error instanceof Error ? error.message : String(error))

const translated = (error: unknown): string | undefined =>
  error instanceof ApiError && language.value !== 'en' ? known(`problem.${error.problem.code}`) : undefined
