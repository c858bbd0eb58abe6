import { Noroshi } from '@noroshi/client'
import { InboxBell, NoroshiProvider } from '@noroshi/react'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'

import { options, page } from './page.js'

const client = page(new Noroshi(options))
createRoot(document.querySelector('#bell')!).render(
  <StrictMode>
    <NoroshiProvider client={client} connect={false}>
      <InboxBell
        theme={page.theme}
        locale={page.locale}
        limit={page.limit}
        onSelect={(item, event) => {
          page.selected.push(item.notification?.title)
          if (page.prevents) event.preventDefault()
        }}
      />
    </NoroshiProvider>
  </StrictMode>,
)
