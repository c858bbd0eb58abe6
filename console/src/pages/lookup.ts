/** Search: asks every endpoint that could know the text, in parallel, and tells what exists. */

import { body, provider } from '../api/client'
import { ApiError, isMissing } from '../api/error'

export type Kind = 'user' | 'device' | 'notification' | 'topic' | 'campaign' | 'activity'

export interface Hit {
  kind: Kind
  id: string
  name?: string | undefined
  state?: string | undefined
  devices?: number
  more?: boolean
}

const UUID = /^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i

/** Which kinds a text can name: only UUIDs name notifications and campaigns. */
export function kindsOf(text: string): Kind[] {
  return UUID.test(text)
    ? ['notification', 'campaign', 'activity', 'user', 'device', 'topic']
    : ['user', 'device', 'topic', 'activity']
}

const asks: Record<Kind, (id: string) => Promise<Hit | undefined>> = {
  async user(id) {
    const answer = await body(provider.GET('/v1/devices', { params: { query: { user: id, limit: 100 } } }))
    const presence = await body(provider.POST('/v1/presence', { body: { users: [id] } }))
    if (answer.devices.length === 0) return undefined
    return { kind: 'user', id, devices: answer.devices.length, more: answer.next !== null, state: presence.users[id]?.presence }
  },
  async device(id) {
    const device = await body(provider.GET('/v1/devices/{device}', { params: { path: { device: id } } }))
    return { kind: 'device', id: device.device, name: device.user ?? undefined, state: device.presence }
  },
  async notification(id) {
    const state = await body(provider.GET('/v1/notifications/{id}', { params: { path: { id } } }))
    return { kind: 'notification', id: state.id, state: state.state }
  },
  async topic(id) {
    const topic = await body(provider.GET('/v1/topics/{topic}', { params: { path: { topic: id } } }))
    // The API answers for topics that nobody has used yet.
    if (topic.subscribers === 0 && topic.connected === 0 && topic.epoch === null && !topic.retained) return undefined
    return { kind: 'topic', id: topic.topic, devices: topic.subscribers }
  },
  async campaign(id) {
    const campaign = await body(provider.GET('/v1/campaigns/{id}', { params: { path: { id } } }))
    return { kind: 'campaign', id: campaign.id, name: campaign.name ?? undefined, state: campaign.state }
  },
  async activity(id) {
    const activity = await body(provider.GET('/v1/activities/{id}', { params: { path: { id } } }))
    return { kind: 'activity', id: activity.id, name: activity.attributes_type, state: activity.state }
  },
}

/** A front of cells has no campaigns and activities of its own. */
const isElsewhere = (error: unknown): boolean => error instanceof ApiError && error.is('not_at_a_front')

/** Hits and the failures other than "does not exist". */
export async function lookUp(text: string): Promise<{ hits: Hit[]; errors: unknown[] }> {
  const answers = await Promise.allSettled(kindsOf(text).map((kind) => asks[kind](text)))
  const hits: Hit[] = []
  const errors: unknown[] = []
  for (const answer of answers) {
    if (answer.status === 'fulfilled') {
      if (answer.value) hits.push(answer.value)
    } else if (!isMissing(answer.reason) && !isElsewhere(answer.reason)) errors.push(answer.reason)
  }
  return { hits, errors }
}
