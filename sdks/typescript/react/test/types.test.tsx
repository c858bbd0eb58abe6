/** What the compiler knows: `tsc` checks this file. */

import type { Item, Message, Noroshi, NoroshiError, PreferenceValues, State } from '@noroshi/client'
import { expectTypeOf, test } from 'vitest'

import { InboxBell, NoroshiProvider, useConnectionState, useInbox, useMessage, useNoroshi, usePreferences, useTopic, useUnread, useVariant } from '../src/index.js'

interface Topics {
  news: { headline: string }
}

test('hooks and components are typed', () => {
  // Never rendered: only compiled.
  const App = ({ client }: { client: Noroshi<Topics> }) => {
    expectTypeOf(useNoroshi<Topics>()).toEqualTypeOf<Noroshi<Topics>>()
    expectTypeOf(useConnectionState()).toEqualTypeOf<State>()
    expectTypeOf(useUnread().unread).toEqualTypeOf<number | undefined>()
    const { items, error, markRead } = useInbox({ state: 'unread', limit: 5 })
    expectTypeOf(items).toEqualTypeOf<readonly Item[]>()
    expectTypeOf(error).toEqualTypeOf<NoroshiError | undefined>()
    expectTypeOf(markRead).toBeCallableWith({ upTo: 'id', category: 'orders' })
    // @ts-expect-error no such state
    useInbox({ state: 'new' })
    const { message } = useTopic<Topics['news']>('news', { recover: true, onMessage: ({ data }) => expectTypeOf(data).toEqualTypeOf<Topics['news'] | undefined>() })
    expectTypeOf(message).toEqualTypeOf<Message<Topics['news']> | undefined>()
    useMessage<Topics>((message) => {
      if (message.topic === 'news') expectTypeOf(message.data).toEqualTypeOf<Topics['news'] | undefined>()
    })
    expectTypeOf(useVariant<{ colour: string }>('checkout').data).toEqualTypeOf<{ colour: string } | undefined>()
    expectTypeOf(usePreferences('user').values).toEqualTypeOf<PreferenceValues | undefined>()
    // @ts-expect-error no such owner
    usePreferences('app')
    return (
      <NoroshiProvider client={client}>
        <InboxBell theme="dark" locale="ja" texts={{ title: 'お知らせ' }} onSelect={(item, event) => (expectTypeOf(item).toEqualTypeOf<Item>(), event.preventDefault())} />
        {/* @ts-expect-error no such theme */}
        <InboxBell theme="blue" />
      </NoroshiProvider>
    )
  }
  expectTypeOf(App).toBeFunction()
})
