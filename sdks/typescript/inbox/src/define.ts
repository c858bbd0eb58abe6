/**
 * Defines `<noroshi-inbox>`. On a server, it does nothing.
 *
 * @module
 */

import { define, NoroshiInbox, type SelectEvent } from './element.js'

if (globalThis.customElements) define()

declare global {
  interface HTMLElementTagNameMap {
    'noroshi-inbox': NoroshiInbox
  }
  interface HTMLElementEventMap {
    'noroshi-select': SelectEvent
  }
}

export { NoroshiInbox, type SelectEvent }
