/// <reference types="vite/client" />
import { expect, test } from 'vitest'

import { PERMISSIONS, ROLES } from '../../src/api/permission'
import { DETAILS, OUTSIDE, PAGES } from '../../src/app/routes'
import { fill, preferred, speak, t, tValue } from '../../src/i18n'
import { en } from '../../src/i18n/en'
import { ja } from '../../src/i18n/ja'

const placeholders = (text: string): string[] => [...text.matchAll(/\{(\w+)/g)].map(([, name]) => name ?? '').sort()

test('both languages have the same keys', () => {
  expect(Object.keys(ja).sort()).toEqual(Object.keys(en).sort())
})

test.each(Object.keys(en) as (keyof typeof en)[])('%s has the same placeholders in both languages', (key) => {
  expect(placeholders(ja[key])).toEqual(placeholders(en[key]))
})

test('every message is used', () => {
  const files = import.meta.glob<string>(['../../src/**/*.{ts,tsx}', '!**/i18n/{en,ja}.ts', '!**/api/{admin,provider,session}.ts'], { query: '?raw', import: 'default', eager: true })
  const source = Object.values(files).join('\n')
  const literals = new Set([...source.matchAll(/'([\w.*-]+)'/g)].map(([, text]) => text))
  // `tValue('state', …)`, `t(`step.${…}`)`, and the helpers that pass a prefix on.
  const prefixes = [...source.matchAll(/`([\w.]+\.)\$\{|(?:tValue|value)\('([\w.]+)'/g)].map(([, template, plain]) => template ?? `${plain}.`)
  const ofLabels = ['service.', 'environment.', 'lane.']
  const isUsed = (key: string): boolean => literals.has(key) || [...prefixes, ...ofLabels].some((prefix) => key.startsWith(prefix))
  expect(Object.keys(en).filter((key) => !isUsed(key))).toEqual([])
})

test('no message is empty, and Japanese sentences end as Japanese sentences', () => {
  for (const [key, text] of [...Object.entries(en), ...Object.entries(ja)]) expect(text.trim(), key).not.toBe('')
  for (const [key, text] of Object.entries(ja)) expect(/[ぁ-ん]\.$/.test(text), key).toBe(false)
})

test('every page, permission and role has its messages', () => {
  for (const { title } of [...PAGES, ...Object.values(DETAILS), ...Object.values(OUTSIDE)]) expect(en[title]).toBeTruthy()
  for (const permission of PERMISSIONS) expect(en[`permission.${permission}`]).toBeTruthy()
  for (const role of ROLES) expect(en[`role.${role}.text`]).toBeTruthy()
})

test('numbers choose between one and other', () => {
  expect(fill('{count|device|devices}', { count: 1 }, 'en')).toBe('1 device')
  expect(fill('{count|device|devices}', { count: 12_345 }, 'en')).toBe('12,345 devices')
  expect(fill('{count} 台', { count: 12_345 }, 'ja')).toBe('12,345 台')
})

test('values are inserted as they are, and unknown placeholders stay', () => {
  expect(fill('Hello {name}', { name: '{other} $&' }, 'en')).toBe('Hello {other} $&')
  expect(fill('{missing}', {}, 'en')).toBe('{missing}')
})

test('the language changes at once', async () => {
  expect(t('page.devices')).toBe('Devices')
  await speak('ja')
  expect(t('page.devices')).toBe('デバイス')
  await speak('en')
})

test('the last choice of a language wins', async () => {
  await Promise.all([speak('ja'), speak('en')])
  expect(t('page.devices')).toBe('Devices')
})

test('values newer than the page appear as the server sent them', () => {
  expect(tValue('state', 'running')).toBe('running')
  expect(tValue('outcome', 'eaten_by_dog')).toBe('eaten by dog')
})

test('the browser chooses the language', () => {
  expect(preferred(['ja-JP', 'en'])).toBe('ja')
  expect(preferred(['de-DE', 'ja'])).toBe('ja')
  expect(preferred(['fr'])).toBe('en')
})
