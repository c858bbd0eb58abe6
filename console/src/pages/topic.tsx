/** One topic: subscribers, position, retained message. */

import { body, provider } from '../api/client'
import { perform } from '../app/action'
import { number } from '../app/format'
import { useLoad } from '../app/load'
import { place } from '../app/router'
import { app, at, refusal } from '../app/session'
import { t } from '../i18n'
import { ask } from '../ui/ask'
import { Button } from '../ui/button'
import { CodeBlock } from '../ui/code'
import { Id } from '../ui/copy'
import { Empty } from '../ui/empty'
import { ErrorBox } from '../ui/error'
import { Facts } from '../ui/facts'
import { Head, Section } from '../ui/head'
import { Skeleton } from '../ui/skeleton'
import { When } from '../ui/when'
import { LiveLink } from './live-link'

const REFRESH_MS = 5000

export default function Topic() {
  const topic = place.value.query.get('id') ?? ''
  const params = { params: { path: { topic } } }
  const load = useLoad(`topic ${app.value} ${topic}`, async () => {
    const state = await body(provider.GET('/v1/topics/{topic}', params))
    const message = state.retained ? await body(provider.GET('/v1/topics/{topic}/retained', params)) : undefined
    return { state, message }
  }, REFRESH_MS)

  async function remove(): Promise<void> {
    if (!(await ask({ title: t('topics.deleteRetained'), text: t('topics.deleteRetained.text'), confirm: t('action.delete') }))) return
    if (await perform(() => provider.DELETE('/v1/topics/{topic}/retained', params), t('topics.retainedDeleted'))) load.reload()
  }

  const { state, message } = load.data ?? {}
  return (
    <>
      <Head kind={t('kind.topic')} title={topic}><LiveLink topic={topic} /></Head>
      <ErrorBox error={load.error} retry={load.reload} />
      {!state && !load.error && <Skeleton rows={4} />}
      {state && (
        <Facts facts={[
          [t('topics.subscribers'), number(state.subscribers)],
          [t('topics.connected'), number(state.connected)],
          [t('topics.log'), number(state.log)],
          [t('topics.offset'), number(state.offset)],
          [t('topics.epoch'), state.epoch && <Id value={state.epoch} />],
          [t('page.notifications'), <a href={at('notifications', { topic })}>{t('notifications.ofTopic')}</a>],
        ]} />
      )}
      {state && (
        <Section title={t('topics.retained')} actions={message && <Button small kind="danger" reason={refusal('publish')} onClick={() => void remove()}>{t('topics.deleteRetained')}</Button>}>
          {message
            ? <><p class="soft"><When at={message.sent_at} exact /> · <a href={at('notification', { id: message.id })}>{message.id}</a></p><CodeBlock label={t('topics.retained')} value={message} /></>
            : <Empty icon="topic" title={t('topics.noRetained')} text={t('topics.noRetained.text')} />}
        </Section>
      )}
    </>
  )
}
