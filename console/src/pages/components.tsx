/** Every component in every state, for people who change them and for the tests of accessibility. */

import { useState } from 'preact/hooks'

import { ApiError } from '../api/error'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { Badge, Outcome, State, type Tone } from '../ui/badge'
import { Button } from '../ui/button'
import { Chart } from '../ui/chart'
import { CodeBlock } from '../ui/code'
import { Combobox } from '../ui/combobox'
import { Id } from '../ui/copy'
import { FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Checks, Select, Switch, TextArea, TextField } from '../ui/field'
import { Head, Section } from '../ui/head'
import { Icon } from '../ui/icon'
import { Menu } from '../ui/menu'
import { Meter } from '../ui/meter'
import { Bars, Progress } from '../ui/progress'
import { QrCode } from '../ui/qr'
import { Segmented } from '../ui/segmented'
import { Skeleton } from '../ui/skeleton'
import { Table } from '../ui/table'
import { Tabs } from '../ui/tabs'
import { Timeline } from '../ui/timeline'
import { toast, toastError } from '../ui/toast'
import { When } from '../ui/when'
import { Shares } from './shares'

const TONES: Tone[] = ['good', 'warn', 'bad', 'info', 'muted']
const FROM = Date.UTC(2026, 0, 1)
/** A day with a peak in the evening, the same at each visit. */
const wave = (phase: number, height: number): number[] =>
  Array.from({ length: 144 }, (_, index) => Math.round(height * (1 + 0.6 * Math.sin(index / 23 + phase)) + (index * 37 % 11) * height / 60))
const LINES = [{ label: 'p50', points: wave(0, 40) }, { label: 'p99', points: wave(0.5, 130) }]
const PROBLEM = new ApiError({ status: 409, code: 'wrong_state', title: 'Wrong state', detail: 'the campaign has ended', field: 'state', requestId: '01a21d69661f75e6bf140f0b0005a817' })

export default function Components() {
  return (
    <>
      <Head kind="Noroshi" title={t('page.components')} badge={<Badge tone="info">{t('components.count')}</Badge>} text={t('components.lead')}>
        <Button kind="primary" icon="plus">{t('action.save')}</Button>
      </Head>
      <Buttons />
      <Fields />
      <States />
      <Data />
      <Overlays />
    </>
  )
}

function Buttons() {
  return (
    <Section title={t('components.buttons')}>
      <div class="row">
        <Button kind="primary">{t('action.save')}</Button>
        <Button>{t('action.cancel')}</Button>
        <Button kind="danger">{t('action.delete')}</Button>
        <Button kind="quiet">{t('action.back')}</Button>
        <Button busy>{t('state.loading')}</Button>
        <Button icon="refresh">{t('action.retry')}</Button>
        <Button icon="plus" label={t('rules.add')} />
        <Button small>{t('action.change')}</Button>
        <Button reason={t('permission.missing', { permission: t('permission.manage') })}>{t('action.change')}</Button>
      </div>
    </Section>
  )
}

function Fields() {
  const [text, setText] = useState('u1')
  const [choice, setChoice] = useState<'apns' | 'fcm'>('apns')
  const [on, setOn] = useState(true)
  const [several, setSeveral] = useState<readonly ('live' | 'push')[]>(['live'])
  const [span, setSpan] = useState<'1h' | '6h'>('1h')
  const [typed, setTyped] = useState('')
  return (
    <Section title={t('components.fields')}>
      <div class="split">
        <div class="stack">
          <TextField label={t('kind.user')} hint={t('field.optional')} value={text} onChange={setText} />
          <TextField label={t('kind.device')} error={PROBLEM.message} value={text} onChange={setText} mono />
          <Select label={t('credentials.service')} value={choice} onChange={setChoice} options={[{ value: 'apns', label: 'APNs' }, { value: 'fcm', label: 'FCM' }]} />
          <TextArea label={t('test.body')} value={text} onChange={setText} rows={2} />
        </div>
        <div class="stack">
          <Switch label={t('preferences.quiet')} hint={t('compose.quietHint')} value={on} onChange={setOn} />
          <Checks label={t('preferences.channels')} value={several} onChange={setSeveral} options={[{ value: 'live', label: t('channel.live') }, { value: 'push', label: t('channel.push') }]} />
          <Segmented label={t('audit.scope')} value={span} onChange={setSpan} options={[{ value: '1h', label: t('span.1h') }, { value: '6h', label: t('span.6h') }]} />
          <div class="panel">
            <Combobox label={t('palette.title')} placeholder={t('palette.placeholder')} value={typed} onInput={setTyped} nothing={t('palette.nothing')} choices={[
              { id: 'a', label: t('page.overview'), group: t('palette.pages'), icon: 'pulse', hint: 'g o', run: () => toast(t('page.overview')) },
              { id: 'b', label: t('page.campaigns'), group: t('palette.pages'), icon: 'campaign', hint: 'g c', run: () => toast(t('page.campaigns')) },
            ]} />
          </div>
        </div>
      </div>
    </Section>
  )
}

function States() {
  return (
    <Section title={t('components.states')}>
      <div class="row">
        {TONES.map((tone) => <Badge key={tone} tone={tone}>{tone}</Badge>)}
        <State value="running" /><State value="paused" /><State value="offline" />
        <Outcome value="pushed" /><Outcome value="push_refused" />
      </div>
      <div class="split">
        <div class="stack">
          <Empty icon="campaign" title={t('campaigns.empty')} text={t('campaigns.empty.text')}><Button kind="primary" icon="plus">{t('campaigns.new')}</Button></Empty>
          <Skeleton rows={3} />
        </div>
        <div class="stack">
          <ErrorBox error={PROBLEM} retry={() => toast(t('action.retry'))} />
          <Progress label={t('campaign.progress')} done={73_120} total={100_000} />
          <Meter label={t('quotas.share')} value={0.84} />
          <Bars label={t('campaign.funnel')} whole={1000} bars={[{ label: t('outcome.pushed'), value: 940, tone: 'good' }, { label: t('outcome.push_refused'), value: 22, tone: 'bad' }]} />
          <Shares parts={[{ name: 'control', weight: 50 }, { name: 'short', weight: 30 }, { name: 'long', weight: 20 }]} />
        </div>
      </div>
    </Section>
  )
}

function Data() {
  const [tab, setTab] = useState('table')
  return (
    <Section title={t('components.data')}>
      <Tabs label={t('components.data')} chosen={tab} onChoose={setTab} tabs={[
        { id: 'table', label: t('components.table'), count: 2, body: () => <Rows /> },
        { id: 'facts', label: t('components.facts'), body: () => <Facts facts={[[t('kind.user'), 'u1'], [t('column.created'), <When at={FROM} exact />], [t('notification.id'), <Id value="01a21d69-661f-75e6-bf14-0f0b0005a817" />], [t('device.locale'), null]]} /> },
        { id: 'code', label: 'JSON', body: () => <CodeBlock label="JSON" value={{ aps: { alert: { title: 'Hello', body: '20 % off' }, badge: 3 }, ok: true, none: null }} /> },
        { id: 'timeline', label: t('story.title'), body: () => <Timeline steps={[
          { at: FROM, tone: 'info', title: t('outcome.kept'), text: t('outcome.kept') },
          { at: FROM + 5012, tone: 'bad', title: t('outcome.push_refused'), text: '503 ServiceUnavailable' },
          { at: FROM + 7300, tone: 'good', title: t('outcome.pushed') },
        ]} /> },
        { id: 'qr', label: 'QR', body: () => <QrCode text="otpauth://totp/Noroshi:ops@example.com?secret=JBSWY3DPEHPK3PXP&issuer=Noroshi" label={t('totp.qr')} /> },
      ]} />
      <div class="charts">
        <Chart title={t('series.latency')} unit="milliseconds" from={FROM} stepMs={600_000} lines={LINES} />
        <Chart title={t('series.errors')} unit="per_second" from={FROM} stepMs={600_000} lines={NOTHING} />
      </div>
    </Section>
  )
}
const NOTHING = [{ label: 'errors', points: [null, null] }]

function Rows() {
  const rows = [{ name: 'vm-1', count: 15_591 }, { name: 'vm-2', count: 204 }]
  return (
    <Table
      caption={t('components.table')}
      load={{ data: rows, error: undefined, loading: false, reload: () => undefined, number: 2, previous: () => undefined, next: undefined }}
      rowKey={({ name }) => name}
      empty={null}
      columns={[
        { title: t('column.name'), cell: ({ name }) => <strong>{name}</strong> },
        { title: t('nodes.connections'), align: 'end', cell: ({ count }) => count.toLocaleString() },
        { title: t('column.actions'), align: 'actions', cell: ({ name }) => <Menu label={t('action.more', { name })} items={[{ label: t('action.change'), onChoose: () => toast(name) }, { label: t('action.delete'), danger: true, reason: t('permission.missing', { permission: t('permission.manage') }) }]} /> },
      ]}
    />
  )
}

function Overlays() {
  const [open, setOpen] = useState(false)
  const [text, setText] = useState('')
  return (
    <Section title={t('components.overlays')}>
      <div class="row">
        <Button onClick={() => setOpen(true)}>{t('components.dialog')}</Button>
        <Button kind="danger" onClick={() => void ask({ title: t('device.delete'), text: t('device.delete.text'), confirm: t('action.delete'), typed: 'phone-1' }).then((yes) => toast(String(yes)))}>{t('device.delete')}</Button>
        <Button onClick={() => toast(t('copy.done'))}>{t('components.toast')}</Button>
        <Button onClick={() => toastError(PROBLEM)}>{t('components.errorToast')}</Button>
        <span class="chips"><Icon name="globe" /><Icon name="bell" /><Icon name="user" /></span>
      </div>
      {open && (
        <FormDialog title={t('components.dialog')} submit={t('action.save')} busy={false} error={PROBLEM} onClose={() => setOpen(false)} onSubmit={() => setOpen(false)}>
          <TextField label={t('column.name')} value={text} onChange={setText} autofocus />
        </FormDialog>
      )}
    </Section>
  )
}
