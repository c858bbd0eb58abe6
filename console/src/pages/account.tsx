/** The signed-in person: own sessions, password, second factor. */

import { session } from '../app/session'
import { amend, place } from '../app/router'
import { t } from '../i18n'
import { Facts } from '../ui/facts'
import { Head } from '../ui/head'
import { Tabs } from '../ui/tabs'
import { OwnSessions } from './account-sessions'
import { Password } from './account-password'
import { SecondFactor } from './account-totp'
import { LogInMethods, Roles } from './roles'

export default function Account() {
  const person = session.value?.person
  if (!person) return null
  return (
    <>
      <Head title={t('page.account')} />
      <Facts facts={[
        [t('session.name'), person.name],
        [t('session.email'), person.email],
        [t('people.roles'), <Roles roles={session.value?.roles ?? []} />],
        [t('logIn.method'), <LogInMethods person={person} />],
      ]} />
      <Tabs
        label={t('page.account')}
        chosen={place.value.query.get('tab') ?? 'sessions'}
        onChoose={(tab) => amend({ tab })}
        tabs={[
          { id: 'sessions', label: t('account.sessions'), body: () => <OwnSessions /> },
          { id: 'password', label: t('session.password'), body: () => <Password /> },
          { id: 'totp', label: t('people.totp'), body: () => <SecondFactor /> },
        ]}
      />
    </>
  )
}
