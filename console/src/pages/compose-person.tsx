/** A real person, whose language and values the preview shows, and to whom a test is sent. */

import { useState } from 'preact/hooks'

import { body, provider, type Schemas } from '../api/client'
import { isMissing } from '../api/error'
import { useAction } from '../app/action'
import { at, refusal } from '../app/session'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { ErrorBox } from '../ui/error'
import { Select, TextField } from '../ui/field'
import { Section } from '../ui/head'
import { type Draft, fill, wordsFor } from './draft'

export interface Viewer {
  user: string
  devices: Schemas['Device'][]
  device: Schemas['Device'] | undefined
  variables: Readonly<Record<string, string>>
  /** The user is among the uploaded recipients. */
  uploaded: boolean
}

interface Props { draft: Draft; id: string | undefined; viewer: Viewer | undefined; choose(viewer: Viewer | undefined): void }

const DEVICES_MAX = 50

export function PersonValues({ draft, id, viewer, choose }: Props) {
  const [user, setUser] = useState('')
  const [sent, setSent] = useState<string | undefined>(undefined)
  const find = useAction(async () => {
    setSent(undefined)
    const { devices } = await body(provider.GET('/v1/devices', { params: { query: { user: user.trim(), limit: DEVICES_MAX } } }))
    const line = id && draft.whom === 'upload' ? await recipient(id, user.trim()) : undefined
    choose({ user: user.trim(), devices, device: devices[0], variables: line?.variables ?? {}, uploaded: line !== undefined })
  })
  const test = useAction(async () => {
    if (!viewer) return
    const { title, text } = rendered(draft, viewer)
    const receipt = await body(provider.POST('/v1/notifications', {
      body: {
        to: viewer.device ? { devices: [viewer.device.device] } : { users: [viewer.user] },
        when: 'stored',
        ttl: '1h',
        notification: { title, ...(text ? { body: text } : {}), ...(draft.url ? { url: draft.url } : {}) },
        push: { mode: 'always' },
      },
    }))
    setSent(receipt.id)
  })
  return (
    <Section title={t('compose.person')}>
      <p class="hint">{t('compose.personHint')}</p>
      <form class="row align-end" onSubmit={(event) => { event.preventDefault(); if (user.trim()) void find.run() }}>
        <TextField label={t('compose.personUser')} value={user} onChange={setUser} mono />
        <Button type="submit" busy={find.busy}>{t('compose.personShow')}</Button>
        {viewer && <Button kind="quiet" onClick={() => { choose(undefined); setSent(undefined) }}>{t('compose.personClear')}</Button>}
      </form>
      <ErrorBox error={find.error ?? test.error} />
      {viewer && viewer.devices.length === 0 && <p class="soft" role="status">{t('compose.personNone', { user: viewer.user })}</p>}
      {viewer && viewer.devices.length > 0 && (
        <>
          <Select
            label={t('kind.device')}
            value={viewer.device?.device ?? ''}
            onChange={(device) => choose({ ...viewer, device: viewer.devices.find((one) => one.device === device) })}
            options={viewer.devices.map((one) => ({ value: one.device, label: [one.device, one.platform, one.locale, one.timezone].filter(Boolean).join(' · ') }))}
          />
          {draft.whom === 'upload' && !viewer.uploaded && <p class="soft">{t('compose.personNotUploaded')}</p>}
          <div class="row">
            <Button icon="send" busy={test.busy} reason={refusal('publish') ?? (draft.title ? undefined : t('compose.noTitle'))} onClick={() => void test.run()}>{t('compose.test', { device: viewer.device?.device ?? viewer.user })}</Button>
            <span role="status">{sent && <a href={at('notification', { id: sent, device: viewer.device?.device })}>{t('compose.tested')}</a>}</span>
          </div>
        </>
      )}
    </Section>
  )
}

async function recipient(id: string, user: string): Promise<Schemas['CampaignRecipient'] | undefined> {
  try {
    return await body(provider.GET('/v1/campaigns/{id}/recipients/{user}', { params: { path: { id, user } } }))
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

/** What this person would see. */
export function rendered(draft: Draft, viewer: Viewer | undefined): { title: string; text: string } {
  const words = wordsFor(draft, viewer?.device?.locale)
  const own = viewer?.variables ?? {}
  return { title: fill(words.title, own, draft.variables), text: fill(words.text, own, draft.variables) }
}
