/** Roughly what people see. Sizes follow the systems: a title in one line, a body in a few. */

import { app } from '../app/session'
import { t } from '../i18n'
import { Mark } from '../app/mark'

const KINDS = ['ios', 'android', 'web'] as const

export function Preview({ title, text }: { title: string; text: string }) {
  return (
    <div class="previews">
      <h2 class="small-head">{t('preview.title')}</h2>
      {KINDS.map((kind) => (
        <figure key={kind} class={`preview ${kind}`}>
          <figcaption>{t(`platform.${kind}`)}</figcaption>
          <div class="preview-card">
            <span class="preview-icon"><Mark /></span>
            <div class="preview-text">
              <p class="preview-meta"><span>{app.value}</span><span>{t('preview.now')}</span></p>
              <p class="preview-title">{title || t('preview.noTitle')}</p>
              {text && <p class="preview-body">{text}</p>}
            </div>
          </div>
        </figure>
      ))}
    </div>
  )
}
