/** @vitest-environment happy-dom */
/** The page of a server becomes alive without a mismatch. */

import assert from 'node:assert/strict'
import { renderToString } from 'react-dom/server'
import { test } from 'vitest'

import { Service } from '../../inbox/test/service.js'
import { App } from './app.js'
import { mount } from './mount.js'

test('hydration reports no mismatch, also if the client is connected already', async () => {
  const service = new Service()
  service.add(3)
  service.routes['GET /v1/me/preferences'] = () => ({})
  const html = renderToString(<App client={service.client()} />)
  const client = service.client()
  client.connect()
  await new Promise((resolve) => setTimeout(resolve, 50))
  const { text, complaints, unmount } = await mount(<App client={client} />, { html: html.replace(/ nonce="n1"/, ' nonce=""'), strict: false })
  assert.deepEqual(complaints, [])
  assert.match(text()!, /connected ready 3 3/)
  await unmount()
  client.close()
})
