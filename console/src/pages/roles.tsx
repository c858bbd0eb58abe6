import { EVERYWHERE, type Role } from '../api/permission'
import { t, tValue } from '../i18n'
import { Badge } from '../ui/badge'

export const appName = (app: string): string => (app === EVERYWHERE ? t('people.allApps') : app)

export function Roles({ roles }: { roles: readonly { app: string; role: Role; mapped?: boolean }[] }) {
  if (roles.length === 0) return <span class="none">{t('people.noRole')}</span>
  return (
    <span class="chips">
      {roles.map(({ app, role, mapped }) => <Badge key={app} tone={role === 'owner' ? 'info' : 'muted'}>{`${appName(app)}: ${mapped ? t('roles.mapped', { role: tValue('role', role) }) : tValue('role', role)}`}</Badge>)}
    </span>
  )
}

/** How a person logs in. */
export function LogInMethods({ person }: { person: { password: boolean; openid: { title: string } | null } }) {
  const methods = [person.password && t('session.password'), person.openid?.title].filter(Boolean)
  return methods.length > 0 ? <>{methods.join(', ')}</> : <span class="soft">{t('logIn.none')}</span>
}
