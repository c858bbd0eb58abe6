/**
 * Client of Noroshi for browsers and Node.js.
 *
 * `Noroshi` is the whole client. `Connection` is the connection alone, for small bundles.
 *
 * @module
 */

export { Connection, type ConnectionEvents, type ConnectionOptions, type State, type SubscribeOptions } from './connection.js'
export { Emitter, type Listener, type ListenOptions } from './emitter.js'
export { NoroshiError, ProblemError, type ClientErrorCode } from './error.js'
export type { RequestOptions } from './http.js'
export { Inbox, type Changed, type Item, type ListOptions, type Page, type Which } from './inbox.js'
export {
  Noroshi,
  Preferences,
  Topic,
  type AnyMessage,
  type ApiRequest,
  type Channel,
  type Me,
  type NoroshiEvents,
  type NoroshiOptions,
  type PreferenceValues,
  type TopicEvents,
  type TopicName,
  type Variant,
} from './noroshi.js'
export type { ReportStorage } from './outbox.js'
export type { CloseReason, Counts, ItemsChange, Message, Notification, Position, Recovered } from './protocol.js'
export type { Runtime, WebSocketLike } from './runtime.js'
export type { GetToken, TokenRequest } from './token.js'
