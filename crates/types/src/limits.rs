//! Every limit, with its reason. Limits that operators may change are defaults here and configurable; the
//! others are part of the contract.

use std::time::Duration;

// -- the contract -----------------------------------------------------------------------------

/// Sufficient for the subject of any identity provider (OpenID Connect allows 255).
pub const USER_ID_BYTES_MAX: usize = 255;
/// A UUID takes 36; the rest leaves space for other schemes.
pub const DEVICE_ID_BYTES_MAX: usize = 128;
pub const APP_NAME_BYTES_MAX: usize = 64;
/// FCM and MQTT bridges stay below it. Operators may raise it (`crate::topic::set_bytes_max`).
pub const TOPIC_BYTES_MAX: usize = 255;
/// The maximum of MQTT strings (MQTT 5 §1.5.4).
pub const TOPIC_BYTES_CEILING: usize = 65_535;
/// The maximum for PostgreSQL's index of names: an index entry is at most 2,704 bytes, a third of a page.
pub const TOPIC_BYTES_POSTGRES: usize = 2_600;
/// All filters of one MQTT connection together, for longer topic limits: the same total as with the default
/// limit.
pub const FILTERS_BYTES_MAX: usize = TOPICS_PER_DEVICE_MAX * TOPIC_BYTES_MAX;
/// Durable and session subscriptions of a device together; FCM's limit is 2,000 per app instance.
pub const TOPICS_PER_DEVICE_MAX: usize = 1_000;
/// Shared subscriptions per device: a worker joins a few, and each is checked for every message of its
/// topics.
pub const SHARES_PER_DEVICE_MAX: usize = 16;
/// Groups of shared subscriptions per app.
pub const SHARES_PER_APP_MAX: usize = 1_000;
/// Shared subscriptions of all devices of an app.
pub const SHARE_MEMBERS_PER_APP_MAX: usize = 10_000;
/// The topic that every device of an app subscribes to.
pub const EVERYONE_TOPIC: &str = "$everyone";
/// The topic of an app's maintenance notices.
pub const MAINTENANCE_TOPIC: &str = "$maintenance";
/// FCM's limit of topics per condition.
pub const CONDITION_TOPICS_MAX: usize = 5;
pub const CONDITION_BYTES_MAX: usize = 2_048;
/// Limit of recursion, which five topics never reach.
pub const CONDITION_DEPTH_MAX: usize = 32;
/// Users or devices per request.
pub const TARGETS_MAX: usize = 10_000;
pub const PRESENCE_USERS_MAX: usize = 1_000;
/// Lines of `POST /v1/notifications/batch` and `POST /v1/devices/batch`.
pub const BATCH_LINES_MAX: usize = 10_000;
/// FCM's maximum, and sufficient for every other service.
pub const TTL_MAX: Duration = Duration::from_secs(28 * 86_400);
pub const TTL_DEFAULT: Duration = Duration::from_secs(7 * 86_400);
/// The limit of APNs' `apns-collapse-id`.
pub const COLLAPSE_KEY_BYTES_MAX: usize = 64;
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
pub const IDEMPOTENCY_WINDOW: Duration = Duration::from_secs(86_400);
/// All fields of `notification` together, and `apns`/`fcm`/`webpush` each: push services accept 4 KiB.
pub const NOTIFICATION_BYTES_MAX: usize = 4_096;
/// Names in a notification: sound, thread, category, channel, icon. Vendors state no limit; names of files have at most 255.
pub const NOTIFICATION_NAME_BYTES_MAX: usize = 255;
/// Buttons of a notification: iOS shows at most four, Android three, Chromium two.
pub const ACTIONS_MAX: usize = 4;
/// The id of a button.
pub const ACTION_ID_BYTES_MAX: usize = 64;
/// The title of a button. Systems cut it off earlier.
pub const ACTION_TITLE_BYTES_MAX: usize = 128;
/// FCM's `notification_count` is an `int32`; APNs and browsers accept more.
pub const BADGE_MAX: u32 = i32::MAX as u32;
/// FCM: `^[a-zA-Z0-9-_.~%]{1,50}$`.
pub const ANALYTICS_LABEL_BYTES_MAX: usize = 50;
/// A language tag (RFC 5646 §4.4.1 recommends room for 35).
pub const LANGUAGE_TAG_BYTES_MAX: usize = 35;
/// Warnings in one answer: a campaign may have many languages.
pub const WARNINGS_MAX: usize = 100;
pub const TAGS_MAX: usize = 50;
pub const TAG_BYTES_MAX: usize = 255;
/// Locale, timezone, app version.
pub const ATTRIBUTE_BYTES_MAX: usize = 64;
pub const PUSH_TOKEN_BYTES_MAX: usize = 4_096;
/// An app has one token for messages and calls each, and one for each widget, control and running Live Activity.
pub const PUSH_TOKENS_PER_DEVICE_MAX: usize = 32;
/// A UUID takes 36; identifiers of controls are reverse domain names.
pub const PUSH_TOKEN_NAME_BYTES_MAX: usize = 64;
/// The token of a Live Activity: one is active for at most 8 hours, and then stays on the Lock Screen for at most 4.
pub const LIVE_ACTIVITY_TOKEN_TTL: Duration = Duration::from_secs(12 * 3_600);
/// The life of a Live Activity, and its default: 8 hours active and 4 on the Lock Screen.
pub const ACTIVITY_TTL_MAX: Duration = Duration::from_secs(12 * 3_600);
/// Live Activities of an app that are stored, also those that ended: one order of each customer of a large app.
pub const ACTIVITIES_PER_APP_MAX: u64 = 250_000;
/// Devices of one Live Activity. An update marks one row for 500 of them.
pub const ACTIVITY_DEVICES_MAX: u64 = 1_000_000;
/// Devices that are updated together.
pub const ACTIVITY_SLICE_DEVICES: usize = 500;
/// Records of requests to push services that a slice keeps, of accepted pushes and of failures each:
/// 20 × 500 requests × 100 bytes = 1 MB.
pub const ACTIVITY_SLICE_RECORDS: usize = 20;
/// How long an activity can be looked up after it ended.
pub const ACTIVITY_RETENTION: Duration = Duration::from_secs(24 * 3_600);
/// The content state of an activity, its attributes, and its fields for Android. Push services limit the whole payload
/// to 4 KiB.
pub const ACTIVITY_STATE_BYTES_MAX: usize = 4_096;
/// API keys per app that a cell receives.
pub const KEYS_PER_APP_MAX: usize = 1_000;
/// The latest expiry of a new API key: 10 years, with up to 3 leap days. A later one is a mistake, such as
/// milliseconds taken for seconds.
pub const KEY_LIFETIME_MAX: Duration = Duration::from_secs(3_653 * 86_400);
/// Doctor warns this long before an API key expires: time to deploy another one.
pub const KEY_EXPIRES_SOON: Duration = Duration::from_secs(14 * 86_400);
/// Web Push endpoints per device: a distributor requests one for each app on the phone that it serves.
pub const ENDPOINTS_PER_DEVICE_MAX: usize = 64;
pub const ENDPOINT_LABEL_BYTES_MAX: usize = 255;
/// RFC 8030 §7.2: payloads of up to 4,096 bytes must be accepted. Larger ones are rejected.
pub const WEB_PUSH_BYTES_MAX: usize = 4_096;
/// RFC 8030 §5.4.
pub const WEB_PUSH_TOPIC_BYTES_MAX: usize = 32;
/// Channels of an app in one environment: as many as Apple allows a bundle id.
pub const CHANNELS_MAX: usize = 10_000;
/// Broadcasts of a channel that wait. A score that changes each second waits for a quarter of an hour of Apple's
/// failure; 5 KiB each make 5 MB.
pub const BROADCASTS_WAITING_MAX: usize = 1_000;
/// Names of experiments, variants and notices, which every first call contains.
pub const LABEL_BYTES_MAX: usize = 64;
/// Active experiments per app: each is evaluated once for every new user.
pub const EXPERIMENTS_MAX: usize = 1_000;
pub const VARIANTS_MAX: usize = 20;
/// A variant's share of the sum of all weights.
pub const VARIANT_WEIGHT_MAX: u32 = 1_000_000;
/// Users and devices with an explicitly assigned variant: testers, not audiences.
pub const OVERRIDES_MAX: usize = 1_000;
/// Data that a variant carries for the app.
pub const VARIANT_DATA_BYTES_MAX: usize = 4_096;
/// Active maintenance notices per app: one retained message contains all.
pub const NOTICES_MAX: usize = 20;
/// Text or data of a notice in one language: 20 × (2 + 2) KiB are 80 KiB in the retained message.
pub const NOTICE_BYTES_MAX: usize = 2_048;
/// Experiments per exposure report.
pub const EXPOSURES_MAX: usize = 100;
/// Inbox messages in the first call: as many as a screen shows at once.
pub const FIRST_CALL_MESSAGES: usize = 10;
pub const ACK_IDS_MAX: usize = 1_000;
pub const INBOX_PAGE_MAX: usize = 1_000;
/// Users or devices of a request for items: a commit writes a row and three index entries for each, which takes some
/// 30 ms.
pub const ITEM_TARGETS_MAX: usize = 1_000;
/// Items per request that changes them, and in a report to devices: a few screens of a list.
pub const ITEM_IDS_MAX: usize = 100;
/// Categories in one answer: 100 × 80 bytes are 8 KiB.
pub const ITEM_CATEGORIES_MAX: usize = 100;
/// How long an item is listed unless its request states otherwise: lists of a notification centre show weeks.
pub const ITEM_RETENTION: Duration = Duration::from_secs(30 * 86_400);
pub const ITEM_RETENTION_MIN: Duration = Duration::from_secs(60);
pub const ITEM_RETENTION_MAX: Duration = Duration::from_secs(365 * 86_400);
/// Muted topics of a user or a device: with names of 200 bytes, 20 KB.
pub const MUTED_TOPICS_MAX: usize = 100;
/// Categories with preferences, of a user or a device, and essential categories of an app.
pub const PREFERENCE_CATEGORIES_MAX: usize = 100;
/// The highest daily cap. The ids that were counted are kept: 1,000 × 16 bytes for a device and category.
pub const DAILY_MAX_MAX: u32 = 1_000;
/// The longest IANA name has 32 bytes.
pub const TIMEZONE_BYTES_MAX: usize = 64;

// -- defaults of the configuration --------------------------------------------------------------

/// `data` of a notification.
pub const DATA_BYTES: usize = 4_096;
/// Time between the request for a body and its first byte.
pub const BODY_FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time until the last byte of a body: 16 MiB at 5 Mbit/s.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes per second: the slowest mobile networks (GPRS) provide four times as many.
pub const BODY_RATE_MIN: u32 = 1_024;
/// How long a client may read nothing of a response: nginx's `send_timeout` is a minute.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// HTTP connections per client network, except those of providers: a browser opens six per server, so this
/// serves forty people behind one address.
pub const API_CONNECTIONS_PER_CLIENT: usize = 256;
/// Concurrent streams per HTTP/2 connection: RFC 9113 §6.5.2 recommends at least 100.
pub const HTTP2_STREAMS: u32 = 128;
/// Device connections per client network. Carriers put thousands of phones behind one address; Linux provides
/// 28,232 ephemeral ports per address and server.
pub const CONNECTIONS_PER_CLIENT: u32 = 20_000;
/// How long a publish request waits for room before it is rejected: longer than any burst that the node absorbs, and
/// shorter than the timeouts of providers.
pub const PUBLISH_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long an accepted message may wait in a queue of the node. Half of what a user notices; enough work for the
/// store's group commits, and for a shard to write messages of one topic together.
pub const PUBLISH_DELAY_MAX: Duration = Duration::from_millis(100);
/// How long a message that is only for connected devices may wait for its shard. Publishing bounds the wait to
/// [`PUBLISH_DELAY_MAX`]; a message waits longer only if the node stalls.
pub const LIVE_AGE_MAX: Duration = Duration::from_secs(5);
/// Publish requests that wait for one of the node's three queues: a quarter of the concurrent requests, so that others
/// still have room.
pub const PUBLISHES_WAITING_MAX: usize = 1_024;
/// A request body: 10,000 batch lines of 4 KiB would take 40 MiB; 16 MiB is what one request may hold in
/// memory.
pub const BODY_BYTES: usize = 16 << 20;
/// Request line and headers on the gateway port.
pub const HEAD_BYTES: usize = 16 << 10;
pub const HEADERS: usize = 64;
/// Connections to one push service per credential: APNs accepts 1,000 streams on each, so about 40,000 pushes
/// per second.
pub const PUSH_CONNECTIONS: usize = 4;
/// Push services usually answer within a second, sometimes after ten.
pub const PUSH_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Recipients per campaign batch: each batch is one commit, and the most that `kill -9` may repeat.
pub const CAMPAIGN_BATCH: u32 = 500;
pub const CAMPAIGN_BATCH_MAX: u32 = 1_000;
/// Recipients taken and not answered: 4 connections of 1,000 streams and as many waiting, for four
/// credentials; 32 MiB at about 1 KiB each.
pub const PUSH_IN_FLIGHT: usize = 32_768;
/// One message from a device: acks of 1,000 ids at 39 bytes take 39 KB.
pub const CLIENT_MESSAGE_BYTES: usize = 64 << 10;
/// Shorter WebSocket messages are not compressed: that would save less than 60 bytes, about the overhead of a
/// packet, for 15 µs (docs/performance.md).
pub const DEFLATE_BYTES_MIN: usize = 256;
/// Bytes that a device may send before its log-in is answered. With 4,096 concurrent verifications at most 64
/// MiB.
pub const EARLY_BYTES: usize = 16 << 10;
/// Frames per second of one connection, averaged over the burst.
pub const FRAMES_PER_SECOND: u32 = 50;
pub const FRAMES_BURST: u32 = 200;
/// New connections per second of one node; above it, devices are asked to retry, or wait in a queue with TLS.
pub const CONNECTS_PER_SECOND: u32 = 20_000;
/// Time until the token must arrive after the connection starts.
pub const AUTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time until the request head must be complete after its first byte.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The server's ping interval: below the 5 minutes after which common NAT tables drop idle TCP connections.
pub const PING_INTERVAL: Duration = Duration::from_secs(240);
/// Time until the client must answer a ping.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Unsent bytes of one connection above which `active` and `connected` messages are dropped.
pub const SEND_QUEUE_SOFT_BYTES: usize = 64 << 10;
/// Unsent bytes of one connection above which it is closed as a slow consumer.
pub const SEND_QUEUE_BYTES: usize = 256 << 10;
/// A connection whose unsent bytes do not move for this long is closed as a slow consumer.
pub const SEND_STALL: Duration = Duration::from_secs(30);
/// Sessions without a connection: 64 MiB hold about 130,000 idle ones, or 16,000 with the largest will.
pub const PARKED_SESSIONS_BYTES: usize = 64 << 20;
/// Above [`PING_INTERVAL`], so that connections of protocols with pings never need a probe.
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(300);
/// A thread that works on one item for this long has stalled. The longest that healthy nodes take is one
/// commit on a hanging disk: cloud disks hang for up to half a minute during failover. Twice that still lets
/// an orchestrator replace a dead node within minutes.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Rows kept per device; the oldest are evicted.
pub const INBOX_ROWS: u32 = 1_000;
/// How far an inbox may exceed its limit before the store evicts the oldest rows down to the limit. The store
/// therefore counts a full inbox once per `rows / 16` messages instead of for each message.
pub const fn inbox_slack(rows: u32) -> u32 {
    rows / 16
}
/// Items per user; the oldest are removed. A person scrolls through a few hundred. Reads and changes of all items of a
/// user take milliseconds.
pub const ITEM_ROWS: u32 = 1_000;
/// Stored messages per topic.
pub const TOPIC_LOG_ROWS: u64 = 10_000;
/// Messages read from the store at once for one device during catch-up.
pub const BACKLOG_PAGE: usize = 100;
/// How long a notification's trace is kept after it was accepted.
pub const TRACE_RETENTION: Duration = Duration::from_secs(3 * 86_400);
/// How long the store keeps a topic that nothing needs. A client that returns within this time recovers from its last
/// position: it outlasts holidays, and topics that are used once do not pile up.
pub const UNUSED_TOPIC_RETENTION: Duration = Duration::from_secs(7 * 86_400);
/// Messages per minute to one Web Push endpoint, averaged over as many at once: many for a person, few for a
/// node.
pub const ENDPOINT_MESSAGES_PER_MINUTE: u32 = 120;
/// Messages per second to all Web Push endpoints of an app, averaged over ten seconds: a tenth of a node's
/// capacity.
pub const APP_ENDPOINT_MESSAGES_PER_SECOND: u32 = 500;
/// RFC 7518 §3.2: an HS256 key must be at least as long as the hash, 256 bits.
pub const JWT_SECRET_BYTES_MIN: usize = 32;
pub const JWT_SECRET_BYTES_MAX: usize = 1_024;
/// Failed log-ins per minute from one IPv4 address or IPv6 /64: an office behind one address may have sixty
/// devices with invalid tokens.
pub const FAILED_LOG_INS_PER_CLIENT: u32 = 60;
/// The same per app, from all addresses: the total of a hundred clients at their own limit.
pub const FAILED_LOG_INS_PER_APP: u32 = 6_000;
/// How long the HTTP response to a client above that limit is delayed. With the default
/// `limits.connections_per_client`, the node rejects at most 256 JWTs of one client per second.
pub const TOO_MANY_FAILURES_DELAY: Duration = Duration::from_secs(1);
/// Lifetime of a device token.
pub const DEVICE_TOKEN_TTL: Duration = Duration::from_secs(30 * 86_400);
/// How long a device's cached first call is used without a change notification.
pub const FIRST_CALL_TTL: Duration = Duration::from_secs(30);
/// Cached responses to first calls: 16,384 of 4 KiB.
pub const FIRST_CALL_BYTES: usize = 64 << 20;
/// People of a node or cluster who use the console.
pub const PEOPLE_MAX: u64 = 10_000;
/// Browsers in which one person is logged in.
pub const SESSIONS_OF_A_PERSON_MAX: usize = 50;
/// Invitations and log-in links that were not used.
pub const TICKETS_MAX: u64 = 1_000;
