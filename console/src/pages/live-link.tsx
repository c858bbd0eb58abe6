/** A link to the live tail with a filter. */

import { at, isFront } from '../app/session'
import { t } from '../i18n'
import { Icon } from '../ui/icon'
import type { FIELDS } from './tail-filter'

export function LiveLink(filter: Partial<Record<(typeof FIELDS)[number], string>>) {
  if (isFront()) return null
  return <a class="button plain" href={at('live', filter)}><Icon name="tail" /><span>{t('page.live')}</span></a>
}
