import type { Item, ItemCounts, Items, ItemsDeleted, ItemsOfUserQuery, Preferences, UserRevoked } from './api.js'
import type { Http, RequestOptions } from './http.js'
import { list, type Pages } from './pages.js'

/** The users of the app. The service knows a user by the devices, items and preferences that name it. */
export class UsersApi {
  readonly #http: Http
  readonly items: UserItemsApi
  readonly preferences: UserPreferencesApi

  /** @internal */
  constructor(http: Http) {
    this.#http = http
    this.items = new UserItemsApi(http)
    this.preferences = new UserPreferencesApi(http)
  }

  /** Revokes the tokens of all devices of the user, for example when the user signs out everywhere. */
  revoke(user: string, options?: RequestOptions): Promise<UserRevoked> {
    return this.#http.call('post', '/v1/users/{user}/revoke', { path: { user }, safe: true }, options)
  }
}

/** The items of a user's notification centre. */
export class UserItemsApi {
  readonly #http: Http

  /** @internal */
  constructor(http: Http) {
    this.#http = http
  }

  /** Newest first. */
  list(user: string, options: ItemsOfUserQuery & RequestOptions = {}): Pages<Items, Item> {
    return list(this.#http, '/v1/users/{user}/items', { user }, options, (page) => page.items)
  }

  /** How many are unread, in all and by category. */
  counts(user: string, options?: RequestOptions): Promise<ItemCounts> {
    return this.#http.call('get', '/v1/users/{user}/items/counts', { path: { user } }, options)
  }

  /** Deletes all of them. */
  delete(user: string, options?: RequestOptions): Promise<ItemsDeleted> {
    return this.#http.call('delete', '/v1/users/{user}/items', { path: { user } }, options)
  }
}

/** Which notifications a user receives, and how. */
export class UserPreferencesApi {
  readonly #http: Http

  /** @internal */
  constructor(http: Http) {
    this.#http = http
  }

  get(user: string, options?: RequestOptions): Promise<Preferences> {
    return this.#http.call('get', '/v1/users/{user}/preferences', { path: { user } }, options)
  }

  /** Replaces them; returns them as stored. */
  set(user: string, preferences: Preferences, options?: RequestOptions): Promise<Preferences> {
    return this.#http.call('put', '/v1/users/{user}/preferences', { path: { user }, body: preferences }, options)
  }

  delete(user: string, options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/users/{user}/preferences', { path: { user } }, options)
  }
}
