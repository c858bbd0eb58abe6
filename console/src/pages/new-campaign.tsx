/** A new campaign as a draft: audience, message, languages, schedule, with a count of recipients before it is saved. */

import { useState } from 'preact/hooks'

import { body, provider, type Schemas } from '../api/client'
import { useAction } from '../app/action'
import { number } from '../app/format'
import { go } from '../app/router'
import { at, refusal } from '../app/session'
import { t, tValue } from '../i18n'
import { Button } from '../ui/button'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Checks, Select, Switch, TextArea, TextField } from '../ui/field'
import { Head, Section } from '../ui/head'
import { type Draft, EMPTY, PLATFORMS, toCampaign, WHOM } from './draft'
import { Preview } from './preview'

export default function NewCampaign() {
  const [draft, setDraft] = useState(EMPTY)
  const [count, setCount] = useState<Schemas['CampaignCount'] | undefined>(undefined)
  const set = (change: Partial<Draft>): void => {
    setDraft({ ...draft, ...change })
    setCount(undefined)
  }
  const estimate = useAction(async () => {
    setCount(await body(provider.POST('/v1/campaigns', { params: { query: { dry_run: true } }, body: toCampaign(draft) })) as Schemas['CampaignCount'])
  })
  const save = useAction(async () => {
    const campaign = await body(provider.POST('/v1/campaigns', { body: toCampaign(draft) })) as Schemas['Campaign']
    go(at('campaign', { id: campaign.id }), 'replace')
  })
  const reason = refusal('publish')
  return (
    <>
      <Head kind={t('kind.campaign')} title={t('campaigns.new')} text={t('compose.lead')} />
      <form class="compose" onSubmit={(event) => { event.preventDefault(); if (!reason) void save.run() }}>
        <div class="compose-fields">
          <Audience draft={draft} set={set} />
          <Message draft={draft} set={set} />
          <Schedule draft={draft} set={set} />
          <ErrorBox error={estimate.error ?? save.error} />
          <div class="row">
            <Button busy={estimate.busy} reason={reason ?? (draft.whom === 'upload' ? t('compose.uploadLater') : undefined)} onClick={() => void estimate.run()}>{t('compose.estimate')}</Button>
            <Button type="submit" kind="primary" busy={save.busy} reason={reason}>{t('compose.save')}</Button>
          </div>
          {count && <Count count={count} />}
        </div>
        <aside class="compose-preview" aria-label={t('preview.title')}>
          <Preview title={draft.title} text={draft.text} />
        </aside>
      </form>
    </>
  )
}

interface PartProps { draft: Draft; set(change: Partial<Draft>): void }

function Audience({ draft, set }: PartProps) {
  return (
    <Section title={t('campaign.audience')}>
      <TextField label={t('compose.name')} hint={t('compose.nameHint')} value={draft.name} onChange={(name) => set({ name })} />
      <Select label={t('compose.whom')} value={draft.whom} onChange={(whom) => set({ whom })} options={WHOM.map((value) => ({ value, label: tValue('compose.whom', value) }))} />
      {draft.whom === 'topic' && <TextField label={t('kind.topic')} value={draft.topic} onChange={(topic) => set({ topic })} required mono />}
      {draft.whom === 'condition' && <TextField label={t('experiments.condition')} hint={t('experiments.conditionHint')} value={draft.condition} onChange={(condition) => set({ condition })} required mono />}
      {draft.whom !== 'upload' && <Checks label={t('compose.platforms')} value={draft.platforms} onChange={(platforms) => set({ platforms })} options={PLATFORMS.map((value) => ({ value, label: tValue('platform', value) }))} />}
    </Section>
  )
}

function Message({ draft, set }: PartProps) {
  const amend = (index: number, change: Partial<Draft['translations'][number]>): void =>
    set({ translations: draft.translations.map((one, here) => here === index ? { ...one, ...change } : one) })
  return (
    <Section title={t('campaign.message')}>
      <TextField label={t('test.title')} value={draft.title} onChange={(title) => set({ title })} required />
      <TextArea label={t('test.body')} hint={t('compose.variables', { example: '{{name}}' })} value={draft.text} onChange={(text) => set({ text })} rows={3} />
      <TextField label={t('compose.url')} type="url" hint={t('field.optional')} value={draft.url} onChange={(url) => set({ url })} />
      {draft.translations.map((one, index) => (
        <div class="field-row" key={index}>
          <TextField label={t('notices.locale')} placeholder="ja" value={one.locale} onChange={(locale) => amend(index, { locale })} mono required />
          <TextField label={t('test.title')} value={one.title} onChange={(title) => amend(index, { title })} required />
          <TextField label={t('test.body')} value={one.text} onChange={(text) => amend(index, { text })} />
          <Button small kind="quiet" icon="close" label={t('action.removeNamed', { name: one.locale })} onClick={() => set({ translations: draft.translations.filter((_, here) => here !== index) })} />
        </div>
      ))}
      <div class="row"><Button small icon="plus" onClick={() => set({ translations: [...draft.translations, { locale: '', title: '', text: '' }] })}>{t('notices.addLocale')}</Button></div>
    </Section>
  )
}

function Schedule({ draft, set }: PartProps) {
  return (
    <Section title={t('campaign.plan')}>
      <div class="field-row">
        <TextField label={t('campaign.startAt')} type="datetime-local" hint={t('field.now')} value={draft.startAt} onChange={(startAt) => set({ startAt })} />
        <TextField label={t('campaign.localTime')} type="time" hint={t('compose.localTimeHint')} value={draft.localTime} onChange={(localTime) => set({ localTime })} />
        <TextField label={t('campaign.rateMax')} type="number" hint={t('compose.rateHint')} value={draft.rate} onChange={(rate) => set({ rate })} />
      </div>
      <Switch label={t('preferences.quiet')} hint={t('compose.quietHint')} value={draft.quiet} onChange={(quiet) => set({ quiet })} />
      {draft.quiet && (
        <div class="field-row">
          <TextField label={t('preferences.from')} type="time" value={draft.quietFrom} onChange={(quietFrom) => set({ quietFrom })} required />
          <TextField label={t('preferences.to')} type="time" value={draft.quietTo} onChange={(quietTo) => set({ quietTo })} required />
        </div>
      )}
    </Section>
  )
}

function Count({ count }: { count: Schemas['CampaignCount'] }) {
  return (
    <div class="panel" role="status">
      <Facts facts={[
        [t('page.devices'), <strong>{number(count.devices)}</strong>],
        count.users !== null && [t('compose.users'), number(count.users)],
        [t('compose.noToken'), number(count.no_push_token)],
        [t('device.suspect'), number(count.suspect)],
        [t('compose.filtered'), number(count.filtered)],
        ...Object.entries(count.by_service).map(([service, devices]) => [tValue('service', service), number(devices)] as const),
        ...(count.warnings ?? []).map(({ service, field, warning }) => [`${t('campaign.warning')}: ${tValue('service', service)} ${field}`, warning] as const),
      ]} />
    </div>
  )
}
