/** Names of roles and permissions. The server computes permissions from roles; the page only reads them. */

export const ROLES = ['viewer', 'support', 'author', 'operator', 'owner'] as const
export type Role = (typeof ROLES)[number]

export const PERMISSIONS = [
  /** Read everything of the app except secrets. */
  'read',
  /** Support users and devices: test messages to them, revoke, delete, clear, preferences, push tokens. */
  'devices',
  /** Notifications, campaigns, activities, notices, experiments, channels. */
  'publish',
  /** Keys, credentials, topic rules, quotas and settings of the app; with `*` drains. */
  'admin',
  /** People, invitations, roles; delete an app; with `*` create apps. */
  'people',
] as const
export type Permission = (typeof PERMISSIONS)[number]

/** The key of permissions for the whole cluster. */
export const EVERYWHERE = '*'
