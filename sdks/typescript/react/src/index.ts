'use client'
/**
 * React for Noroshi: hooks for messages, topics, the user's inbox, experiments and preferences, and the inbox bell.
 *
 * @module
 */

export { InboxBell, type InboxBellProps } from './bell.js'
export {
  useConnectionState,
  useInbox,
  useMessage,
  usePreferences,
  useTopic,
  useUnread,
  useVariant,
  type UseInbox,
  type UsePreferences,
  type UseTopicOptions,
  type UseVariant,
} from './hooks.js'
export { NoroshiProvider, useNoroshi, type NoroshiProviderProps } from './provider.js'
export type { PreferencesSnapshot } from './preferences.js'
export type { TopicSnapshot } from './topic.js'
export type { SelectListener } from '../../inbox/src/bell.js'
export type { InboxOptions, InboxSnapshot } from '../../inbox/src/store.js'
export { en, ja, type Texts } from '../../inbox/src/texts.js'
export type { ViewOptions } from '../../inbox/src/view.js'
