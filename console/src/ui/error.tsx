/** An error: its sentence, the server's words if they are others, and the request id that the server's log contains. */

import { ApiError } from '../api/error'
import { detailText, errorText } from '../app/error-text'
import { t } from '../i18n'
import { Button } from './button'
import { CopyButton } from './copy'

export function ErrorBox({ error, retry }: { error: unknown; retry?: () => void }) {
  if (!error) return null
  const problem = error instanceof ApiError ? error.problem : undefined
  const detail = detailText(error)
  return (
    <div class="error-box" role="alert">
      <div>
        <p class="error-title">{errorText(error)}</p>
        {detail && <p lang="en">{detail}</p>}
        {problem && (
          <p class="error-facts">
            <code>{problem.status} {problem.code}</code>
            {problem.field && <> · {t('error.field')} <code>{problem.field}</code></>}
            {problem.requestId && (
              <> · {t('error.request')} <code>{problem.requestId}</code> <CopyButton text={problem.requestId} label={t('error.copyRequest')} /></>
            )}
          </p>
        )}
      </div>
      {retry && <Button small icon="refresh" onClick={retry}>{t('action.retry')}</Button>}
    </div>
  )
}
