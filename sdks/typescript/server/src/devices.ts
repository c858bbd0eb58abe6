import type {
  Device,
  DevicePushToken,
  DeviceRegistration,
  Devices,
  DevicesQuery,
  Endpoint,
  NewPushToken,
  Preferences,
  Registered,
  Revoked,
  TopicPermission,
} from './api.js'
import { batch, type BatchOptions, type LineResult, type Lines } from './batch.js'
import type { Http, RequestOptions } from './http.js'
import { list, type Pages } from './pages.js'

/** What a push token is for. */
export type PushTokenKind = DevicePushToken['kind']

/** The devices of the app. */
export class DevicesApi {
  readonly #http: Http
  readonly pushTokens: DevicePushTokensApi
  readonly preferences: DevicePreferencesApi
  readonly endpoints: DeviceEndpointsApi

  /** @internal */
  constructor(http: Http) {
    this.#http = http
    this.pushTokens = new DevicePushTokensApi(http)
    this.preferences = new DevicePreferencesApi(http)
    this.endpoints = new DeviceEndpointsApi(http)
  }

  /** Creates or updates a device, and returns a token with which it connects. Without `device`, a random id is drawn. */
  register(registration: DeviceRegistration = {}, options?: RequestOptions): Promise<Registered> {
    return this.#http.call('post', '/v1/devices', { body: named(registration), safe: true }, options)
  }

  /** Registers devices, a line each. Lines without `device` get a random id. */
  registerBatch(lines: Lines<DeviceRegistration>, options: BatchOptions = {}): AsyncGenerator<LineResult<DeviceRegistration, { device: string; token: string }>, void, void> {
    return batch(this.#http, withIds(lines), options, (lines, _, options, read) => this.#http.lines('post', '/v1/devices/batch', { lines, safe: true }, options, read))
  }

  /** With a filter by user, token or day, or all. */
  list(options: DevicesQuery & RequestOptions = {}): Pages<Devices, Device> {
    return list(this.#http, '/v1/devices', {}, options, (page) => page.devices)
  }

  get(device: string, options?: RequestOptions): Promise<Device> {
    return this.#http.call('get', '/v1/devices/{device}', { path: { device } }, options)
  }

  /** Deletes the device and revokes its tokens. Its connection ends. */
  delete(device: string, options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/devices/{device}', { path: { device } }, options)
  }

  /** Revokes the tokens of the device. Its connection ends; it may log in with a new token. */
  revoke(device: string, options?: RequestOptions): Promise<Revoked> {
    return this.#http.call('post', '/v1/devices/{device}/revoke', { path: { device }, safe: true }, options)
  }

  /** Whether topic rules allow the device to subscribe or publish to a topic, and which rule decides. */
  topicPermission(device: string, topic: string, { action, ...options }: { action?: 'subscribe' | 'publish' } & RequestOptions = {}): Promise<TopicPermission> {
    return this.#http.call('get', '/v1/devices/{device}/topics/{topic}/permission', { path: { device, topic }, query: { action } }, options)
  }
}

/** The push tokens of a device. */
export class DevicePushTokensApi {
  readonly #http: Http

  /** @internal */
  constructor(http: Http) {
    this.#http = http
  }

  async list(device: string, options?: RequestOptions): Promise<DevicePushToken[]> {
    return (await this.#http.call('get', '/v1/devices/{device}/push-tokens', { path: { device } }, options)).push_tokens
  }

  /** Registers a token. A device has one token of each kind and name. */
  set(device: string, kind: PushTokenKind, token: NewPushToken, { name, ...options }: { name?: string } & RequestOptions = {}): Promise<void> {
    return name === undefined
      ? this.#http.call('put', '/v1/devices/{device}/push-tokens/{kind}', { path: { device, kind }, body: token }, options)
      : this.#http.call('put', '/v1/devices/{device}/push-tokens/{kind}/{name}', { path: { device, kind, name }, body: token }, options)
  }

  delete(device: string, kind: PushTokenKind, { name, ...options }: { name?: string } & RequestOptions = {}): Promise<void> {
    return name === undefined
      ? this.#http.call('delete', '/v1/devices/{device}/push-tokens/{kind}', { path: { device, kind } }, options)
      : this.#http.call('delete', '/v1/devices/{device}/push-tokens/{kind}/{name}', { path: { device, kind, name } }, options)
  }
}

/** The preferences of a device, which come before those of its user. */
export class DevicePreferencesApi {
  readonly #http: Http

  /** @internal */
  constructor(http: Http) {
    this.#http = http
  }

  get(device: string, options?: RequestOptions): Promise<Preferences> {
    return this.#http.call('get', '/v1/devices/{device}/preferences', { path: { device } }, options)
  }

  /** Replaces them; returns them as stored. */
  set(device: string, preferences: Preferences, options?: RequestOptions): Promise<Preferences> {
    return this.#http.call('put', '/v1/devices/{device}/preferences', { path: { device }, body: preferences }, options)
  }

  delete(device: string, options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/devices/{device}/preferences', { path: { device } }, options)
  }
}

/** The Web Push endpoints that a device gave to other application servers. */
export class DeviceEndpointsApi {
  readonly #http: Http

  /** @internal */
  constructor(http: Http) {
    this.#http = http
  }

  async list(device: string, options?: RequestOptions): Promise<Endpoint[]> {
    return (await this.#http.call('get', '/v1/devices/{device}/endpoints', { path: { device } }, options)).endpoints
  }

  delete(device: string, id: string, options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/devices/{device}/endpoints/{id}', { path: { device, id } }, options)
  }
}

/** A device without an id would be created by each attempt. */
const named = (registration: DeviceRegistration): DeviceRegistration => ({ ...registration, device: registration.device ?? crypto.randomUUID().replaceAll('-', '') })

async function* withIds(lines: Lines<DeviceRegistration>) {
  for await (const line of lines) yield named(line)
}
