import { expect, test } from 'vitest'

import { EMPTY, toCampaign } from '../../src/pages/draft'

test('a draft never starts, and empty fields are absent', () => {
  expect(toCampaign({ ...EMPTY, title: 'Hello' })).toEqual({
    audience: { everyone: true }, message: { notification: { title: 'Hello' } }, start: false,
  })
})

test('audience, languages and schedule', () => {
  const draft = {
    ...EMPTY, name: 'Sale', whom: 'topic' as const, topic: 'news', platforms: ['ios' as const], title: 'Sale', text: '20 %',
    translations: [{ locale: 'ja', title: 'セール', text: '' }, { locale: '', title: 'ignored', text: '' }],
    localTime: '09:00', quiet: true, rate: '500',
  }
  expect(toCampaign(draft)).toEqual({
    name: 'Sale',
    audience: { topic: 'news', devices: { platforms: ['ios'] } },
    message: { notification: { title: 'Sale', body: '20 %' } },
    locales: { ja: { notification: { title: 'セール' } } },
    local_time: '09:00', quiet_hours: { from: '22:00', to: '08:00' }, rate_per_second: 500,
    start: false,
  })
})
