/**
 * The notification centre of Noroshi without a framework.
 *
 * `@noroshi/inbox/define` defines the custom element `<noroshi-inbox>`; `InboxStore` is the list alone, for views of your own.
 *
 * @module
 */

export { define, NoroshiInbox, type SelectEvent } from './element.js'
export { InboxStore, type InboxOptions, type InboxSnapshot } from './store.js'
export { en, ja, type Texts } from './texts.js'
