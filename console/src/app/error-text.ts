import { Unreachable } from '../api/error'
import { t } from '../i18n'

/** The sentence for people: the server's own, except if there was no answer. */
export const errorText = (error: unknown): string =>
  error instanceof Unreachable ? t('error.unreachable') : error instanceof Error ? error.message : String(error)
