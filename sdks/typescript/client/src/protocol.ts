/** Frames of the protocol `noroshi.v1` and the reasons for which a connection ends. */

/** The place of a message in the log of its topic. */
export interface Position {
  epoch: string
  offset: number
}

/** A message from a provider. */
export interface Message<Data = unknown> {
  id: string
  notification?: Notification
  data?: Data
  /** RFC 3339, by the clock of the service. */
  sent_at: string
  topic?: string
  epoch?: string
  offset?: number
  /** The service stores the message until the device acknowledges it. */
  ack?: true
}

/** The visible part of a message. Providers may add fields. */
export interface Notification {
  title?: string
  body?: string
  image?: string
  url?: string
  [field: string]: unknown
}

/** Unread items of the user, in all and by category. */
export interface Counts {
  unread: number
  categories: Record<string, number>
}

/** Items of the user's notification centre changed. */
export interface ItemsChange extends Counts {
  event: 'added' | 'read' | 'unread' | 'archived' | 'unarchived' | 'deleted' | (string & {})
  /** At most 100. */
  ids: string[]
  /** Other items changed too: list them again. */
  more?: true
}

/** Everything that was missed on a topic has arrived, except what `complete` denies. */
export interface Recovered {
  topic: string
  /** `false`: messages are missing. `null`: the service did not report it (server-sent events). */
  complete: boolean | null
}

/** @internal */
export type Frame = Record<string, any> & { t: string }

/** Why a connection ended: docs/close-reasons.md, and four reasons of the client. */
export type CloseReason =
  | 'drain'
  | 'replaced'
  | 'expired'
  | 'revoked'
  | 'unauthorized'
  | 'auth_timeout'
  | 'ping_timeout'
  | 'slow_consumer'
  | 'rate_limited'
  | 'bad_message'
  | 'overloaded'
  | 'internal'
  | 'quota_exceeded'
  | 'rules_changed'
  | 'protocol_error'
  | 'invalid_utf8'
  | 'too_big'
  /** The connection ended without a reason, or never began. */
  | 'connection_lost'
  /** The application called `close`. */
  | 'closed'
  /** `getToken` returned `null`. */
  | 'signed_out'
  /** The application handles messages more slowly than they arrive. */
  | 'queue_full'
  | (string & {})

const CODES =
  'drain,replaced,expired,revoked,unauthorized,auth_timeout,ping_timeout,slow_consumer,rate_limited,bad_message,overloaded,internal,quota_exceeded,rules_changed'.split(
    ',',
  )

/** The reason that a WebSocket close code stands for. @internal */
export const reasonOf = (code?: number): CloseReason | undefined =>
  code === 1002 ? 'protocol_error' : code === 1007 ? 'invalid_utf8' : code === 1009 ? 'too_big' : CODES[(code ?? 0) - 4000]
