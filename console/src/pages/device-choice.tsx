/** Chooses the device whose part of a notification or a Live Activity the page shows. */

import { t } from '../i18n'
import { Button } from '../ui/button'
import { FilterField } from '../ui/filter'
import { useFilters } from './filters'

export function DeviceChoice() {
  const { typed, field, apply } = useFilters(['device'])
  return (
    <form class="filters" onSubmit={(event) => { event.preventDefault(); apply(typed) }}>
      <FilterField label={t('kind.device')} {...field('device')} mono />
      <Button type="submit">{t('story.show')}</Button>
    </form>
  )
}
