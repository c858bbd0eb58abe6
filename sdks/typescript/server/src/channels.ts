import type {
  AppleChannels,
  AppleChannelsQuery,
  BroadcastState,
  Channel,
  ChannelChange,
  Channels,
  ChannelsQuery,
  NewBroadcast,
  NewChannel,
} from './api.js'
import type { Http, IdempotentOptions, RequestOptions } from './http.js'
import { list, type Pages } from './pages.js'

/** Broadcast channels of APNs. */
export class ChannelsApi {
  readonly #http: Http
  /** The channels at Apple, also those that have no name here. */
  readonly atApple: AppleChannelsApi

  /** @internal */
  constructor(http: Http) {
    this.#http = http
    this.atApple = new AppleChannelsApi(http)
  }

  list(options: ChannelsQuery & RequestOptions = {}): Pages<Channels, Channel> {
    return list(this.#http, '/v1/push/channels', {}, options, (page) => page.channels)
  }

  /** Creates a channel at Apple, or returns the existing one. A lost answer is not retried: it could create another one. */
  create(channel: NewChannel, options?: RequestOptions): Promise<Channel> {
    return this.#http.call('post', '/v1/push/channels', { body: channel }, options)
  }

  /** With its newest broadcasts. */
  get(name: string, options?: RequestOptions): Promise<Channel> {
    return this.#http.call('get', '/v1/push/channels/{name}', { path: { name } }, options)
  }

  /** Binds it to a topic, or to none. */
  change(name: string, change: ChannelChange, options?: RequestOptions): Promise<Channel> {
    return this.#http.call('patch', '/v1/push/channels/{name}', { path: { name }, body: change, safe: true }, options)
  }

  /** Deletes it at Apple and here; with `forget`, only here. */
  delete(name: string, { forget, ...options }: { forget?: boolean } & RequestOptions = {}): Promise<void> {
    return this.#http.call('delete', '/v1/push/channels/{name}', { path: { name }, query: { forget } }, options)
  }

  /** Updates or ends the activities that follow the channel. */
  broadcast(name: string, broadcast: NewBroadcast, { idempotencyKey = crypto.randomUUID(), ...options }: IdempotentOptions = {}): Promise<BroadcastState> {
    return this.#http.call('post', '/v1/push/channels/{name}/broadcasts', { path: { name }, body: broadcast, idempotencyKey }, options)
  }

  /** What became of a broadcast. */
  broadcastState(id: string, options?: RequestOptions): Promise<BroadcastState> {
    return this.#http.call('get', '/v1/push/broadcasts/{id}', { path: { id } }, options)
  }
}

type Environment = AppleChannelsQuery['environment']

/** The channels at Apple. */
export class AppleChannelsApi {
  readonly #http: Http

  /** @internal */
  constructor(http: Http) {
    this.#http = http
  }

  async list({ environment, ...options }: { environment?: Environment } & RequestOptions = {}): Promise<AppleChannels['channels']> {
    return (await this.#http.call('get', '/v1/push/apns-channels', { query: { environment } }, options)).channels
  }

  /** Deletes one that has no name here. */
  delete(id: string, { environment, ...options }: { environment?: Environment } & RequestOptions = {}): Promise<void> {
    return this.#http.call('delete', '/v1/push/apns-channels/{id}', { path: { id }, query: { environment } }, options)
  }
}
