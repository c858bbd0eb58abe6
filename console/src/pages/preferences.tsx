/** The preferences of a user or a device, and the form that changes them. */

import { useState } from 'preact/hooks'

import { body, provider, type Schemas } from '../api/client'
import { perform, useAction } from '../app/action'
import { useLoad } from '../app/load'
import { app, refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { ask } from '../ui/ask'
import { Badge } from '../ui/badge'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Checks, Switch, TextArea, TextField } from '../ui/field'
import { Skeleton } from '../ui/skeleton'

type Values = Schemas['Preferences']
export type Whose = { user: string } | { device: string }

const CHANNELS = ['live', 'push', 'inbox'] as const

function requests(whose: Whose) {
  if ('user' in whose) {
    const params = { params: { path: { user: whose.user } } }
    const path = '/v1/users/{user}/preferences'
    return {
      read: () => body(provider.GET(path, params)),
      write: (values: Values) => provider.PUT(path, { ...params, body: values }),
      remove: () => provider.DELETE(path, params),
    }
  }
  const params = { params: { path: { device: whose.device } } }
  const path = '/v1/devices/{device}/preferences'
  return {
    read: () => body(provider.GET(path, params)),
    write: (values: Values) => provider.PUT(path, { ...params, body: values }),
    remove: () => provider.DELETE(path, params),
  }
}

export function PreferencesPanel({ whose }: { whose: Whose }) {
  const [editing, setEditing] = useState(false)
  const { read, write, remove } = requests(whose)
  const load = useLoad(`preferences ${app.value} ${JSON.stringify(whose)}`, read)
  const reason = refusal('devices')
  if (load.error) return <ErrorBox error={load.error} retry={load.reload} />
  if (!load.data) return <Skeleton />

  async function clear(): Promise<void> {
    if (!(await ask({ title: t('preferences.clear'), text: t('preferences.clear.text'), confirm: t('preferences.clear') }))) return
    if (await perform(remove, t('preferences.cleared'))) load.reload()
  }

  const none = Object.keys(load.data).length === 0
  const edit = <Button reason={reason} onClick={() => setEditing(true)}>{t('action.change')}</Button>
  return (
    <>
      {none
        ? <Empty icon="bell" title={t('preferences.empty')} text={t('preferences.empty.text')}>{edit}</Empty>
        : <><PreferencesView values={load.data} /><div class="row">{edit}<Button kind="danger" reason={reason} onClick={() => void clear()}>{t('preferences.clear')}</Button></div></>}
      {editing && <Form values={load.data} write={write} onClose={(saved) => { setEditing(false); if (saved) load.reload() }} />}
    </>
  )
}

const channelNames = (channels: readonly string[]): string =>
  channels.length === 0 ? t('preferences.noChannel') : channels.map((channel) => tValue('channel', channel)).join(', ')

function PreferencesView({ values: { channels, muted_topics: topics, categories, quiet_hours: quiet } }: { values: Values }) {
  return (
    <Facts facts={[
      channels ? [t('preferences.channels'), channelNames(channels)] : undefined,
      topics?.length ? [t('preferences.topics'), <span class="chips">{topics.map((topic) => <code key={topic}>{topic}</code>)}</span>] : undefined,
      quiet ? [t('preferences.quiet'), `${quiet.from}–${quiet.to} ${quiet.timezone ?? ''}`] : undefined,
      ...Object.entries(categories ?? {}).map(([name, category]) => [name, (
        <span class="chips">
          {category.muted === true && <Badge tone="warn">{t('preferences.muted')}</Badge>}
          {category.muted === false && <Badge tone="good">{t('preferences.unmuted')}</Badge>}
          {category.channels && <span>{channelNames(category.channels)}</span>}
          {typeof category.daily_max === 'number' && <span>{t('preferences.daily', { count: category.daily_max })}</span>}
        </span>
      )] as const),
    ]} />
  )
}

interface Category { name: string; muted: boolean; daily: string }

function Form({ values, write, onClose }: { values: Values; write(values: Values): Promise<unknown>; onClose(saved: boolean): void }) {
  const [channels, setChannels] = useState<readonly (typeof CHANNELS)[number][]>(values.channels ?? CHANNELS)
  const [topics, setTopics] = useState((values.muted_topics ?? []).join('\n'))
  const [quiet, setQuiet] = useState(values.quiet_hours !== null && values.quiet_hours !== undefined)
  const [from, setFrom] = useState(values.quiet_hours?.from ?? '22:00')
  const [to, setTo] = useState(values.quiet_hours?.to ?? '07:00')
  const [timezone, setTimezone] = useState(values.quiet_hours?.timezone ?? '')
  const [categories, setCategories] = useState<readonly Category[]>(Object.entries(values.categories ?? {})
    .map(([name, { muted, daily_max }]) => ({ name, muted: muted === true, daily: daily_max?.toString() ?? '' })))
  const save = useAction(() => write({
    ...(channels.length < CHANNELS.length ? { channels: [...channels] } : {}),
    ...(topics.trim() ? { muted_topics: topics.split('\n').map((line) => line.trim()).filter(Boolean) } : {}),
    ...(quiet ? { quiet_hours: { from, to, ...(timezone.trim() ? { timezone: timezone.trim() } : {}) } } : {}),
    ...(categories.some(({ name }) => name.trim()) ? {
      categories: Object.fromEntries(categories.filter(({ name }) => name.trim()).map(({ name, muted, daily }) => [name.trim(), {
        // Channels of a category have no field here and stay as they are.
        ...(values.categories?.[name]?.channels ? { channels: values.categories[name].channels } : {}),
        ...(muted ? { muted } : values.categories?.[name]?.muted === false ? { muted: false } : {}),
        ...(daily ? { daily_max: Number(daily) } : {}),
      }])),
    } : {}),
  }))
  const amend = (index: number, change: Partial<Category>): void =>
    setCategories(categories.map((category, here) => here === index ? { ...category, ...change } : category))
  return (
    <FormDialog title={t('preferences.title')} wide submit={t('action.save')} busy={save.busy} error={save.error} onClose={() => onClose(false)} onSubmit={() => void save.run().then((done) => done && onClose(true))}>
      <Checks label={t('preferences.channels')} value={channels} onChange={setChannels} options={CHANNELS.map((value) => ({ value, label: tValue('channel', value) }))} />
      <TextArea label={t('preferences.topics')} hint={t('field.lines')} value={topics} onChange={setTopics} rows={3} mono />
      <Switch label={t('preferences.quiet')} value={quiet} onChange={setQuiet} />
      {quiet && (
        <div class="field-row">
          <TextField label={t('preferences.from')} type="time" value={from} onChange={setFrom} required />
          <TextField label={t('preferences.to')} type="time" value={to} onChange={setTo} required />
          <TextField label={t('device.timezone')} placeholder="Asia/Tokyo" value={timezone} onChange={setTimezone} />
        </div>
      )}
      <fieldset class="group">
        <legend>{t('preferences.categories')}</legend>
        {categories.map((category, index) => (
          <div class="field-row" key={index}>
            <TextField label={t('column.name')} value={category.name} onChange={(name) => amend(index, { name })} mono />
            <TextField label={t('preferences.dailyMax')} type="number" value={category.daily} onChange={(daily) => amend(index, { daily })} />
            <Switch label={t('preferences.muted')} value={category.muted} onChange={(muted) => amend(index, { muted })} />
            <Button small kind="quiet" icon="close" label={t('action.removeNamed', { name: category.name })} onClick={() => setCategories(categories.filter((_, here) => here !== index))} />
          </div>
        ))}
        <Button small icon="plus" onClick={() => setCategories([...categories, { name: '', muted: true, daily: '' }])}>{t('preferences.addCategory')}</Button>
      </fieldset>
    </FormDialog>
  )
}
