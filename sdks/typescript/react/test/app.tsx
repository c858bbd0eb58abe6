/** A page with every hook. */

import type { Noroshi } from '@noroshi/client'
import { InboxBell, NoroshiProvider, useConnectionState, useInbox, useMessage, usePreferences, useTopic, useUnread, useVariant } from '../src/index.js'

function Everything() {
  useMessage(() => {})
  const { state } = useConnectionState()
  const { items, status } = useInbox()
  const { unread } = useUnread()
  const { message } = useTopic('news')
  const { variant } = useVariant('checkout')
  const { values } = usePreferences()
  return <p>{[state, status, items.length, unread, message?.id, variant, JSON.stringify(values)].join(' ')}</p>
}

export const App = ({ client }: { client: Noroshi }) => (
  <NoroshiProvider client={client}>
    <InboxBell nonce="n1" />
    <Everything />
  </NoroshiProvider>
)
