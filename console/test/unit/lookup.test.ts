import { expect, test } from 'vitest'

import { kindsOf } from '../../src/pages/lookup'

test('only UUIDs can name notifications and campaigns', () => {
  expect(kindsOf('01a21d85-772b-7000-90ef-d2bdd7f1fa00')).toContain('notification')
  expect(kindsOf('01a21d85-772b-7000-90ef-d2bdd7f1fa00')).toContain('campaign')
  expect(kindsOf('alice')).not.toContain('notification')
  expect(kindsOf('alice')).toEqual(expect.arrayContaining(['user', 'device', 'topic']))
})
