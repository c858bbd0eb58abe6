/**
 * The parser of declarative push messages, written from the W3C Push API ("declarative push message") and the Notifications
 * API ("create a notification"), for a page of the given origin. Returns `{notification, appBadge, mutable, complaints}`,
 * or null if a browser would hand the payload to the service worker.
 *
 * `complaints` lists members of a wrong type. The specification ignores them, but WebKit rejects the whole message.
 */

const isMap = (value) => typeof value === 'object' && value !== null && !Array.isArray(value)
const isString = (value) => typeof value === 'string'
const isBoolean = (value) => typeof value === 'boolean'
const isUnsigned = (value) => Number.isInteger(value) && value >= 0
const isDirection = (value) => ['auto', 'ltr', 'rtl'].includes(value)

/** The members of `NotificationOptions` with their names in a push message. */
const OPTIONS = {
  dir: isDirection,
  lang: isString,
  body: isString,
  tag: isString,
  image: isString,
  icon: isString,
  badge: isString,
  vibrate: (value) => Array.isArray(value) && value.every(isUnsigned),
  timestamp: isUnsigned,
  renotify: isBoolean,
  silent: isBoolean,
  require_interaction: isBoolean,
}

export function parseDeclarative(bytes, baseUrl) {
  let message
  try {
    message = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch {
    return null
  }
  if (!isMap(message) || message.web_push !== 8030 || !isMap(message.notification)) return null
  const input = message.notification
  // Required. WebKit also rejects an empty title.
  if (!isString(input.title) || input.title === '' || !isString(input.navigate)) return null
  const complaints = []
  const notification = { title: input.title, navigate: url(input.navigate, baseUrl) }
  if (notification.navigate === null) return null
  for (const [name, is] of Object.entries(OPTIONS)) {
    if (!(name in input)) continue
    if (is(input[name])) notification[name] = input[name]
    else complaints.push(name)
  }
  for (const name of ['image', 'icon', 'badge']) {
    if (name in notification && url(notification[name], baseUrl) === null) complaints.push(name)
  }
  if ('data' in input) notification.data = input.data
  if ('actions' in input) {
    if (!Array.isArray(input.actions)) return null
    notification.actions = []
    for (const action of input.actions) {
      if (!isMap(action) || !isString(action.action) || !isString(action.title) || !isString(action.navigate)) return null
      const navigate = url(action.navigate, baseUrl)
      if (navigate === null) return null
      notification.actions.push({ action: action.action, title: action.title, navigate })
    }
  }
  // Throws a TypeError in "create a notification".
  if (notification.silent === true && 'vibrate' in notification) return null
  const appBadge = isUnsigned(message.app_badge) ? message.app_badge : null
  if ('app_badge' in message && appBadge === null) complaints.push('app_badge')
  const mutable = isBoolean(message.mutable) ? message.mutable : false
  if ('mutable' in message && !isBoolean(message.mutable)) complaints.push('mutable')
  // Safari 18.4 looks for both inside the notification.
  if ('app_badge' in input && input.app_badge !== message.app_badge) complaints.push('notification.app_badge')
  if ('mutable' in input && input.mutable !== message.mutable) complaints.push('notification.mutable')
  return { notification, appBadge, mutable, complaints }
}

/** The URL parser of the URL Standard; null is its failure. */
function url(text, base) {
  try {
    return new URL(text, base).href
  } catch {
    return null
  }
}
