/** What the compiler knows: `tsc` checks this file. */

import type { Item, Noroshi } from '@noroshi/client'
import { expectTypeOf, test } from 'vitest'

import '../src/define.js'
import { InboxStore, NoroshiInbox, type InboxSnapshot, type SelectEvent } from '../src/index.js'

test('the element, its event and the store are typed', () => {
  expectTypeOf<HTMLElementTagNameMap['noroshi-inbox']>().toEqualTypeOf<NoroshiInbox>()
  expectTypeOf<HTMLElementEventMap['noroshi-select']>().toEqualTypeOf<SelectEvent>()
  expectTypeOf<SelectEvent['detail']['item']>().toEqualTypeOf<Item>()
  expectTypeOf<NoroshiInbox['client']>().toEqualTypeOf<Noroshi<any> | undefined>()
  expectTypeOf<ReturnType<InboxStore['getSnapshot']>>().toEqualTypeOf<InboxSnapshot>()
  expectTypeOf<InboxStore['markRead']>().toBeCallableWith(['a', 'b'])
  // @ts-expect-error a client is needed
  expectTypeOf(InboxStore).toBeConstructibleWith({ limit: 5 })
})
