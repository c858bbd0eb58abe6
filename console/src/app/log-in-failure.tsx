/** Why a log-in with a provider failed: the server leads here with the reason in the address. Unknown reasons show no text of it. */

import type { SessionSchemas } from '../api/client'
import { t } from '../i18n'
import { place } from './router'

type Failure = SessionSchemas['LogInFailure']

const TEXTS: Record<Failure, (provider: string) => string> = {
  denied: (provider) => t('logIn.failure.denied', { provider }),
  no_role: (provider) => t('logIn.failure.no_role', { provider }),
  no_email: (provider) => t('logIn.failure.no_email', { provider }),
  unverified_email: (provider) => t('logIn.failure.unverified_email', { provider }),
  email_domain: () => t('logIn.failure.email_domain'),
  email_taken: () => t('logIn.failure.email_taken'),
  disabled: () => t('logIn.failure.disabled'),
  unavailable: (provider) => t('logIn.failure.unavailable', { provider }),
  expired: () => t('logIn.failure.expired'),
  invalid: (provider) => t('logIn.failure.invalid', { provider }),
  too_many: () => t('logIn.failure.too_many'),
  busy: () => t('logIn.failure.busy'),
  not_recent: (provider) => t('logIn.failure.not_recent', { provider }),
  other_person: (provider) => t('logIn.failure.other_person', { provider }),
  no_session: () => t('logIn.failure.no_session'),
  failed: () => t('logIn.failure.failed'),
}

/** The reason in the present address. */
export function failure(query: URLSearchParams = place.value.query): Failure | undefined {
  const found = query.get('log_in')
  if (found === null) return undefined
  return Object.hasOwn(TEXTS, found) ? (found as Failure) : 'failed'
}

/** `provider` is the title of the provider, if known. */
export const failureText = (found: Failure, provider: string | undefined): string => TEXTS[found](provider ?? t('logIn.provider'))

export function LogInFailure({ provider }: { provider: string | undefined }) {
  const found = failure()
  if (!found) return null
  return (
    <div class="error-box" role="alert">
      <div><p class="error-title">{failureText(found, provider)}</p></div>
    </div>
  )
}
