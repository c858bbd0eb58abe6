/** Creates an app, and what people see before the first one exists. */

import { useState } from 'preact/hooks'

import { admin } from '../api/client'
import { useAction } from '../app/action'
import { address, go } from '../app/router'
import { loadSession, refusalEverywhere } from '../app/session'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { Empty } from '../ui/empty'
import { TextField } from '../ui/field'
import { Head } from '../ui/head'

export default function NoApp() {
  const [creating, setCreating] = useState(false)
  return (
    <>
      <Head title={t('shell.noApp')} />
      <Empty icon="settings" title={t('settings.first')} text={t('settings.first.text')}>
        <Button kind="primary" icon="plus" reason={refusalEverywhere('own')} onClick={() => setCreating(true)}>{t('settings.create')}</Button>
      </Empty>
      {creating && <NewApp onClose={() => setCreating(false)} />}
    </>
  )
}

export function NewApp({ onClose }: { onClose(): void }) {
  const [name, setName] = useState('')
  const create = useAction(async () => {
    await admin.POST('/v1/apps', { body: { name } })
    await loadSession()
    go(address('keys', { app: name }))
  })
  return (
    <FormDialog title={t('settings.create')} submit={t('settings.create')} busy={create.busy} error={create.error} onClose={onClose} onSubmit={() => void create.run()}>
      <TextField label={t('column.name')} hint={t('settings.createHint')} value={name} onChange={setName} required mono autofocus />
    </FormDialog>
  )
}
