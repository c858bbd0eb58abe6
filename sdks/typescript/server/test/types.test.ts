/** What the compiler knows: `tsc` checks this file. */

import { expectTypeOf, test } from 'vitest'

import { Noroshi, NoroshiError, ProblemError, type Campaign, type Device, type ErrorCode, type LineResult, type Notification, type Receipt } from '../src/index.js'

const noroshi = new Noroshi({ url: 'http://service.test', key: 'k', fetch: () => Promise.reject(new Error('no network')) })

/** Only for the compiler. */
const never = (_: () => unknown) => {}

test('requests and answers are typed', () => {
  never(async () => {
    expectTypeOf(await noroshi.publish({ to: { users: ['u1'] } })).toEqualTypeOf<Receipt>()
    expectTypeOf(await noroshi.devices.delete('d1')).toEqualTypeOf<void>()
    expectTypeOf(await noroshi.campaigns.get('c1')).toEqualTypeOf<Campaign>()
    expectTypeOf((await noroshi.presence(['u1']))['u1']!.presence).toEqualTypeOf<'active' | 'idle' | 'offline'>()
    expectTypeOf((await noroshi.notifications.get('n1')).counts.acked).toEqualTypeOf<number | undefined>()
    for await (const device of noroshi.devices.list({ user: 'u1' })) expectTypeOf(device).toEqualTypeOf<Device>()
    for await (const page of noroshi.notifications.list().pages()) expectTypeOf(page.searched_to).toEqualTypeOf<string | undefined>()
    for await (const result of noroshi.publishBatch([{ to: { topic: 'news' } }])) {
      expectTypeOf(result).toEqualTypeOf<LineResult<Notification, Receipt>>()
      if (result.ok) expectTypeOf(result.value.id).toEqualTypeOf<string>()
      else expectTypeOf(result.error).toEqualTypeOf<NoroshiError>()
    }
  })
})

test('mistakes do not compile', () => {
  never(() => {
    // @ts-expect-error an unknown field
    noroshi.publish({ to: { users: ['u1'] }, tll: '1h' })
    // @ts-expect-error no target
    noroshi.publish({ notification: { title: 'Hello' } })
    // @ts-expect-error two targets
    noroshi.publish({ to: { users: ['u1'], topic: 'news' } })
    // @ts-expect-error not an urgency
    noroshi.publish({ to: { everyone: true }, urgency: 'urgent' })
    // @ts-expect-error no such filter
    noroshi.devices.list({ name: 'd1' })
    // @ts-expect-error no such kind of push token
    noroshi.devices.pushTokens.set('d1', 'pager', { token: 't' })
    // @ts-expect-error the revision is required
    noroshi.campaigns.change('c1', { name: 'Spring' })
    // @ts-expect-error no such scope
    noroshi.app('shop').keys.create({ name: 'backend', scopes: ['everything'] })
    // @ts-expect-error an upload has users
    noroshi.campaigns.uploadRecipients('c1', [{ device: 'd1' }])
  })
})

test('codes of errors are known, and later ones are possible', () => {
  const error = new ProblemError(409, { code: 'wrong_state' })
  if (error.code === 'wrong_state') expectTypeOf(error.status).toEqualTypeOf<number>()
  expectTypeOf<'quota_exceeded'>().toMatchTypeOf<ErrorCode>()
  expectTypeOf<'http_404'>().toMatchTypeOf<ErrorCode>()
  // @ts-expect-error no such code
  expectTypeOf<'quota_exeeded'>().toMatchTypeOf<ErrorCode>()
  expectTypeOf(error.code).toMatchTypeOf<string>()
})
