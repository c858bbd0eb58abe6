/** Creates or changes a maintenance notice. */

import { useState } from 'preact/hooks'

import { admin, type Schemas } from '../api/client'
import { useAction } from '../app/action'
import { fromInput, toInput } from '../app/local-time'
import { zone } from '../app/format'
import { t } from '../i18n'
import { Button } from '../ui/button'
import { FormDialog } from '../ui/dialog'
import { TextField } from '../ui/field'

type Shown = Schemas['Shown']
interface Translation { locale: string; title: string; text: string }

interface Props { app: string; notice: Schemas['Notice'] | undefined; onClose(saved: boolean): void }

export function NoticeForm({ app, notice, onClose }: Props) {
  const shown = notice?.notification as Shown | undefined
  const [name, setName] = useState(notice?.name ?? '')
  const [title, setTitle] = useState(shown?.title ?? '')
  const [text, setText] = useState(shown?.body ?? '')
  const [announced, setAnnounced] = useState(toInput(notice?.announced_at))
  const [starts, setStarts] = useState(toInput(notice?.starts_at))
  const [ends, setEnds] = useState(toInput(notice?.ends_at))
  const [translations, setTranslations] = useState<readonly Translation[]>(Object.entries(notice?.locales ?? {}).map(([locale, { notification }]) => {
    const own = notification as Shown | undefined
    return { locale, title: own?.title ?? '', text: own?.body ?? '' }
  }))
  const amend = (index: number, change: Partial<Translation>): void =>
    setTranslations(translations.map((translation, here) => here === index ? { ...translation, ...change } : translation))

  const save = useAction(async () => {
    const announcedAt = fromInput(announced)
    const locales = Object.fromEntries(translations.filter(({ locale }) => locale.trim()).map((one) => [one.locale.trim(), {
      ...notice?.locales[one.locale],
      notification: { ...(notice?.locales[one.locale]?.notification as Shown | undefined), title: one.title, body: one.text },
    }]))
    await admin.PUT('/v1/apps/{app}/notices/{name}', {
      params: { path: { app, name } },
      body: {
        starts_at: fromInput(starts) ?? '',
        ends_at: fromInput(ends) ?? '',
        ...(announcedAt ? { announced_at: announcedAt } : {}),
        notification: { ...shown, title, body: text },
        ...(notice?.data === undefined ? {} : { data: notice.data }),
        ...(translations.length > 0 ? { locales } : {}),
      },
    })
  })
  return (
    <FormDialog title={notice ? t('notices.change') : t('notices.new')} wide submit={t('action.save')} busy={save.busy} error={save.error} onClose={() => onClose(false)} onSubmit={() => void save.run().then((done) => done && onClose(true))}>
      {!notice && <TextField label={t('column.name')} hint={t('notices.nameHint')} value={name} onChange={setName} required mono autofocus />}
      <TextField label={t('test.title')} value={title} onChange={setTitle} required />
      <TextField label={t('test.body')} value={text} onChange={setText} />
      <div class="field-row">
        <TextField label={t('notices.announced')} type="datetime-local" hint={t('field.now')} value={announced} onChange={setAnnounced} />
        <TextField label={t('notices.starts')} type="datetime-local" hint={t('field.zone', { zone: zone() })} value={starts} onChange={setStarts} required />
        <TextField label={t('notices.ends')} type="datetime-local" hint={t('field.zone', { zone: zone() })} value={ends} onChange={setEnds} required />
      </div>
      <fieldset class="group">
        <legend>{t('notices.translations')}</legend>
        {translations.map((translation, index) => (
          <div class="field-row" key={index}>
            <TextField label={t('notices.locale')} placeholder="ja" value={translation.locale} onChange={(locale) => amend(index, { locale })} mono />
            <TextField label={t('test.title')} value={translation.title} onChange={(value) => amend(index, { title: value })} />
            <TextField label={t('test.body')} value={translation.text} onChange={(value) => amend(index, { text: value })} />
            <Button small kind="quiet" icon="close" label={t('action.removeNamed', { name: translation.locale })} onClick={() => setTranslations(translations.filter((_, here) => here !== index))} />
          </div>
        ))}
        <Button small icon="plus" onClick={() => setTranslations([...translations, { locale: '', title: '', text: '' }])}>{t('notices.addLocale')}</Button>
      </fieldset>
    </FormDialog>
  )
}
