/** What the compiler knows: `tsc` checks this file. */

import { expectTypeOf, test } from 'vitest'

import { Noroshi, type Message } from '../src/index.js'

interface Topics {
  news: { headline: string }
  'stock/acme': number
}

test('topics and their messages are typed', () => {
  const noroshi = new Noroshi<Topics>({ url: 'http://service.test', getToken: () => 't', transports: ['sse'] })
  const news = noroshi.topic('news', { recover: true })
  news.on('message', ({ data, topic }) => {
    expectTypeOf(data).toEqualTypeOf<{ headline: string } | undefined>()
    expectTypeOf(topic).toEqualTypeOf<'news'>()
  })
  noroshi.on('message', (message) => {
    if (message.topic === 'stock/acme') expectTypeOf(message.data).toEqualTypeOf<number | undefined>()
    else if (message.topic === undefined) expectTypeOf(message.data).toEqualTypeOf<unknown>()
  })
  // @ts-expect-error the application has no such topic
  noroshi.topic('sport')
  // @ts-expect-error no such event
  noroshi.on('mesage', () => {})
  expectTypeOf(new Noroshi({ url: 'http://service.test', getToken: () => 't', transports: ['sse'] }).topic('anything').on)
    .parameter(1)
    .parameter(0)
    .toMatchTypeOf<Message | unknown>()
})
