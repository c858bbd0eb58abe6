/** A topic that several components use: subscribed while one of them is mounted. */

import type { Message, Noroshi, NoroshiError, Recovered, SubscribeOptions, Topic } from '@noroshi/client'

import { Observable } from '../../inbox/src/observable.js'

export interface TopicSnapshot<Data = unknown> {
  /** The newest message, or the retained one. */
  readonly message: Message<Data> | undefined
  /** The result of the last recovery: unless `complete` is `true`, read the state from your backend. */
  readonly recovered: Recovered | undefined
  /** Why the service refused or ended the subscription. */
  readonly denied: { readonly code: NoroshiError['code']; readonly reason: string } | undefined
}

export const NO_TOPIC: TopicSnapshot<never> = { message: undefined, recovered: undefined, denied: undefined }

export interface TopicListeners {
  /** The message is acknowledged after this has returned, and its promise is resolved. */
  message?: ((message: Message<any>) => unknown) | undefined
  recovered?: ((event: Recovered) => void) | undefined
}

export class TopicStore extends Observable<TopicSnapshot<any>> {
  readonly #client: Noroshi<any>
  readonly #name: string
  readonly #ended: () => void
  readonly #listeners = new Set<TopicListeners>()
  #topic: Topic<any> | undefined
  #options: SubscribeOptions = {}

  constructor(client: Noroshi<any>, name: string, ended: () => void) {
    super(NO_TOPIC)
    this.#client = client
    this.#name = name
    this.#ended = ended
  }

  /** A component uses the topic; a topic that one component recovers is recovered for all. */
  join(listeners: TopicListeners, options: SubscribeOptions): () => void {
    this.#listeners.add(listeners)
    if (!this.#topic) {
      this.#options = options
      this.#start()
    } else if (options.recover && !this.#options.recover) {
      this.#options = options
      this.#client.topic(this.#name, options)
    }
    return () => {
      this.#listeners.delete(listeners)
      // A component that is mounted again at once keeps the subscription.
      setTimeout(() => this.#listeners.size || this.#stop())
    }
  }

  #start(): void {
    const topic = (this.#topic = this.#client.topic(this.#name, this.#options))
    topic.on('message', (message) => {
      this.publish({ message })
      return Promise.all([...this.#listeners].map((one) => one.message?.(message)))
    })
    topic.on('recovered', (recovered) => {
      this.publish({ recovered })
      for (const one of this.#listeners) one.recovered?.(recovered)
    })
    topic.on('denied', ({ code, reason }) => this.publish({ denied: { code, reason } }))
  }

  #stop(): void {
    this.#topic?.unsubscribe()
    this.#topic = undefined
    this.#ended()
  }
}
