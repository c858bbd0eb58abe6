/** Names of roles and permissions. The server computes permissions from roles; the page only reads them. */

export const ROLES = ['viewer', 'support', 'author', 'operator', 'owner'] as const
export type Role = (typeof ROLES)[number]

export const PERMISSIONS = [
  /** Read everything of the app except secrets. */
  'read',
  /** Support users and devices: test messages to them, revoke, delete, clear, preferences, push tokens. */
  'devices',
  /** Notifications, campaigns, activities, broadcasts. */
  'publish',
  /** Notices, experiments, channels. */
  'define',
  /** Keys, credentials, topic rules and settings of the app, and its audit log; with `*` quotas and drains. */
  'manage',
  /** People of the app; delete it; with `*` create apps, and all people. */
  'own',
] as const
export type Permission = (typeof PERMISSIONS)[number]

/** The key of permissions for the whole cluster. */
export const EVERYWHERE = '*'
