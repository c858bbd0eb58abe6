/** Topics that a device or the devices of a user subscribe to. */

import { at } from '../app/session'
import { t } from '../i18n'
import { Empty } from '../ui/empty'

export function TopicList({ topics }: { topics: readonly (readonly [topic: string, devices: number])[] }) {
  if (topics.length === 0) return <Empty icon="topic" title={t('topics.none')} text={t('topics.none.text', { request: 'PUT /v1/me/topics/TOPIC' })} />
  return (
    <>
      <p class="soft">{t('topics.stored.text')}</p>
      <ul class="hits" aria-label={t('topics.subscriptions')}>
        {topics.map(([topic, devices]) => (
          <li key={topic}>
            <a class="hit" href={at('topic', { id: topic })}>
              <span class="hit-id">{topic}</span>
              {devices > 0 && <span class="soft">{t('search.devices', { count: devices })}</span>}
            </a>
          </li>
        ))}
      </ul>
    </>
  )
}
