/** Every value that the API can answer has a message: a new one in the OpenAPI documents fails here. Types only. */

import type { Key } from '.'
import type { AdminSchemas, Schemas, SessionSchemas } from '../api/client'

type Trace = Schemas['Trace']
type Values =
  | `outcome.${Trace['steps'][number]['outcome']}`
  | `reason.${NonNullable<Trace['reason']>}`
  | `target.${Schemas['NotificationState']['target']['kind']}`
  | `when.${Schemas['NotificationState']['when']}`
  | `urgency.${Schemas['NotificationState']['urgency']}`
  | `state.${Schemas['NotificationState']['state'] | Schemas['Campaign']['state'] | Schemas['Experiment']['state'] | Schemas['Item']['state'] | Schemas['Presence'] | AdminSchemas['Drain']['state'] | AdminSchemas['PushCredentialState']['breaker']}`
  | `state.${Schemas['Notice']['state']}`
  | `state.activity.${Schemas['Activity']['state']}`
  | `token.kind.${Schemas['DevicePushToken']['kind']}`
  | `service.${Schemas['DevicePushToken']['service']}`
  | `platform.${NonNullable<Schemas['Platform']>}`
  | `quota.${Schemas['Quota']['quota']}`
  | `quota.scope.${Schemas['Quota']['scope']}`
  | `scope.${Schemas['Scope']}`
  | `allow.${Schemas['TopicRule']['allow']}`
  | `decision.${Schemas['TopicPermission']['decision']}`
  | `lane.${Schemas['Campaign']['lane']}`
  | `join.${Schemas['Activity']['join']}`
  | `activity.device.${Schemas['ActivityDevice']['state']}`
  | `push.answer.${Schemas['PushTested']['answer']}`
  | `channels.storage.${Schemas['Channel']['storage']}`
  | `role.${SessionSchemas['RoleInApp']['role']}`
  | `permission.${SessionSchemas['Session']['permissions'][string][number]}`
  | `by.${SessionSchemas['AuditEntry']['by']}`
  | `event.${SessionSchemas['TailEvent']['event']}`
  | `tail.gap.${SessionSchemas['TailText']['gaps'][number]}`
  | `problem.${AdminSchemas['Problem']['code']}`
  | `doctor.verdict.${AdminSchemas['DoctorVerdict']}`
  | `configuration.source.${AdminSchemas['Setting']['source']}`
  | `queue.${AdminSchemas['Queue']['queue']}`
  | `queue.again.${AdminSchemas['Queue']['queue']}`
  | `role.node.${AdminSchemas['Node']['roles'][number]}`

type Complete<Missing> = [Missing] extends [never] ? true : Missing
export const complete: Complete<Exclude<Values, Key>> = true
