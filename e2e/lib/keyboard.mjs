/** A person without a mouse: Tab until the wanted element has the focus, then type or press. */

import assert from 'node:assert/strict'

const STOPS_MAX = 120

/** What the focused element is called: its label, or its text. */
const focused = (page) => page.evaluate(() => {
  const { activeElement: at } = document
  if (!at || at === document.body) return ''
  const labelled = at.id && document.querySelector(`label[for="${CSS.escape(at.id)}"]`)
  const label = at.getAttribute('aria-label') ?? (labelled || at.closest('label') || at).textContent
  return label.trim().replaceAll(/\s+/g, ' ')
})

/** Presses Tab (`back`: Shift+Tab) until the element called `name` has the focus. */
export async function tabTo(page, name, { back = false } = {}) {
  const is = (text) => typeof name === 'string' ? text === name : name.test(text)
  const stops = []
  while (stops.length < STOPS_MAX) {
    await page.keyboard.press(back ? 'Shift+Tab' : 'Tab')
    const here = await focused(page)
    if (is(here)) return
    stops.push(here)
  }
  assert.fail(`Tab does not reach ${name}, but ${[...new Set(stops)].join(' | ')}`)
}

export async function choose(page, name, options) {
  await tabTo(page, name, options)
  await page.keyboard.press('Enter')
}

export async function write(page, name, text) {
  await tabTo(page, name)
  await page.keyboard.type(text)
}
