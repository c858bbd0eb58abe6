/** A link to the live tail with a filter. */

import { at, isFront } from '../app/session'
import type { FIELDS } from '../app/tail'
import { t } from '../i18n'
import { Icon } from './icon'

export function LiveLink(filter: Partial<Record<(typeof FIELDS)[number], string>>) {
  if (isFront()) return null
  return <a class="button plain" href={at('live', filter)}><Icon name="tail" /><span>{t('page.live')}</span></a>
}
