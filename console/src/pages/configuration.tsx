/** The effective configuration of the node that answers, without secrets, and where each value comes from. */

import { useState } from 'preact/hooks'

import { admin, type AdminSchemas, body } from '../api/client'
import { useLoad } from '../app/load'
import { t, tValue } from '../i18n'
import { Badge, type Tone } from '../ui/badge'
import { Empty } from '../ui/empty'
import { TextField } from '../ui/field'
import { Head } from '../ui/head'
import { Segmented } from '../ui/segmented'
import { Table } from '../ui/table'

type Setting = AdminSchemas['Setting']
type Which = 'all' | 'set'

const TONES: Record<Setting['source'], Tone> = { default: 'muted', file: 'info', environment: 'info', flag: 'info' }

export default function Configuration() {
  const [wanted, setWanted] = useState('')
  const [which, setWhich] = useState<Which>('all')
  const load = useLoad('configuration', () => body(admin.GET('/v1/configuration')))
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean)
  const isWanted = ({ key, description, source, value }: Setting): boolean =>
    (which === 'all' || source !== 'default') && words.every((word) => `${key} ${description} ${value ?? ''}`.toLowerCase().includes(word))
  return (
    <>
      <Head title={t('page.configuration')} {...(load.data ? { text: t('configuration.lead', { node: load.data.node }) } : {})} />
      <div class="filters">
        <TextField label={t('configuration.search')} value={wanted} onChange={setWanted} mono />
        <Segmented<Which> label={t('configuration.which')} value={which} onChange={setWhich} options={[{ value: 'all', label: t('configuration.all') }, { value: 'set', label: t('configuration.set') }]} />
      </div>
      <Table<Setting>
        caption={t('page.configuration')}
        load={{ ...load, data: load.data?.settings.filter(isWanted) }}
        rowKey={({ key }) => key}
        empty={<Empty icon="settings" title={t('configuration.none')} text={t('configuration.none.text')} />}
        columns={[
          { title: t('configuration.key'), cell: ({ key, description }) => <><code>{key}</code><small class="below">{description}</small></> },
          { title: t('configuration.value'), cell: ({ value, masked }) => value === null ? <span class="none">–</span> : <><code class="setting">{value}</code>{masked && <small class="below">{t('configuration.masked')}</small>}</> },
          { title: t('configuration.source'), cell: ({ source, place }) => <><Badge tone={TONES[source]}>{tValue('configuration.source', source)}</Badge>{place !== null && <small class="below"><code>{place}</code></small>}</> },
          { title: t('configuration.default'), wide: true, cell: (setting) => setting.default === null ? <span class="none">–</span> : <code class="setting">{setting.default}</code> },
          { title: t('configuration.range'), wide: true, cell: ({ unit, range }) => <span class="soft">{unit}{range && `: ${range}`}</span> },
        ]}
      />
    </>
  )
}
