//! Every bound, with its reason. Those an operator may change are defaults here and settable in the
//! configuration; the others are part of the contract.

use std::time::Duration;

// -- the contract -----------------------------------------------------------------------------

/// Long enough for any identity provider's subject (OpenID Connect allows 255).
pub const USER_ID_BYTES_MAX: usize = 255;
/// A UUID is 36; the rest is room for the app's own scheme.
pub const DEVICE_ID_BYTES_MAX: usize = 128;
pub const APP_NAME_BYTES_MAX: usize = 64;
/// FCM and MQTT bridges both stay below it. An operator may raise it (`crate::topic::set_bytes_max`).
pub const TOPIC_BYTES_MAX: usize = 255;
/// What MQTT can say (MQTT 5 §1.5.4).
pub const TOPIC_BYTES_CEILING: usize = 65_535;
/// What PostgreSQL's index of names takes: an entry is at most 2,704 bytes, a third of a page.
pub const TOPIC_BYTES_POSTGRES: usize = 2_600;
/// Filters of one MQTT connection together, however long one may be: as much as the usual ones are at most.
pub const FILTERS_BYTES_MAX: usize = TOPICS_PER_DEVICE_MAX * TOPIC_BYTES_MAX;
/// Durable and session subscriptions of one device, together: FCM's bound is 2,000 an app instance.
pub const TOPICS_PER_DEVICE_MAX: usize = 1_000;
/// Shared subscriptions of one device: a worker takes part in some, and each is looked at for every message of its topics.
pub const SHARES_PER_DEVICE_MAX: usize = 16;
/// Groups of shared subscriptions of one app.
pub const SHARES_PER_APP_MAX: usize = 1_000;
/// Shared subscriptions of all devices of one app.
pub const SHARE_MEMBERS_PER_APP_MAX: usize = 10_000;
/// The name of the topic that every device of an app subscribes to.
pub const EVERYONE_TOPIC: &str = "$everyone";
/// The name of the topic on which an app's maintenance notices are told.
pub const MAINTENANCE_TOPIC: &str = "$maintenance";
/// FCM allows five topics in a condition.
pub const CONDITION_TOPICS_MAX: usize = 5;
pub const CONDITION_BYTES_MAX: usize = 2_048;
/// Recursion bound; five topics never need it.
pub const CONDITION_DEPTH_MAX: usize = 32;
/// Users or devices in one request.
pub const TARGETS_MAX: usize = 10_000;
pub const PRESENCE_USERS_MAX: usize = 1_000;
/// Lines of `POST /v1/notifications/batch` and `POST /v1/devices/batch`.
pub const BATCH_LINES_MAX: usize = 10_000;
/// FCM's maximum, and long enough for every other service.
pub const TTL_MAX: Duration = Duration::from_secs(28 * 86_400);
pub const TTL_DEFAULT: Duration = Duration::from_secs(7 * 86_400);
/// APNs' `apns-collapse-id`.
pub const COLLAPSE_KEY_BYTES_MAX: usize = 64;
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
pub const IDEMPOTENCY_WINDOW: Duration = Duration::from_secs(86_400);
/// `title`, `body`, `image`, `url` together, and `apns`/`fcm`/`webpush` each: a push service takes 4 KiB.
pub const NOTIFICATION_BYTES_MAX: usize = 4_096;
pub const TAGS_MAX: usize = 50;
pub const TAG_BYTES_MAX: usize = 255;
/// Locale, timezone, app version.
pub const ATTRIBUTE_BYTES_MAX: usize = 64;
pub const PUSH_TOKEN_BYTES_MAX: usize = 4_096;
/// API keys of one app that a cell is told of.
pub const KEYS_PER_APP_MAX: usize = 1_000;
/// Web Push endpoints of one device: a distributor asks for one for each of the phone's apps that it serves.
pub const ENDPOINTS_PER_DEVICE_MAX: usize = 64;
pub const ENDPOINT_LABEL_BYTES_MAX: usize = 255;
/// RFC 8030 §7.2: a payload of 4,096 bytes must never be refused as too large. Larger ones are.
pub const WEB_PUSH_BYTES_MAX: usize = 4_096;
/// RFC 8030 §5.4.
pub const WEB_PUSH_TOPIC_BYTES_MAX: usize = 32;
/// Names of experiments, variants and notices: they stand in every first call.
pub const LABEL_BYTES_MAX: usize = 64;
/// Experiments of one app that have not ended: each is looked at once for every user that comes anew.
pub const EXPERIMENTS_MAX: usize = 1_000;
pub const VARIANTS_MAX: usize = 20;
/// Shares of a variant among the sum of all.
pub const VARIANT_WEIGHT_MAX: u32 = 1_000_000;
/// Users and devices that are given a variant by name: testers, not audiences.
pub const OVERRIDES_MAX: usize = 1_000;
/// What a variant carries for the app's code.
pub const VARIANT_DATA_BYTES_MAX: usize = 4_096;
/// Maintenance notices of one app that are not over: all of them are in one retained message.
pub const NOTICES_MAX: usize = 20;
/// Text or data of a notice in one language: 20 × (2 + 2) KiB are 80 KiB in the retained message.
pub const NOTICE_BYTES_MAX: usize = 2_048;
/// Experiments that one request says were shown.
pub const EXPOSURES_MAX: usize = 100;
/// Newest messages of the inbox in the first call: what a screen shows at once.
pub const FIRST_CALL_MESSAGES: usize = 10;
pub const ACK_IDS_MAX: usize = 1_000;
pub const INBOX_PAGE_MAX: usize = 1_000;

// -- defaults of the configuration --------------------------------------------------------------

/// `data` of a notification.
pub const DATA_BYTES: usize = 4_096;
/// From when a request's body is asked for to its first byte.
pub const BODY_FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(10);
/// To the last byte of a body: 16 MiB at 5 Mbit/s.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes a second: the slowest mobile networks (GPRS) have four times as many.
pub const BODY_RATE_MIN: u32 = 1_024;
/// How long a client may take nothing of an answer: nginx's `send_timeout` is a minute.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// HTTP connections of one client network, providers apart: a browser opens six to a server, and forty
/// people behind one address do so at once.
pub const API_CONNECTIONS_PER_CLIENT: usize = 256;
/// Streams of a connection of HTTP/2 at once: RFC 9113 §6.5.2 recommends 100 or more.
pub const HTTP2_STREAMS: u32 = 128;
/// Connections of devices of one client network. Carriers put thousands of phones behind an address; an
/// address has 28,232 ephemeral ports of Linux to one server.
pub const CONNECTIONS_PER_CLIENT: u32 = 20_000;
/// A request body: 10,000 lines of a batch at 4 KiB would be 40 MiB; 16 MiB is what one request may
/// hold in memory.
pub const BODY_BYTES: usize = 16 << 20;
/// Request line and headers on the gateway port.
pub const HEAD_BYTES: usize = 16 << 10;
pub const HEADERS: usize = 64;
/// To one push service for one credential: APNs takes 1,000 streams on each, so some 40,000 pushes a second.
pub const PUSH_CONNECTIONS: usize = 4;
/// Push services answer within a second, a few after ten.
pub const PUSH_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Recipients in one batch of a campaign: one commit for each, and what `kill -9` may repeat.
pub const CAMPAIGN_BATCH: u32 = 500;
pub const CAMPAIGN_BATCH_MAX: u32 = 1_000;
/// Recipients taken and not answered: 4 connections of 1,000 streams and as much again waiting, for four
/// credentials; at about 1 KiB each 32 MiB.
pub const PUSH_IN_FLIGHT: usize = 32_768;
/// One message from a device: acks of 1,000 ids at 39 bytes are 39 KB.
pub const CLIENT_MESSAGE_BYTES: usize = 64 << 10;
/// A frame of a WebSocket that is shorter is not compressed: it would save less than 60 bytes, which is about what carries a
/// packet, for 15 µs (docs/performance.md).
pub const DEFLATE_BYTES_MIN: usize = 256;
/// What a device may send before its log-in is answered. The 4,096 log-ins that wait for a verification at once hold 64 MiB
/// at most.
pub const EARLY_BYTES: usize = 16 << 10;
/// Frames a second of one connection, averaged over the burst.
pub const FRAMES_PER_SECOND: u32 = 50;
pub const FRAMES_BURST: u32 = 200;
/// New connections a second of one node; above it devices are told to come back, or wait their turn under TLS.
pub const CONNECTS_PER_SECOND: u32 = 20_000;
/// A token has to arrive within this time of the connection.
pub const AUTH_TIMEOUT: Duration = Duration::from_secs(10);
/// A request head has to be complete within this time of its first byte.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the server pings: below the 5 minutes after which common NAT tables forget TCP.
pub const PING_INTERVAL: Duration = Duration::from_secs(240);
/// How long after a ping something must be heard.
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Unsent bytes of one connection above which `active` and `connected` messages are dropped.
pub const SEND_QUEUE_SOFT_BYTES: usize = 64 << 10;
/// Unsent bytes of one connection above which it is closed as a slow consumer.
pub const SEND_QUEUE_BYTES: usize = 256 << 10;
/// A connection whose unsent bytes do not move for this long is closed as a slow consumer.
pub const SEND_STALL: Duration = Duration::from_secs(30);
/// Sessions without a connection: 64 MiB are some 130,000 idle ones, or 16,000 with the largest will.
pub const PARKED_SESSIONS_BYTES: usize = 64 << 20;
/// Above [`PING_INTERVAL`], so that a connection whose protocol has pings never needs a probe.
pub const TCP_KEEPALIVE: Duration = Duration::from_secs(300);
/// A thread that works on one thing for this long will not end it. The longest that healthy nodes were seen to take is one
/// commit on a disk that hangs: network disks of clouds hang for up to half a minute when they fail over. Twice that still
/// leaves a dead node to an orchestrator within some minutes.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Rows kept for one device; the oldest make room.
pub const INBOX_ROWS: u32 = 1_000;
/// How far an inbox may exceed its limit before the store evicts the oldest rows down to the limit. So the store counts
/// a full inbox once in `rows / 16` messages instead of for each message.
pub const fn inbox_slack(rows: u32) -> u32 {
    rows / 16
}
/// Stored messages kept of one topic.
pub const TOPIC_LOG_ROWS: u64 = 10_000;
/// Messages read from the store at once for one device that catches up.
pub const BACKLOG_PAGE: usize = 100;
/// How long a notification's trace is kept after it was accepted.
pub const TRACE_RETENTION: Duration = Duration::from_secs(3 * 86_400);
/// Messages a minute to one Web Push endpoint, averaged over as many at once: chatty for a person, nothing for a node.
pub const ENDPOINT_MESSAGES_PER_MINUTE: u32 = 120;
/// Messages a second to all Web Push endpoints of one app, averaged over ten seconds: a tenth of what a node accepts.
pub const APP_ENDPOINT_MESSAGES_PER_SECOND: u32 = 500;
/// RFC 7518 §3.2: an HS256 key is at least as long as the hash, 256 bits.
pub const JWT_SECRET_BYTES_MIN: usize = 32;
pub const JWT_SECRET_BYTES_MAX: usize = 1_024;
/// Log-ins that may fail in a minute from one IPv4 address or IPv6 /64: an office behind one address may have sixty
/// devices with void tokens.
pub const FAILED_LOG_INS_PER_CLIENT: u32 = 60;
/// The same for one app, from everywhere: what a hundred clients at their own limit add.
pub const FAILED_LOG_INS_PER_APP: u32 = 6_000;
/// How long the HTTP response to a client over that limit is delayed. With the default `limits.connections_per_client`,
/// the node refuses at most 256 JWTs of one client a second.
pub const TOO_MANY_FAILURES_DELAY: Duration = Duration::from_secs(1);
/// Lifetime of a device token.
pub const DEVICE_TOKEN_TTL: Duration = Duration::from_secs(30 * 86_400);
/// How long what was read of a device for its first call is used again, though nothing says that it changed.
pub const FIRST_CALL_TTL: Duration = Duration::from_secs(30);
/// Answers to first calls in memory: 16,384 of 4 KiB.
pub const FIRST_CALL_BYTES: usize = 64 << 20;
