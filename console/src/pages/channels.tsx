/** Broadcast channels of APNs: one request updates the Live Activities of all subscribers. */

import { useState } from 'preact/hooks'

import { body, provider, type Schemas } from '../api/client'
import { perform, useAction } from '../app/action'
import { number } from '../app/format'
import { pageAfter, usePages } from '../app/load'
import { app, at, refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Button } from '../ui/button'
import { Id } from '../ui/copy'
import { FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { Select, TextField } from '../ui/field'
import { Head } from '../ui/head'
import { Menu } from '../ui/menu'
import { Table } from '../ui/table'
import { When } from '../ui/when'

type Channel = Schemas['Channel']

export default function Channels() {
  const [creating, setCreating] = useState(false)
  const [binding, setBinding] = useState<Channel | undefined>(undefined)
  const load = usePages(`channels ${app.value}`, async (after) => {
    const answer = await body(provider.GET('/v1/push/channels', { params: { query: pageAfter(after) } }))
    return { rows: answer.channels, next: answer.next }
  })
  const reason = refusal('define')

  async function remove({ name }: Channel): Promise<void> {
    if (!(await ask({ title: t('channels.delete'), text: t('channels.delete.text', { name }), confirm: t('action.delete'), typed: name }))) return
    if (await perform(() => provider.DELETE('/v1/push/channels/{name}', { params: { path: { name } } }), t('channels.deleted'))) load.reload()
  }

  const create = <Button kind="primary" icon="plus" reason={reason} onClick={() => setCreating(true)}>{t('channels.create')}</Button>
  return (
    <>
      <Head title={t('page.channels')} text={t('channels.lead')}>{create}</Head>
      <Table<Channel>
        caption={t('page.channels')}
        load={load}
        rowKey={({ name }) => name}
        empty={<Empty icon="channel" title={t('channels.empty')} text={t('channels.empty.text')}>{create}</Empty>}
        columns={[
          { title: t('column.name'), cell: ({ name }) => <code>{name}</code> },
          { title: t('kind.topic'), cell: ({ topic }) => topic === null ? <span class="none">–</span> : <a class="mono" href={at('topic', { id: topic })}>{topic}</a> },
          { title: t('channels.storage'), wide: true, cell: ({ storage }) => tValue('channels.storage', storage) },
          { title: t('credentials.environment'), wide: true, cell: ({ environment }) => tValue('environment', environment) },
          { title: t('channels.apnsId'), wide: true, cell: (channel) => channel.apns_id === null ? <span class="none">–</span> : <Id value={channel.apns_id} /> },
          { title: t('channels.waiting'), align: 'end', cell: ({ waiting }) => number(waiting) },
          { title: t('column.created'), wide: true, cell: (channel) => <When at={channel.created_at} /> },
          {
            title: t('column.actions'), align: 'actions',
            cell: (channel) => <Menu label={t('action.more', { name: channel.name })} items={[
              { label: t('channels.bind'), reason, onChoose: () => setBinding(channel) },
              { label: t('channels.delete'), danger: true, reason, onChoose: () => void remove(channel) },
            ]} />,
          },
        ]}
      />
      {creating && <Create onClose={(saved) => { setCreating(false); if (saved) load.reload() }} />}
      {binding && <Bind channel={binding} onClose={(saved) => { setBinding(undefined); if (saved) load.reload() }} />}
    </>
  )
}

function Create({ onClose }: { onClose(saved: boolean): void }) {
  const [name, setName] = useState('')
  const [topic, setTopic] = useState('')
  const [environment, setEnvironment] = useState<'production' | 'sandbox'>('production')
  const [storage, setStorage] = useState<'none' | 'latest'>('latest')
  const create = useAction(() => provider.POST('/v1/push/channels', { body: { name, environment, storage, ...(topic ? { topic } : {}) } }))
  return (
    <FormDialog title={t('channels.create')} submit={t('channels.create')} busy={create.busy} error={create.error} onClose={() => onClose(false)} onSubmit={() => void create.run().then((done) => done && onClose(true))}>
      <TextField label={t('column.name')} value={name} onChange={setName} required mono autofocus />
      <TextField label={t('kind.topic')} hint={t('channels.topicHint')} value={topic} onChange={setTopic} mono />
      <div class="field-row">
        <Select label={t('credentials.environment')} value={environment} onChange={setEnvironment} options={(['production', 'sandbox'] as const).map((value) => ({ value, label: tValue('environment', value) }))} />
        <Select label={t('channels.storage')} value={storage} onChange={setStorage} options={(['latest', 'none'] as const).map((value) => ({ value, label: tValue('channels.storage', value) }))} />
      </div>
    </FormDialog>
  )
}

function Bind({ channel, onClose }: { channel: Channel; onClose(saved: boolean): void }) {
  const [topic, setTopic] = useState(channel.topic ?? '')
  const bind = useAction(() => provider.PATCH('/v1/push/channels/{name}', { params: { path: { name: channel.name } }, body: { topic: topic || null } }))
  return (
    <FormDialog title={t('channels.bind')} submit={t('action.save')} busy={bind.busy} error={bind.error} onClose={() => onClose(false)} onSubmit={() => void bind.run().then((done) => done && onClose(true))}>
      <TextField label={t('kind.topic')} hint={t('channels.topicHint')} value={topic} onChange={setTopic} mono autofocus />
    </FormDialog>
  )
}
