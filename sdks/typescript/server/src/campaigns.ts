import type {
  Campaign,
  CampaignChange,
  CampaignCount,
  CampaignEstimate,
  CampaignRecipient,
  Campaigns,
  CampaignsQuery,
  NewCampaign,
  Recipient,
} from './api.js'
import { batch, type BatchOptions, type LineResult, type Lines } from './batch.js'
import { NoroshiError, type ProblemCode } from './error.js'
import type { Http, IdempotentOptions, RequestOptions } from './http.js'
import { list, type Pages } from './pages.js'
import { sleep } from './runtime.js'

export interface WaitOptions extends RequestOptions {
  /** More states that end the wait, such as `paused`. */
  until?: readonly Campaign['state'][] | undefined
  /** Gets the campaign after each request. */
  onProgress?: ((campaign: Campaign) => void) | undefined
  /** Between requests: from half a second up to this. Default: 5,000. */
  pollMs?: number | undefined
}

/** A draft may lack what a campaign needs: it is complete when it starts. */
export type CampaignDraft = Partial<NewCampaign>

/** Campaigns: one message to many devices. */
export class CampaignsApi {
  readonly #http: Http

  /** @internal */
  constructor(http: Http) {
    this.#http = http
  }

  /**
   * Starts at once or at `start_at`. With `start: false`, or with `audience: { upload: true }`, it is a draft until it
   * is started.
   */
  async create(campaign: NewCampaign, { idempotencyKey = crypto.randomUUID(), ...options }: IdempotentOptions = {}): Promise<Campaign> {
    return (await this.#http.call('post', '/v1/campaigns', { body: campaign, idempotencyKey }, options)) as Campaign
  }

  /** Keeps a campaign although parts are missing or invalid. `problems` of the answer lists them. */
  async createDraft(campaign: CampaignDraft, { idempotencyKey = crypto.randomUUID(), ...options }: IdempotentOptions = {}): Promise<Campaign> {
    return (await this.#http.call('post', '/v1/campaigns', { body: campaign as NewCampaign, query: { draft: true }, idempotencyKey }, options)) as Campaign
  }

  /** Counts the audience; creates nothing. */
  async count(campaign: NewCampaign, options?: RequestOptions): Promise<CampaignCount> {
    return (await this.#http.call('post', '/v1/campaigns', { body: campaign, query: { dry_run: true }, safe: true }, options)) as CampaignCount
  }

  /** Newest first. */
  list(options: CampaignsQuery & RequestOptions = {}): Pages<Campaigns, Campaign> {
    return list(this.#http, '/v1/campaigns', {}, options, (page) => page.campaigns)
  }

  get(id: string, options?: RequestOptions): Promise<Campaign> {
    return this.#http.call('get', '/v1/campaigns/{id}', { path: { id } }, options)
  }

  /** Replaces fields of a campaign that has not started. Rejects with `revision_conflict` if another author changed it. */
  change(id: string, change: CampaignChange, options?: RequestOptions): Promise<Campaign> {
    return this.#http.call('patch', '/v1/campaigns/{id}', { path: { id }, body: change }, options)
  }

  /** Deletes a campaign that has not started, or that has ended. */
  delete(id: string, options?: RequestOptions): Promise<void> {
    return this.#http.call('delete', '/v1/campaigns/{id}', { path: { id } }, options)
  }

  /** Uploads the users of a campaign with `audience: { upload: true }`, a line each. Repeating a line changes nothing. */
  uploadRecipients(id: string, recipients: Lines<Recipient>, options: BatchOptions = {}): AsyncGenerator<LineResult<Recipient, { user: string }>, void, void> {
    return batch(this.#http, recipients, options, (lines, _, options, read) =>
      this.#http.lines('post', '/v1/campaigns/{id}/recipients', { path: { id }, lines, safe: true }, options, read),
    )
  }

  /** An uploaded user. */
  recipient(id: string, user: string, options?: RequestOptions): Promise<CampaignRecipient> {
    return this.#http.call('get', '/v1/campaigns/{id}/recipients/{user}', { path: { id, user } }, options)
  }

  /** Whom it would reach, and until when. */
  estimate(id: string, options?: RequestOptions): Promise<CampaignEstimate> {
    return this.#http.call('post', '/v1/campaigns/{id}/estimate', { path: { id }, safe: true }, options)
  }

  /** Starts a draft. With `revision`, only if nobody has changed it since. */
  start(id: string, { revision, ...options }: { revision?: number } & RequestOptions = {}): Promise<Campaign> {
    const start = () => this.#http.call('post', '/v1/campaigns/{id}/start', { path: { id }, query: { revision }, safe: true }, options)
    return this.#step(id, options, ['scheduled', 'running', 'done'], start)
  }

  pause(id: string, options: RequestOptions = {}): Promise<Campaign> {
    return this.#step(id, options, ['paused'], () => this.#http.call('post', '/v1/campaigns/{id}/pause', { path: { id }, safe: true }, options))
  }

  resume(id: string, options: RequestOptions = {}): Promise<Campaign> {
    return this.#step(id, options, ['running', 'done'], () => this.#http.call('post', '/v1/campaigns/{id}/resume', { path: { id }, safe: true }, options))
  }

  /** Ends a campaign. Messages that were sent stay sent. */
  abort(id: string, options: RequestOptions = {}): Promise<Campaign> {
    return this.#step(id, options, ['aborted'], () => this.#http.call('post', '/v1/campaigns/{id}/abort', { path: { id }, safe: true }, options))
  }

  /**
   * Waits until the campaign is done or aborted, and returns it. It waits for as long as that takes: pass a `signal`
   * such as `AbortSignal.timeout(600_000)` to limit it.
   */
  async wait(id: string, { until = [], onProgress, pollMs = 5_000, ...options }: WaitOptions = {}): Promise<Campaign> {
    for (let delay = Math.min(500, pollMs); ; delay = Math.min(pollMs, delay * 1.5)) {
      const campaign = await this.get(id, options)
      onProgress?.(campaign)
      if (['done', 'aborted', ...until].includes(campaign.state)) return campaign
      await sleep(this.#http.runtime, delay, options.signal)
    }
  }

  /** If an attempt got no answer, the next one finds the state that it wanted: that is a success. */
  async #step(id: string, options: RequestOptions, states: Campaign['state'][], step: () => Promise<Campaign>): Promise<Campaign> {
    try {
      return await step()
    } catch (error) {
      if (!(error instanceof NoroshiError && error.code === ('wrong_state' satisfies ProblemCode) && (error.attempts ?? 1) > 1)) throw error
      const campaign = await this.get(id, options)
      if (!states.includes(campaign.state)) throw error
      return campaign
    }
  }
}
