/** @vitest-environment node */
/** Rendering on a server, where there is no window; and the same in a browser without a mismatch. */

import assert from 'node:assert/strict'
import { renderToString } from 'react-dom/server'
import { test } from 'vitest'

import { Service } from '../../inbox/test/service.js'
import { App } from './app.js'

test('renderToString needs no window, and sends nothing', async () => {
  assert.equal(typeof window, 'undefined')
  const service = new Service()
  service.add(3)
  const html = renderToString(<App client={service.client()} />)
  assert.match(html, /aria-label="Notifications"/)
  assert.match(html, /idle/)
  assert.match(html, /<style nonce="n1">[^<]*\.noroshi-inbox \{/)
  assert.ok(!html.includes('&amp;'), 'the style sheet is not escaped')
  await new Promise((resolve) => setTimeout(resolve, 50))
  assert.deepEqual(service.requests, [])
})
