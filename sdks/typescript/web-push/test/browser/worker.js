/** The worker as an application has it, with a record for the test. */

import { handlePush } from '@noroshi/web-push/worker'

const query = new URL(self.location.href).searchParams
self.errors = []
self.windows = []
self.closed = []
/** What Chromium has shown: `getNotifications` forgets a notification that it does not find on the screen yet. */
self.shown = []
const { registration } = self
const showNotification = registration.showNotification.bind(registration)
registration.showNotification = async (title, options) => {
  await showNotification(title, options)
  self.shown.push({ title, options })
}
self.show = undefined
// A click that is dispatched by a test is none of the user: the browser would refuse the window.
self.clients.openWindow = async (url) => void self.windows.push(url)
self.skipWaiting()
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()))

handlePush({
  url: query.get('url'),
  getToken: async () => {
    const response = await fetch(`/token?device=${query.get('device')}`, { headers: { 'x-worker': 'yes' } })
    return response.ok ? response.text() : null
  },
  defaults: { icon: '/icon.png' },
  show: (shown, message) => self.show?.(shown, message),
  onClick: (click) => (click.action === 'later' ? false : undefined),
  onError: (error) => self.errors.push(`${error.code} ${error.status ?? ''}`),
})
