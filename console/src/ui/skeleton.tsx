/** The outline of what is being loaded. */

import { t } from '../i18n'

export function Skeleton({ rows = 3 }: { rows?: number }) {
  return (
    <div class="skeleton" role="status">
      <span class="hidden">{t('state.loading')}</span>
      {Array.from({ length: rows }, (_, index) => <span key={index} aria-hidden="true" />)}
    </div>
  )
}
