/** Who is signed in, what they may do, and which app they look at. Nothing of it is stored in the browser. */

import { computed, signal } from '@preact/signals'

import { body, connect, session as api, type SessionSchemas } from '../api/client'
import { ApiError } from '../api/error'
import { EVERYWHERE, type Permission } from '../api/permission'
import { t } from '../i18n'
import { toastError } from '../ui/toast'
import { attended } from './attendance'
import { address, go, place } from './router'
import type { Page } from './routes'

export type Session = SessionSchemas['Session']

/** `undefined` until the server has answered, `null` if nobody is signed in. */
export const session = signal<Session | null | undefined>(undefined)

/** The app of the address, else the first one. */
export const app = computed<string | undefined>(() => {
  const apps = session.value?.apps ?? []
  const asked = place.value.query.get('app')
  return asked !== null && apps.includes(asked) ? asked : apps[0]
})

/** The app of the address, if the person has no role in it. */
export const unknownApp = computed<string | undefined>(() => {
  const asked = place.value.query.get('app')
  return asked === null || asked === app.value ? undefined : asked
})

export function allowed(who: Session | null | undefined, permission: Permission, where: string | undefined): boolean {
  if (!who) return false
  const everywhere = who.permissions[EVERYWHERE] ?? []
  return everywhere.includes(permission) || (where !== undefined && (who.permissions[where] ?? []).includes(permission))
}

export const can = (permission: Permission): boolean => allowed(session.value, permission, app.value)
/** Whether the node that answers is a front of cells, which has no campaigns, credentials and experiments of its own. */
export const isFront = (): boolean => session.value?.front === true
/** Whether this node, a front or not, has a page. */
export const isServed = ({ front }: Page): boolean => front === undefined || (front === 'only') === isFront()
/** Whether the person may open a page of the menu. */
export const mayOpen = (page: Page): boolean => isServed(page) && isPermitted(page)
const isPermitted = ({ permission, everywhere, orEverywhere }: Page): boolean =>
  (everywhere ? canEverywhere(permission) : can(permission) || (orEverywhere !== undefined && canEverywhere(orEverywhere)))
export const canEverywhere = (permission: Permission): boolean => allowed(session.value, permission, EVERYWHERE)

/** Why an action is not offered, or `undefined` if it is. */
export const refusal = (permission: Permission): string | undefined =>
  can(permission) ? undefined : t('permission.missing', { permission: t(`permission.${permission}`) })
/** People who support users may send to them, as may people who publish. */
export const testRefusal = (): string | undefined => isFront() ? t('front.noTest') : (can('publish') ? undefined : refusal('devices'))
export const refusalEverywhere = (permission: Permission): string | undefined =>
  canEverywhere(permission) ? undefined : t('permission.missing', { permission: t(`permission.${permission}`) })

/** The address of a page for the present app. */
export const at = (page: string, values: Record<string, string | undefined> = {}): string =>
  address(page, { app: app.value, ...values })

export async function loadSession(): Promise<void> {
  try {
    session.value = await body(api.GET('/v1/session'))
  } catch (error) {
    if (!(error instanceof ApiError && error.problem.status === 401)) throw error
    session.value = null
  }
}

export async function signOut(): Promise<void> {
  try {
    await api.DELETE('/v1/session')
  } catch (error) {
    // A session that has ended needs no end.
    if (session.value) return toastError(error)
  }
  session.value = null
  go(address('overview'))
}

/** Names the channel through which the window of a confirmation reports its end: a reason of failure, or an empty text. */
export const CONFIRMATIONS = 'noroshi-confirmations'

/** The open question "confirm your login"; requests that wait for the answer share it. */
export const confirming = signal<{ answer(confirmed: boolean): void } | undefined>(undefined)
let question: Promise<boolean> | undefined

function confirmLogin(): Promise<boolean> {
  question ??= new Promise<boolean>((resolve) => {
    confirming.value = { answer: resolve }
  }).finally(() => {
    confirming.value = undefined
    question = undefined
  })
  return question
}

connect({
  csrf: () => session.value?.csrf,
  app: () => app.value,
  attended,
  confirmLogin,
  signedOut: () => {
    if (session.value) session.value = null
  },
})
