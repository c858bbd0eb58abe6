/** The settings of an app, for an API key with the scope `admin`. */

import type {
  App,
  AppChange,
  AppSeriesQuery,
  Experiment,
  ExperimentAssigned,
  Experiments,
  ExperimentsQuery,
  Key,
  NewExperiment,
  NewKey,
  NewNotice,
  NewPushCredential,
  Notice,
  Notices,
  NoticesQuery,
  PushCredential,
  PushRotation,
  PushTest,
  PushTested,
  Quota,
  RestoreTokens,
  RestoredTokens,
  Series,
  TopicRules,
} from './api.js'
import type { Http, RequestOptions } from './http.js'
import { list, type Pages } from './pages.js'

/** An app: its settings, keys, credentials, experiments and notices. */
export class AppApi {
  readonly #http: Http
  readonly keys: KeysApi
  readonly pushCredentials: PushCredentialsApi
  readonly experiments: ExperimentsApi
  readonly notices: NoticesApi
  readonly topicRules: TopicRulesApi

  /** @internal */
  constructor(
    http: Http,
    readonly name: string,
  ) {
    this.#http = http
    this.keys = new KeysApi(http, name)
    this.pushCredentials = new PushCredentialsApi(http, name)
    this.experiments = new ExperimentsApi(http, name)
    this.notices = new NoticesApi(http, name)
    this.topicRules = new TopicRulesApi(http, name)
  }

  get(options?: RequestOptions): Promise<App> {
    return this.#http.call('get', '/v1/apps/{app}', { path: { app: this.name } }, options)
  }

  change(change: AppChange, options?: RequestOptions): Promise<App> {
    return this.#http.call('patch', '/v1/apps/{app}', { path: { app: this.name }, body: change, safe: true }, options)
  }

  async quotas(options?: RequestOptions): Promise<Quota[]> {
    return (await this.#http.call('get', '/v1/apps/{app}/quotas', { path: { app: this.name } }, options)).quotas
  }

  /** Figures over time, such as messages per second. */
  series(query: AppSeriesQuery, options?: RequestOptions): Promise<Series> {
    return this.#http.call('get', '/v1/apps/{app}/series', { path: { app: this.name }, query }, options)
  }
}

/** The API keys of the app. */
export class KeysApi {
  readonly #http: Http
  readonly #app: string

  /** @internal */
  constructor(http: Http, app: string) {
    this.#http = http
    this.#app = app
  }

  async list(options?: RequestOptions): Promise<Key[]> {
    return (await this.#http.call('get', '/v1/apps/{app}/keys', { path: { app: this.#app } }, options)).keys
  }

  /** `key` of the answer is the key: nobody can read it again. A lost answer is not retried: it could create another key. */
  create(key: NewKey, options?: RequestOptions): Promise<Key> {
    return this.#http.call('post', '/v1/apps/{app}/keys', { path: { app: this.#app }, body: key }, options)
  }

  revoke(id: string, options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/apps/{app}/keys/{key}', { path: { app: this.#app, key: id } }, options)
  }
}

/** The credentials with which the app sends to push services. */
export class PushCredentialsApi {
  readonly #http: Http
  readonly #app: string

  /** @internal */
  constructor(http: Http, app: string) {
    this.#http = http
    this.#app = app
  }

  /** With their state, without their secrets. */
  async list(options?: RequestOptions): Promise<PushCredential[]> {
    return (await this.#http.call('get', '/v1/apps/{app}/push', { path: { app: this.#app } }, options)).credentials
  }

  /** With `replace`, it replaces the credential for the same service and environment. */
  add(credential: NewPushCredential, { replace, ...options }: { replace?: boolean } & RequestOptions = {}): Promise<PushCredential> {
    return this.#http.call('post', '/v1/apps/{app}/push', { path: { app: this.#app }, query: { replace }, body: credential, safe: replace === true }, options)
  }

  delete(id: string, options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/apps/{app}/push/{id}', { path: { app: this.#app, id } }, options)
  }

  /** Sends a push to a device or a token, and returns the answer of the push service. */
  test(id: string, test: PushTest, options?: RequestOptions): Promise<PushTested> {
    return this.#http.call('post', '/v1/apps/{app}/push/{id}/test', { path: { app: this.#app, id }, body: test }, options)
  }

  /** Changes a credential if a push with the changed one succeeds. */
  rotate(id: string, rotation: PushRotation, options?: RequestOptions): Promise<PushCredential> {
    return this.#http.call('post', '/v1/apps/{app}/push/{id}/rotate', { path: { app: this.#app, id }, body: rotation }, options)
  }

  /** Restores push tokens that answers to a wrong credential had suspended or removed. */
  restoreTokens(id: string, restore: RestoreTokens = {}, options?: RequestOptions): Promise<RestoredTokens> {
    return this.#http.call('post', '/v1/apps/{app}/push/{id}/restore', { path: { app: this.#app, id }, body: restore, safe: true }, options)
  }
}

/** Experiments decide which users see which variant. */
export class ExperimentsApi {
  readonly #http: Http
  readonly #app: string

  /** @internal */
  constructor(http: Http, app: string) {
    this.#http = http
    this.#app = app
  }

  list(options: ExperimentsQuery & RequestOptions = {}): Pages<Experiments, Experiment> {
    return list(this.#http, '/v1/apps/{app}/experiments', { app: this.#app }, options, (page) => page.experiments)
  }

  get(name: string, options?: RequestOptions): Promise<Experiment> {
    return this.#http.call('get', '/v1/apps/{app}/experiments/{name}', { path: { app: this.#app, name } }, options)
  }

  /** Creates or replaces it. */
  put(name: string, experiment: NewExperiment, options?: RequestOptions): Promise<Experiment> {
    return this.#http.call('put', '/v1/apps/{app}/experiments/{name}', { path: { app: this.#app, name }, body: experiment }, options)
  }

  /** Stops it for all devices at once. */
  kill(name: string, options?: RequestOptions): Promise<Experiment> {
    return this.#setKilled(name, true, options)
  }

  /** Undoes `kill`. */
  revive(name: string, options?: RequestOptions): Promise<Experiment> {
    return this.#setKilled(name, false, options)
  }

  /** Ends it; its name can be used again. */
  archive(name: string, options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/apps/{app}/experiments/{name}', { path: { app: this.#app, name } }, options)
  }

  /** Which variant a device gets, and why. */
  assigned(name: string, device: string, options?: RequestOptions): Promise<ExperimentAssigned> {
    return this.#http.call('get', '/v1/apps/{app}/experiments/{name}/devices/{device}', { path: { app: this.#app, name, device } }, options)
  }

  #setKilled(name: string, killed: boolean, options?: RequestOptions): Promise<Experiment> {
    return this.#http.call('patch', '/v1/apps/{app}/experiments/{name}', { path: { app: this.#app, name }, body: { killed }, safe: true }, options)
  }
}

/** Notices of maintenance. */
export class NoticesApi {
  readonly #http: Http
  readonly #app: string

  /** @internal */
  constructor(http: Http, app: string) {
    this.#http = http
    this.#app = app
  }

  list(options: NoticesQuery & RequestOptions = {}): Pages<Notices, Notice> {
    return list(this.#http, '/v1/apps/{app}/notices', { app: this.#app }, options, (page) => page.notices)
  }

  get(name: string, options?: RequestOptions): Promise<Notice> {
    return this.#http.call('get', '/v1/apps/{app}/notices/{name}', { path: { app: this.#app, name } }, options)
  }

  /** Creates or replaces it. */
  put(name: string, notice: NewNotice, options?: RequestOptions): Promise<Notice> {
    return this.#http.call('put', '/v1/apps/{app}/notices/{name}', { path: { app: this.#app, name }, body: notice }, options)
  }

  end(name: string, options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/apps/{app}/notices/{name}', { path: { app: this.#app, name } }, options)
  }
}

/** The rules that decide which devices may use which topics. */
export class TopicRulesApi {
  readonly #http: Http
  readonly #app: string

  /** @internal */
  constructor(http: Http, app: string) {
    this.#http = http
    this.#app = app
  }

  /** Rejects with `not_found` if the app has no rules. */
  get(options?: RequestOptions): Promise<TopicRules> {
    return this.#http.call('get', '/v1/apps/{app}/topic-rules', { path: { app: this.#app } }, options)
  }

  /** Replaces all of them. */
  set(rules: TopicRules, options?: RequestOptions): Promise<TopicRules> {
    return this.#http.call('put', '/v1/apps/{app}/topic-rules', { path: { app: this.#app }, body: rules }, options)
  }

  delete(options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/apps/{app}/topic-rules', { path: { app: this.#app } }, options)
  }
}
