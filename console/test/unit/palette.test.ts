import { expect, test } from 'vitest'

import { best, score } from '../../src/app/match'
import { PAGES } from '../../src/app/routes'
import { handleKey } from '../../src/app/shortcut'

const find = (typed: string): string[] => best(['Push credentials', 'Campaigns', 'Topic rules', 'Topics', 'API keys'], (text) => text, typed)

test('the beginning of the text comes first, then the beginning of a word', () => {
  expect(find('top')).toEqual(['Topic rules', 'Topics'])
  expect(find('keys')).toEqual(['API keys'])
  expect(find('cred')).toEqual(['Push credentials'])
})

test('letters in order are enough', () => {
  expect(find('cmpg')).toEqual(['Campaigns'])
  expect(score('Campaigns', 'xyz')).toBe(0)
})

test('nothing typed keeps everything in its order', () => {
  expect(find('')).toHaveLength(5)
  expect(find('')[0]).toBe('Push credentials')
})

function keyboard() {
  const done: string[] = []
  const state = { g: -Infinity }
  const commands = { search: () => done.push('search'), palette: () => done.push('palette'), help: () => done.push('help'), open: (page: string) => done.push(page) }
  const press = (key: string, timeStamp: number, ctrlKey = false): boolean => handleKey({ key, timeStamp, ctrlKey, metaKey: false, altKey: false }, state, commands)
  return { done, press }
}

test('every page has its own key', () => {
  expect(new Set(PAGES.map(({ key }) => key)).size).toBe(PAGES.length)
})

test('g and a letter open a page, unless too much time passes', () => {
  const { done, press } = keyboard()
  press('g', 0)
  press('c', 500)
  press('g', 10_000)
  press('c', 12_000)
  expect(done).toEqual(['campaigns'])
})

test('slash, question mark and Ctrl+K have their commands; other keys stay with the browser', () => {
  const { done, press } = keyboard()
  expect([press('/', 0), press('?', 1), press('k', 2, true)]).toEqual([true, true, true])
  expect([press('x', 3), press('f', 4, true)]).toEqual([false, false])
  expect(done).toEqual(['search', 'help', 'palette'])
})
