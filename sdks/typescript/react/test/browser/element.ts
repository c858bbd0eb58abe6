import { Noroshi } from '@noroshi/client'
import '@noroshi/inbox/define'

import { options, page } from './page.js'

const element = document.createElement('noroshi-inbox')
element.setAttribute('theme', page.theme)
element.setAttribute('locale', page.locale)
element.setAttribute('limit', String(page.limit))
element.addEventListener('noroshi-select', (event) => {
  page.selected.push(event.detail.item.notification?.title)
  if (page.prevents) event.preventDefault()
})
element.client = page(new Noroshi(options))
document.querySelector('#bell')!.append(element)
