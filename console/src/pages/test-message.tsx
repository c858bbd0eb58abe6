/** Sends one notification to a user or a device, to see whether it arrives. */

import { useState } from 'preact/hooks'

import { body, provider, session as api } from '../api/client'
import { useAction } from '../app/action'
import { at, can } from '../app/session'
import { t, tValue } from '../i18n'
import { Button } from '../ui/button'
import { Id } from '../ui/copy'
import { Dialog, FormDialog } from '../ui/dialog'
import { Select, TextField } from '../ui/field'

export type Recipient = { users: string[] } | { devices: string[] }

interface Props { to: Recipient; name: string; onClose(): void }

const MODES = ['never', 'fallback', 'always'] as const

export function TestMessage({ to, name, onClose }: Props) {
  const [title, setTitle] = useState(t('test.title.value'))
  const [text, setText] = useState('')
  const [mode, setMode] = useState<(typeof MODES)[number]>('fallback')
  const [sent, setSent] = useState<string | undefined>(undefined)
  const send = useAction(async () => {
    const notification = {
      to,
      when: 'stored' as const,
      ttl: '1h',
      notification: { title, ...(text ? { body: text } : {}) },
      push: mode === 'fallback' ? { mode, after: '5s' } : { mode },
    }
    // People who support users have a route of their own, for users and devices only.
    const receipt = can('publish')
      ? await body(provider.POST('/v1/notifications', { body: notification }))
      : await body(api.POST('/v1/test-notifications', { body: notification }))
    setSent(receipt.id)
  })
  if (sent) {
    return (
      <Dialog title={t('test.sent')} onClose={onClose}>
        <div class="dialog-body"><p>{t('test.sent.text')}</p><Id value={sent} /></div>
        <footer class="dialog-actions">
          <Button onClick={onClose}>{t('action.close')}</Button>
          <a class="button primary" href={at('notification', { id: sent, ...('devices' in to ? { device: to.devices[0] } : {}) })}>{t('test.open')}</a>
        </footer>
      </Dialog>
    )
  }
  return (
    <FormDialog title={t('test.heading', { name })} submit={t('test.send')} busy={send.busy} error={send.error} onClose={onClose} onSubmit={() => void send.run()}>
      <TextField label={t('test.title')} value={title} onChange={setTitle} required autofocus maxlength={200} />
      <TextField label={t('test.body')} value={text} onChange={setText} maxlength={1000} />
      <Select label={t('test.push')} value={mode} onChange={setMode} options={MODES.map((value) => ({ value, label: tValue('push.mode', value) }))} />
    </FormDialog>
  )
}
