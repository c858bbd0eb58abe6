/**
 * Client of Noroshi for backends: Node.js, Deno, Bun, and Workers.
 *
 * `Noroshi` calls the API with an API key. `JwtSigner` signs the tokens of devices. `webhookNodeHandler`,
 * `webhookFetchHandler` and `verifyWebhook` receive what the service sends.
 *
 * @module
 */

export { ActivitiesApi } from './activities.js'
export type * from './api.js'
export { AppApi, ExperimentsApi, KeysApi, NoticesApi, PushCredentialsApi, TopicRulesApi } from './app.js'
export type { BatchOptions, IdempotentBatchOptions, LineResult, Lines } from './batch.js'
export { CampaignsApi, type CampaignDraft, type WaitOptions } from './campaigns.js'
export { AppleChannelsApi, ChannelsApi } from './channels.js'
export { DeviceEndpointsApi, DevicePreferencesApi, DevicePushTokensApi, DevicesApi, type PushTokenKind } from './devices.js'
export { NoroshiError, ProblemError, type ClientErrorCode, type ErrorCode, type ErrorContext, type ProblemCode } from './error.js'
export type { Attempt, IdempotentOptions, RequestOptions, TraceContext } from './http.js'
export { JwtSigner, type JwtClaims, type JwtSignerOptions, type PrivateJwk, type SigningKey } from './jwt.js'
export { Noroshi, type NoroshiOptions } from './noroshi.js'
export { NotificationsApi } from './notifications.js'
export { Pages } from './pages.js'
export type { Runtime } from './runtime.js'
export { TopicsApi } from './topics.js'
export { UserItemsApi, UserPreferencesApi, UsersApi } from './users.js'
export {
  verifyWebhook,
  webhookFetchHandler,
  webhookNodeHandler,
  type EventLine,
  type HandlerOptions,
  type NodeRequest,
  type NodeResponse,
  type PushBatch,
  type PushMessage,
  type PushRecipient,
  type PushResults,
  type TopicAnswer,
  type TopicQuestion,
  type VerifyOptions,
  type Webhook,
  type WebhookHandler,
  type WebhookHeaders,
} from './webhook.js'
