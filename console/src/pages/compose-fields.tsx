/** The first three steps of the composer: audience, message in all languages, schedule. */

import { useState } from 'preact/hooks'

import { t, tValue } from '../i18n'
import { Button } from '../ui/button'
import { Checks, Select, Switch, TextArea, TextField } from '../ui/field'
import { Section } from '../ui/head'
import { type Draft, PLATFORMS, placeholders, valueOf, WHOM } from './draft'

export interface PartProps { draft: Draft; set(change: Partial<Draft>): void }

export function AudienceFields({ draft, set }: PartProps) {
  return (
    <Section title={t('campaign.audience')}>
      <TextField label={t('compose.name')} hint={t('compose.nameHint')} value={draft.name} onChange={(name) => set({ name })} maxlength={255} />
      <Select label={t('compose.whom')} value={draft.whom} onChange={(whom) => set({ whom })} options={WHOM.map((value) => ({ value, label: tValue('compose.whom', value) }))} />
      {draft.whom === 'topic' && <TextField label={t('kind.topic')} value={draft.topic} onChange={(topic) => set({ topic })} required mono />}
      {draft.whom === 'condition' && <TextField label={t('experiments.condition')} hint={t('experiments.conditionHint')} value={draft.condition} onChange={(condition) => set({ condition })} required mono />}
      {draft.whom === 'upload' && <p class="hint">{t('compose.uploadHint')}</p>}
      {draft.whom !== 'upload' && <Checks label={t('compose.platforms')} value={draft.platforms} onChange={(platforms) => set({ platforms })} options={PLATFORMS.map((value) => ({ value, label: tValue('platform', value) }))} />}
    </Section>
  )
}

export function MessageFields({ draft, set }: PartProps) {
  const [locale, setLocale] = useState('')
  const amend = (index: number, change: Partial<Draft['translations'][number]>): void =>
    set({ translations: draft.translations.map((one, here) => here === index ? { ...one, ...change } : one) })
  const add = (): void => {
    const tag = locale.trim()
    if (!tag || draft.translations.some((one) => one.locale === tag)) return
    set({ translations: [...draft.translations, { locale: tag, title: '', text: '' }] })
    setLocale('')
  }
  const names = placeholders(draft)
  return (
    <Section title={t('campaign.message')}>
      <div class="languages">
        <fieldset class="language">
          <legend>{t('compose.base')}</legend>
          <TextField label={t('test.title')} value={draft.title} onChange={(title) => set({ title })} required />
          <TextArea label={t('test.body')} value={draft.text} onChange={(text) => set({ text })} rows={3} />
        </fieldset>
        {draft.translations.map((one, index) => (
          <fieldset class="language" key={one.locale}>
            <legend><code>{one.locale}</code></legend>
            <TextField label={`${t('test.title')} (${one.locale})`} placeholder={draft.title} value={one.title} onChange={(title) => amend(index, { title })} />
            <TextArea label={`${t('test.body')} (${one.locale})`} value={one.text} onChange={(text) => amend(index, { text })} rows={3} />
            <Button small kind="quiet" icon="close" onClick={() => set({ translations: draft.translations.filter((_, here) => here !== index) })}>{t('action.removeNamed', { name: one.locale })}</Button>
          </fieldset>
        ))}
      </div>
      <div class="row align-end">
        <TextField label={t('notices.locale')} placeholder="ja" value={locale} onChange={setLocale} mono />
        <Button icon="plus" onClick={add}>{t('notices.addLocale')}</Button>
      </div>
      <TextField label={t('compose.url')} type="url" hint={t('field.optional')} value={draft.url} onChange={(url) => set({ url })} />
      <p class="hint">{t('compose.variables', { example: '{{name}}' })}</p>
      {names.length > 0 && (
        <fieldset class="language">
          <legend>{t('compose.defaults')}</legend>
          <p class="hint">{draft.whom === 'upload' ? t('compose.defaultsUpload') : t('compose.defaultsHint')}</p>
          {names.map((name) => (
            <TextField key={name} label={name} value={valueOf(draft.variables, name) ?? ''} onChange={(value) => set({ variables: { ...draft.variables, [name]: value } })} required={draft.whom !== 'upload'} />
          ))}
        </fieldset>
      )}
    </Section>
  )
}

export function ScheduleFields({ draft, set }: PartProps) {
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
