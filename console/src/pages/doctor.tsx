/** Doctor's findings about the machine of the node that answers: what is wrong, and the settings that repair it. */

import { useState } from 'preact/hooks'

import { admin, type AdminSchemas, body } from '../api/client'
import { number } from '../app/format'
import { useLoad } from '../app/load'
import { t, tValue } from '../i18n'
import { Badge, type Tone } from '../ui/badge'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { TextField } from '../ui/field'
import { Head, Section } from '../ui/head'
import { Skeleton } from '../ui/skeleton'
import { Table } from '../ui/table'

type Doctor = AdminSchemas['Doctor']
type Check = AdminSchemas['DoctorCheck']

const TONES: Record<AdminSchemas['DoctorVerdict'], Tone> = { ok: 'good', warn: 'warn', fail: 'bad' }
/** Failures first. */
const ORDER: readonly AdminSchemas['DoctorVerdict'][] = ['fail', 'warn', 'ok']

function Verdict({ value }: { value: AdminSchemas['DoctorVerdict'] }) {
  return <Badge tone={TONES[value]}>{tValue('doctor.verdict', value)}</Badge>
}

export default function DoctorPage() {
  const [devices, setDevices] = useState<number | undefined>(undefined)
  const load = useLoad(`doctor ${devices ?? ''}`, () => body(admin.GET('/v1/doctor', { params: { query: devices === undefined ? {} : { connections: devices } } })))
  const found = load.data
  return (
    <>
      <Head title={t('page.doctor')} badge={found && <Verdict value={found.verdict} />} {...(found ? { text: t('doctor.lead', { node: found.node }) } : {})}>
        <Button icon="refresh" busy={load.loading && found !== undefined} onClick={load.reload}>{t('doctor.again')}</Button>
      </Head>
      <Devices onChoose={setDevices} />
      <ErrorBox error={load.error} retry={load.reload} />
      {found ? <Findings found={found} loading={load.loading} /> : !load.error && <Skeleton rows={8} />}
    </>
  )
}

function Devices({ onChoose }: { onChoose(devices: number | undefined): void }) {
  const [text, setText] = useState('')
  return (
    <form class="filters" onSubmit={(event) => { event.preventDefault(); onChoose(text ? Number(text) : undefined) }}>
      <TextField label={t('doctor.devices')} hint={t('doctor.devices.hint')} type="number" inputmode="numeric" value={text} onChange={setText} />
      <Button type="submit">{t('doctor.check')}</Button>
    </form>
  )
}

function Findings({ found, loading }: { found: Doctor; loading: boolean }) {
  const { devices, limited_by } = found.room
  const sysctl = Object.entries(found.sysctl)
  const checks = [...found.checks].sort((one, other) => ORDER.indexOf(one.verdict) - ORDER.indexOf(other.verdict))
  return (
    <>
      <Facts facts={[
        [t('doctor.required'), t(found.tls ? 'doctor.requiredTls' : 'doctor.requiredPlain', { count: number(found.connections) })],
        [t('doctor.room'), devices !== null && (limited_by ? t('doctor.limitedBy', { count: number(devices), limit: limited_by }) : number(devices))],
      ]} />
      <Section title={t('doctor.findings')}>
        <Table<Check>
          caption={t('doctor.findings')}
          load={{ data: checks, error: undefined, loading, reload: () => undefined }}
          rowKey={({ name }) => name}
          empty={<Empty icon="check" title={t('doctor.none')} text={t('doctor.none.text')} />}
          columns={[
            { title: t('column.state'), cell: ({ verdict }) => <Verdict value={verdict} /> },
            { title: t('doctor.name'), cell: ({ name, advice }) => <><strong>{name}</strong>{advice && <small class="below">{advice}</small>}</> },
            { title: t('doctor.found'), cell: (check) => check.found },
            { title: t('doctor.wanted'), wide: true, cell: ({ wanted }) => wanted },
          ]}
        />
      </Section>
      {sysctl.length > 0 && (
        <Section title={t('doctor.sysctl')}>
          <CodeBlock label={t('doctor.sysctl')} value={['# /etc/sysctl.d/90-noroshi.conf', ...sysctl.map(([key, value]) => `${key} = ${value}`)].join('\n')} />
        </Section>
      )}
      {found.limit_nofile !== null && (
        <Section title={t('doctor.unit')}>
          <CodeBlock label={t('doctor.unit')} value={`# systemctl edit noroshi\n[Service]\nLimitNOFILE=${found.limit_nofile}`} />
        </Section>
      )}
    </>
  )
}
