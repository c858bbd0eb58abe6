import { EVERYWHERE, type Role } from '../api/permission'
import { t, tValue } from '../i18n'
import { Badge } from '../ui/badge'

export const appName = (app: string): string => (app === EVERYWHERE ? t('people.allApps') : app)

export function Roles({ roles }: { roles: readonly { app: string; role: Role }[] }) {
  if (roles.length === 0) return <span class="none">{t('people.noRole')}</span>
  return (
    <span class="chips">
      {roles.map(({ app, role }) => <Badge key={app} tone={role === 'owner' ? 'info' : 'muted'}>{`${appName(app)}: ${tValue('role', role)}`}</Badge>)}
    </span>
  )
}
