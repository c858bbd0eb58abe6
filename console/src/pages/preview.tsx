/** Roughly what people see. Sizes follow the systems: a title in one line, a body in a few. */

import { app } from '../app/session'
import { t } from '../i18n'
import { Mark } from '../app/mark'
import { InboxPreview } from './preview-inbox'

const KINDS = ['ios', 'android', 'web'] as const

interface Props { title: string; text: string; url?: string; /** Whom the values are of. */ of?: string | undefined }

export function Preview({ title, text, url, of }: Props) {
  return (
    <div class="previews">
      <h2 class="small-head">{t('preview.title')}</h2>
      {of && <p class="hint">{t('preview.of', { of })}</p>}
      {KINDS.map((kind) => (
        <figure key={kind} class={`preview ${kind}`}>
          <figcaption>{t(`platform.${kind}`)}</figcaption>
          <div class="preview-card">
            <span class="preview-icon"><Mark /></span>
            <div class="preview-text">
              <p class="preview-meta"><span>{kind === 'web' ? t('preview.browser', { app: app.value ?? '' }) : app.value}</span><span>{t('preview.now')}</span></p>
              <p class="preview-title">{title || t('preview.noTitle')}</p>
              {text && <p class="preview-body">{text}</p>}
            </div>
          </div>
        </figure>
      ))}
      <InboxPreview title={title} text={text} url={url} />
    </div>
  )
}
