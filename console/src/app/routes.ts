/** Every page: its name in the address, its place in the menu, its key, the permission it needs, and its code. */

import type { ComponentType } from 'preact'

import type { Permission } from '../api/permission'
import type { PlainKey } from '../i18n'
import type { IconName } from '../ui/icon'

export type Loader = () => Promise<{ default: ComponentType }>

export interface Page {
  name: string
  title: PlainKey
  icon: IconName
  group: 'watch' | 'send' | 'app' | 'team' | 'node'
  /** After `g`. */
  key: string
  permission: Permission
  /** The permission is needed for the whole cluster, not for the app. */
  everywhere?: boolean
  /** This permission for the whole cluster is enough too. */
  orEverywhere?: Permission
  /** Whether a front of cells has the page: only a front, or never. */
  front?: 'only' | 'never'
  load: Loader
}

export const PAGES: readonly Page[] = [
  { name: 'overview', title: 'page.overview', icon: 'pulse', group: 'watch', key: 'o', permission: 'read', load: () => import('../pages/overview') },
  { name: 'search', title: 'page.search', icon: 'search', group: 'watch', key: 's', permission: 'read', load: () => import('../pages/search') },
  { name: 'notifications', title: 'page.notifications', icon: 'bell', group: 'watch', key: 'f', permission: 'read', load: () => import('../pages/notifications') },
  { name: 'live', title: 'page.live', icon: 'tail', group: 'watch', key: 'j', permission: 'read', front: 'never', load: () => import('../pages/live') },
  { name: 'devices', title: 'page.devices', icon: 'device', group: 'watch', key: 'd', permission: 'read', load: () => import('../pages/devices') },
  { name: 'topics', title: 'page.topics', icon: 'topic', group: 'watch', key: 't', permission: 'read', load: () => import('../pages/topics') },
  { name: 'nodes', title: 'page.nodes', icon: 'node', group: 'watch', key: 'n', permission: 'read', everywhere: true, load: () => import('../pages/nodes') },
  { name: 'cells', title: 'page.cells', icon: 'cell', group: 'watch', key: 'z', permission: 'read', everywhere: true, front: 'only', load: () => import('../pages/cells') },
  { name: 'campaigns', title: 'page.campaigns', icon: 'campaign', group: 'send', key: 'c', permission: 'read', front: 'never', load: () => import('../pages/campaigns') },
  { name: 'activities', title: 'page.activities', icon: 'activity', group: 'send', key: 'l', permission: 'read', front: 'never', load: () => import('../pages/activities') },
  { name: 'channels', title: 'page.channels', icon: 'channel', group: 'send', key: 'b', permission: 'read', front: 'never', load: () => import('../pages/channels') },
  { name: 'experiments', title: 'page.experiments', icon: 'experiment', group: 'send', key: 'e', permission: 'read', front: 'never', load: () => import('../pages/experiments') },
  { name: 'notices', title: 'page.notices', icon: 'notice', group: 'send', key: 'm', permission: 'read', front: 'never', load: () => import('../pages/notices') },
  { name: 'keys', title: 'page.keys', icon: 'key', group: 'app', key: 'k', permission: 'read', load: () => import('../pages/keys') },
  { name: 'credentials', title: 'page.credentials', icon: 'send', group: 'app', key: 'p', permission: 'read', front: 'never', load: () => import('../pages/credentials') },
  { name: 'rules', title: 'page.rules', icon: 'rule', group: 'app', key: 'r', permission: 'read', load: () => import('../pages/rules') },
  { name: 'quotas', title: 'page.quotas', icon: 'quota', group: 'app', key: 'q', permission: 'read', load: () => import('../pages/quotas') },
  { name: 'settings', title: 'page.settings', icon: 'settings', group: 'app', key: 'i', permission: 'read', load: () => import('../pages/settings') },
  { name: 'reference', title: 'page.reference', icon: 'code', group: 'app', key: 'x', permission: 'read', load: () => import('../pages/reference') },
  { name: 'people', title: 'page.people', icon: 'people', group: 'team', key: 'h', permission: 'own', load: () => import('../pages/people') },
  { name: 'audit', title: 'page.audit', icon: 'audit', group: 'team', key: 'a', permission: 'manage', orEverywhere: 'manage', load: () => import('../pages/audit') },
  { name: 'doctor', title: 'page.doctor', icon: 'doctor', group: 'node', key: 'y', permission: 'read', everywhere: true, load: () => import('../pages/doctor') },
  { name: 'queues', title: 'page.queues', icon: 'queue', group: 'node', key: 'w', permission: 'read', everywhere: true, load: () => import('../pages/queues') },
  { name: 'configuration', title: 'page.configuration', icon: 'list', group: 'node', key: 'v', permission: 'manage', everywhere: true, load: () => import('../pages/configuration') },
  { name: 'profile', title: 'page.profile', icon: 'flame', group: 'node', key: 'u', permission: 'manage', everywhere: true, load: () => import('../pages/profile') },
]

/** Pages of one thing, and pages that the menu does not list; `parent` is marked in the menu instead. */
export const DETAILS: Readonly<Record<string, { title: PlainKey; parent?: string; load: Loader }>> = {
  user: { title: 'page.user', parent: 'search', load: () => import('../pages/user') },
  device: { title: 'page.device', parent: 'devices', load: () => import('../pages/device') },
  notification: { title: 'page.notification', parent: 'notifications', load: () => import('../pages/notification') },
  topic: { title: 'page.topic', parent: 'topics', load: () => import('../pages/topic') },
  'new-campaign': { title: 'campaigns.new', parent: 'campaigns', load: () => import('../pages/new-campaign') },
  campaign: { title: 'page.campaign', parent: 'campaigns', load: () => import('../pages/campaign') },
  activity: { title: 'page.activity', parent: 'activities', load: () => import('../pages/activity') },
  account: { title: 'page.account', load: () => import('../pages/account') },
  components: { title: 'page.components', load: () => import('../pages/components') },
}

/** Pages that make sense before the first app exists; all others then show `NO_APP`. */
export const WITHOUT_APP: readonly string[] = [
  'nodes', 'cells', 'people', 'audit', 'doctor', 'queues', 'configuration', 'profile', 'account', 'components', 'reference',
]
export const NO_APP: Loader = () => import('../pages/new-app')

/** Pages for people who are not signed in. */
export const OUTSIDE: Readonly<Record<string, { title: PlainKey; load: Loader }>> = {
  link: { title: 'page.link', load: () => import('../pages/link') },
  invitation: { title: 'page.invitation', load: () => import('../pages/invitation') },
  confirmed: { title: 'confirmed.title', load: () => import('../pages/confirmed') },
}
