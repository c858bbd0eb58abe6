/** What the compiler knows: `tsc` checks this file. */

import type { Noroshi } from '@noroshi/client'
import { expectTypeOf, test } from 'vitest'

import { subscribe, type Api, type SubscribeOptions, type WebPushErrorCode } from '../src/index.js'
import { handlePush, type WorkerOptions } from '../src/worker.js'

test('a client of @noroshi/client sends the requests; options are typed', () => {
  expectTypeOf<Noroshi<{ news: string }>>().toMatchTypeOf<Api>()
  expectTypeOf(subscribe).returns.resolves.toEqualTypeOf<PushSubscription | undefined>()
  expectTypeOf<SubscribeOptions['applicationServerKey']>().toEqualTypeOf<string | (() => string | Promise<string>)>()
  expectTypeOf<'permission_denied'>().toMatchTypeOf<WebPushErrorCode>()
  expectTypeOf(handlePush).parameter(0).toEqualTypeOf<WorkerOptions>()
  // @ts-expect-error the service's address is needed
  expectTypeOf(handlePush).toBeCallableWith({ getToken: () => 't' })
})
