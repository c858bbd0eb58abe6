import type { Message, Topic, Topics, TopicsQuery } from './api.js'
import type { Http, RequestOptions } from './http.js'
import { list, type Pages } from './pages.js'

/** Topics with subscribers, a log or a retained message. */
export class TopicsApi {
  readonly #http: Http

  /** @internal */
  constructor(http: Http) {
    this.#http = http
  }

  /** By name. */
  list(options: TopicsQuery & RequestOptions = {}): Pages<Topics, Topic> {
    return list(this.#http, '/v1/topics', {}, options, (page) => page.topics)
  }

  /** A topic that was never used has zeros. */
  get(topic: string, options?: RequestOptions): Promise<Topic> {
    return this.#http.call('get', '/v1/topics/{topic}', { path: { topic } }, options)
  }

  /** The message that devices receive when they log in. Rejects with `not_found` if there is none. */
  retained(topic: string, options?: RequestOptions): Promise<Message> {
    return this.#http.call('get', '/v1/topics/{topic}/retained', { path: { topic } }, options)
  }

  deleteRetained(topic: string, options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/topics/{topic}/retained', { path: { topic } }, options)
  }
}
