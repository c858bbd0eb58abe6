//! Every configuration key, in the order of the reference in `docs/configuration.md`, each with its type, default, range and
//! description. `types::limits` has the defaults of limits, with their reasons.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use noroshi_api::{RateLimits, Timing};
use noroshi_auth::{FailureLimits, ForwardingHeader, TrustedProxies};
use noroshi_telemetry::log::{self, Format};
use noroshi_types::limits::{self, TOPIC_BYTES_MAX};

use super::Config;
use super::reader::Reader;

/// Reads the fields of a struct in order. `field = method("section.key", …)` calls a method of [`Reader`]; the comment of the
/// field is the description of the key. `value(…)` is any other value.
macro_rules! keys {
    ($reader:ident, $name:ident { $(
        $(#[doc = $help:literal])*
        $field:ident = $method:ident($($argument:expr),* $(,)?) $(as $cast:ty)?,
    )* $(..$base:expr)? }) => {
        $name {
            $($field: keys!(@ $reader, $method, [$($help),*], $($argument),*) $(as $cast)?,)*
            $(..$base)?
        }
    };
    (@ $reader:ident, value, $help:tt, $value:expr) => { $value };
    (@ $reader:ident, $method:ident, [$($help:literal),+], $($argument:expr),*) => {
        $reader.$method($($argument,)* concat!($($help),+).trim_ascii_start())
    };
}

/// Declares a section of the configuration: a struct, and the keys of its fields as in [`keys`].
macro_rules! section {
    ($(#[$about:meta])* $name:ident($reader:ident $(, $given:ident: $given_type:ty)*) { $(
        $(#[doc = $help:literal])*
        $visible:vis $field:ident: $type:ty = $method:ident($($argument:expr),* $(,)?) $(as $cast:ty)?,
    )* }) => {
        $(#[$about])*
        pub struct $name {
            $($(#[doc = $help])* $visible $field: $type,)*
        }

        impl $name {
            pub(in crate::config) fn read($reader: &mut Reader $(, $given: $given_type)*) -> Self {
                keys!($reader, $name {
                    $($(#[doc = $help])* $field = $method($($argument),*) $(as $cast)?,)*
                })
            }
        }
    };
}

mod cluster;
mod events;
mod oidc;
mod outgoing;
mod profiling;
mod quota;
mod tracing;
mod xmpp;

pub use cluster::{Bus, Cluster, Front, Node, Sqs, Store};
pub use events::Events;
pub(super) use oidc::ANY_NAME;
pub use oidc::OpenIds;
pub use outgoing::{Egress, Push, Queue};
pub use profiling::Profiling;
pub use tracing::Tracing;
pub use xmpp::Xmpp;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

impl Config {
    /// All keys.
    pub(super) fn read(reader: &mut Reader) -> Config {
        let dev_help = "Creates the app `dev` with a key, even if other apps exist.";
        let dev = reader.switch("server.dev", false, dev_help);
        let server = Server::read(reader, dev);
        Config {
            limits: Limits::read(reader),
            publish: Publish::read(reader),
            gateway: Gateway::read(reader),
            mqtt: Mqtt::read(reader),
            xmpp: Xmpp::read(reader, &server),
            node: Node::read(reader),
            store: Store::read(reader),
            cluster: Cluster::read(reader),
            front: Front::read(reader),
            sqs: Sqs::read(reader),
            auth: Auth::read(reader),
            console: Console::read(reader),
            egress: Egress::read(reader, dev),
            push: Push::read(reader),
            web_push: web_push(reader),
            quotas: quota::read(reader),
            events: Events::read(reader, &server),
            tracing: Tracing::read(reader),
            profiling: Profiling::read(reader),
            server,
            log: Log::read(reader),
            entries: Vec::new(),
        }
    }
}

section! {
    #[derive(Debug, Clone)]
    Server(reader, dev: bool) {
        pub dev: bool = value(dev),
        /// Public address: the API, WebSocket and SSE. With `server.dev` the default is 127.0.0.1:8080.
        pub http: SocketAddr = address("server.http", public_address(dev)),
        /// HTTP/2 on the public and the admin address, in addition to HTTP/1.1: with TLS by ALPN (h2), in
        /// cleartext by prior knowledge.
        pub http2: bool = switch("server.http2", true),
        /// Public URL of this node, or of the load balancer in front of all gateways, returned to devices
        /// at registration. Unset: `node.advertise` of a live gateway; without a cluster, the request's
        /// Host header.
        pub public_url: Option<String> =
            optional("server.public_url", ("url", "http:// or https://, without a path"), public_url),
        /// A request to NAME.DOMAIN selects the app NAME for its JWT, like `?app=NAME`. Unset: host names
        /// select no app.
        pub app_domain: Option<String> = optional("server.app_domain", ("domain", "a host name"), app_domain),
        /// Address of the admin API, /metrics, /livez and /readyz.
        pub admin: SocketAddr = address("server.admin", (Ipv4Addr::LOCALHOST, 9090).into()),
        /// Folder of the database and generated keys.
        pub data: PathBuf = path("server.data", "./noroshi-data"),
        /// Threads that hold connections. 0: one per core.
        pub shards: usize = count("server.shards", 0, 0..=1_024, "threads") as usize,
        /// Threads that serve the API. 0: one per core.
        pub workers: usize = count("server.workers", 0, 0..=1_024, "threads") as usize,
        /// A thread that makes no progress for this long ends the node (exit code 70). Must exceed the
        /// longest disk write. 0s: never.
        pub stall_timeout: Duration =
            duration("server.stall_timeout", limits::STALL_TIMEOUT, Duration::ZERO..=HOUR),
        /// Proxies that are trusted to name the client of a request.
        pub proxies: TrustedProxies = value(trusted_proxies(reader)),
        /// For conformance suites only: echoes at /v1/echo, /engine.io/ and /socket.io/ (no devices there),
        /// MQTT without a token.
        pub conformance: bool = switch("server.conformance", false),
        pub tls: Option<TlsFiles> = value(tls(reader, ("tls.cert", "tls.key"), [
            "Certificate chain of the public address, PEM. Reloaded on SIGHUP.",
            "Private key of tls.cert, PEM.",
        ])),
        pub admin_tls: Option<TlsFiles> = value(tls(reader, ("admin.tls.cert", "admin.tls.key"), [
            "Certificate chain of the admin address, PEM. Reloaded on SIGHUP.",
            "Private key of admin.tls.cert, PEM.",
        ])),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Both or none.
fn tls(reader: &mut Reader, keys: (&'static str, &'static str), help: [&'static str; 2]) -> Option<TlsFiles> {
    let cert = reader.optional_path(keys.0, "a PEM file", help[0]);
    let key = reader.optional_path(keys.1, "a PEM file", help[1]);
    let (present, absent) = match (cert, key) {
        (Some(cert), Some(key)) => return Some(TlsFiles { cert, key }),
        (None, None) => return None,
        (Some(_), None) => keys,
        (None, Some(_)) => (keys.1, keys.0),
    };
    reader.problem(present, format!("requires {absent}"));
    None
}

/// A development node prints its key on the terminal, so it must not be reachable from the network.
fn public_address(dev: bool) -> SocketAddr {
    let ip = if dev { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
    SocketAddr::new(IpAddr::V4(ip), 8080)
}

fn trusted_proxies(reader: &mut Reader) -> TrustedProxies {
    keys!(reader, TrustedProxies {
        /// Networks of trusted proxies and load balancers. For connections from them, the client is the rightmost
        /// address in server.forwarding_header that is outside these networks. Headers of other connections are
        /// ignored.
        networks = networks("server.trusted_proxies", &[]),
        /// The header that every trusted proxy sets (Forwarded: RFC 7239). Only this one is trusted, since a proxy
        /// may pass on the other one from the client.
        header = one_of("server.forwarding_header", &[
            ("x-forwarded-for", ForwardingHeader::XForwardedFor),
            ("forwarded", ForwardingHeader::Forwarded),
        ]),
    })
}

section! {
    #[derive(Debug, Clone)]
    Limits(reader) {
        /// Size of `data` in a notification.
        pub data_bytes: usize = size("limits.data", limits::DATA_BYTES, 0..=MIB),
        /// Size of a request body.
        pub body_bytes: usize = size("limits.body", limits::BODY_BYTES, 4 * KIB..=256 * MIB),
        /// Length of a topic, topic filter or pattern of a rule. Up to 65535 B, as in MQTT; with PostgreSQL
        /// up to 2600 B, the limit of its index. Longer names use more memory for each subscribed topic,
        /// and in a path they require a larger limits.head.
        pub topic_bytes: usize =
            size("limits.topic", TOPIC_BYTES_MAX, TOPIC_BYTES_MAX..=limits::TOPIC_BYTES_CEILING),
        /// Size of the request line and headers.
        pub head_bytes: usize = size("limits.head", limits::HEAD_BYTES, KIB..=limits::HEAD_BYTES),
        /// Number of headers in a request.
        pub headers: usize =
            count("limits.headers", limits::HEADERS as u64, 16..=limits::HEADERS as u64, "headers") as usize,
        /// Size of a message from a device.
        pub client_message_bytes: usize =
            size("limits.client_message", limits::CLIENT_MESSAGE_BYTES, KIB..=16 * MIB),
        /// Concurrent API requests; further ones get 503 with Retry-After.
        pub requests_in_flight: usize =
            count("limits.requests_in_flight", 4_096, 1..=1_000_000, "requests") as usize,
        /// HTTP connections of one client (an IPv4 address or IPv6 /64), without those that used an API
        /// key. A further one evicts an idle one, or gets 503. 0: no limit. Connections from
        /// server.trusted_proxies do not count.
        pub connections_per_client: usize = count(
            "limits.connections_per_client",
            limits::API_CONNECTIONS_PER_CLIENT as u64,
            0..=1_000_000,
            "connections",
        ) as usize,
        /// Concurrent requests of one HTTP/2 connection. Every stream except one counts toward
        /// limits.connections_per_client.
        pub http2_streams: u32 =
            count("limits.http2_streams", limits::HTTP2_STREAMS.into(), 1..=10_000, "streams") as u32,
        pub timing: Timing = value(timing(reader)),
    }
}

fn timing(reader: &mut Reader) -> Timing {
    keys!(reader, Timing {
        /// Timeout for the first byte of a request body; then 408.
        body_first_byte =
            duration("limits.body_first_byte_timeout", limits::BODY_FIRST_BYTE_TIMEOUT, SECOND..=5 * MINUTE),
        /// Timeout for a whole request body; then 408.
        body = duration("limits.body_timeout", limits::BODY_TIMEOUT, SECOND..=HOUR),
        /// Minimum rate of a body: each time this many bytes arrive, the deadline moves from
        /// limits.body_first_byte_timeout by one second, up to limits.body_timeout. Reading this many bytes of a
        /// response offsets one second of limits.send_timeout.
        body_rate_min = count(
            "limits.body_rate_min",
            limits::BODY_RATE_MIN.into(),
            1..=u32::MAX.into(),
            "bytes per second",
        ) as u32,
        /// A client that blocks the sending of a response for this long is disconnected.
        send = duration("limits.send_timeout", limits::SEND_TIMEOUT, SECOND..=HOUR),
    })
}

section! {
    /// Publishing under overload.
    #[derive(Debug, Clone)]
    Publish(reader) {
        /// How long a request waits for room in the node's queues before it gets 503 with Retry-After. 0: not
        /// at all.
        pub wait_max: Duration =
            duration("publish.wait_max", limits::PUBLISH_WAIT_MAX, Duration::ZERO..=MINUTE),
        /// How long an accepted message may wait in a queue of the node, by the node's present speed. Above
        /// it, requests wait. Less shortens latency under overload; too little costs throughput.
        pub delay_max: Duration = duration(
            "publish.delay_max",
            limits::PUBLISH_DELAY_MAX,
            Duration::from_millis(5)..=10 * SECOND,
        ),
        /// How long an `active` or `connected` message may wait for its connections, for example while the node
        /// stalls. Older ones are dropped as `slow`. Stored messages are never dropped.
        pub live_age_max: Duration =
            duration("publish.live_age_max", limits::LIVE_AGE_MAX, SECOND..=HOUR),
    }
}

section! {
    #[derive(Debug, Clone)]
    Gateway(reader) {
        /// Connections of this node. 0: as many as the file descriptor limit allows.
        pub connections_max: usize =
            count("gateway.connections_max", 0, 0..=100_000_000, "connections") as usize,
        /// Connections that have not authenticated yet, including handshakes. Above it, the oldest is
        /// closed. 0: a quarter of all, at most 16,384.
        pub unauthenticated_max: usize =
            count("gateway.unauthenticated_max", 0, 0..=100_000_000, "connections") as usize,
        /// Connections of devices from one client (an IPv4 address or IPv6 /64; behind
        /// server.trusted_proxies the forwarded one, or no limit over TCP without HTTP). Mobile carriers
        /// put thousands of phones behind one address. 0: no limit.
        pub connections_per_client: u32 = count(
            "gateway.connections_per_client",
            limits::CONNECTIONS_PER_CLIENT.into(),
            0..=u32::MAX.into(),
            "connections",
        ) as u32,
        /// New connections per second. Above it, devices are asked to retry later, or wait with TLS.
        pub connects_per_second: u32 =
            positive("gateway.connects_per_second", limits::CONNECTS_PER_SECOND, "connections per second"),
        /// Frames per second that one device may send, averaged over the burst.
        pub frames_per_second: u32 =
            positive("gateway.frames_per_second", limits::FRAMES_PER_SECOND, "frames per second"),
        /// Frames that one device may send in a burst.
        pub frames_burst: u32 = positive("gateway.frames_burst", limits::FRAMES_BURST, "frames"),
        /// Timeout for the token of a new connection.
        pub auth_timeout: Duration =
            duration("gateway.auth_timeout", limits::AUTH_TIMEOUT, SECOND..=5 * MINUTE),
        /// Timeout for a complete request head.
        pub head_timeout: Duration =
            duration("gateway.head_timeout", limits::HEAD_TIMEOUT, SECOND..=5 * MINUTE),
        /// Interval between pings of an idle connection.
        pub ping_interval: Duration = duration("gateway.ping_interval", limits::PING_INTERVAL, SECOND..=HOUR),
        /// Timeout for any bytes from the device after a ping.
        pub ping_timeout: Duration = duration("gateway.ping_timeout", limits::PING_TIMEOUT, SECOND..=HOUR),
        /// Unsent bytes of a connection above which `active` and `connected` messages are dropped.
        pub send_queue_soft_bytes: usize =
            size("gateway.send_queue_soft", limits::SEND_QUEUE_SOFT_BYTES, KIB..=64 * MIB),
        /// Unsent bytes of a connection above which it is closed.
        pub send_queue_bytes: usize = size("gateway.send_queue", limits::SEND_QUEUE_BYTES, KIB..=256 * MIB),
        /// A connection that reads none of its unsent bytes for this long is closed.
        pub send_stall: Duration = duration("gateway.send_stall", limits::SEND_STALL, SECOND..=HOUR),
        /// Memory for sessions without a connection (in-flight messages, wills), for MQTT and for XMPP
        /// each. When full, the oldest session of the app that uses most of it is evicted.
        pub parked_sessions_bytes: usize =
            size("gateway.parked_sessions", limits::PARKED_SESSIONS_BYTES, 64 * KIB..=64 * 1024 * MIB),
        /// Idle time before TCP keepalive probes the peer. Without an answer, the connection closes a
        /// minute later.
        pub tcp_keepalive: Duration =
            duration("gateway.tcp_keepalive", limits::TCP_KEEPALIVE, SECOND..=2 * HOUR),
        /// Passes messages for many connections to the kernel in one call, if the kernel and the build
        /// support it (Linux io_uring).
        pub io_uring: bool = switch("gateway.io_uring", true),
        /// Compresses messages of WebSockets whose clients offer permessage-deflate (RFC 7692).
        pub websocket_deflate: bool = switch("gateway.websocket_deflate", false),
        pub drain: Drain = value(Drain::read(reader)),
    }
}

section! {
    #[derive(Debug, Clone)]
    Drain(reader) {
        /// Connections moved per second when the node stops.
        pub rate: u32 = positive("gateway.drain.rate", 1_000, "connections per second"),
        /// Moved devices reconnect after a random delay of up to this time.
        pub spread: Duration = duration("gateway.drain.spread", 5 * SECOND, Duration::ZERO..=HOUR),
        /// Connections that are still open after this time are closed.
        pub deadline: Duration = duration("gateway.drain.deadline", 30 * SECOND, Duration::ZERO..=HOUR),
    }
}

section! {
    /// Listeners of MQTT. Each is optional.
    #[derive(Debug, Clone, PartialEq, Eq)]
    Mqtt(reader) {
        /// Address for MQTT without TLS, such as 0.0.0.0:1883. Unset: none. MQTT over WebSocket is always
        /// available at /mqtt of the public address.
        pub listen: Option<SocketAddr> = optional_address("mqtt.listen", 1883),
        /// Address for MQTT over TLS, such as 0.0.0.0:8883, with the certificate of tls.cert. Unset: none.
        pub tls_listen: Option<SocketAddr> = optional_address("mqtt.tls_listen", 8883),
        /// Public URL of MQTT over TCP (mqtts:// with TLS), which nodes with the role api return as
        /// mqtt_tcp. One name for all nodes, such as that of a TCP load balancer. Unset: not returned.
        pub public_url: Option<String> = optional(
            "mqtt.public_url",
            ("url", "mqtts:// or mqtt:// and HOST:PORT"),
            |text| tcp_url(text, ["mqtts", "mqtt"]),
        ),
        /// Servers to which a draining or full node redirects MQTT 5 clients over TCP and TLS (Server
        /// Reference). Unset: the node asks clients to use another server, and they reconnect to the same
        /// name.
        pub redirect: Option<String> =
            optional("mqtt.redirect", ("text", "HOST:PORT, separated by spaces"), servers),
        /// The redirect to mqtt.redirect is permanent: 0x9D instead of 0x9C.
        pub moved: bool = switch("mqtt.moved", false),
    }
}

fn servers(text: &str) -> Result<(), String> {
    match text.split(' ').try_for_each(host_and_port) {
        Ok(()) if text.len() <= 1_024 => Ok(()),
        _ => Err("HOST:PORT, or several separated by a space, such as \"push2.example.com:1883\"".to_owned()),
    }
}

section! {
    #[derive(Debug, Clone)]
    Auth(reader) {
        /// Lifetime of a device token.
        pub device_token_ttl: Duration =
            duration("auth.device_token_ttl", limits::DEVICE_TOKEN_TTL, MINUTE..=3_650 * DAY),
        pub failures: FailureLimits = value(failure_limits(reader)),
    }
}

section! {
    /// The web console.
    #[derive(Debug, Clone)]
    Console(reader) {
        /// Serves the console at /console of the admin address.
        pub enabled: bool = switch("console.enabled", true),
        /// Serves the console at the public address too.
        pub public: bool = switch("console.public", false),
        /// A session ends when it was not used for this long.
        pub session_idle: Duration = duration("console.session_idle", 12 * HOUR, MINUTE..=30 * DAY),
        /// A session ends this long after its log-in.
        pub session_max: Duration = duration("console.session_max", 7 * DAY, MINUTE..=90 * DAY),
        /// A campaign with more recipients needs the approval of a second person, and its start a recent log-in. 0:
        /// none does.
        pub large_campaign: u64 = count("console.large_campaign", 10_000, 0..=1_000_000_000, "recipients"),
        /// API keys need the approval too.
        pub approve_keys: bool = switch("console.approve_keys", false),
        /// Retention of the audit log.
        pub audit_retention: Duration = duration("console.audit_retention", 400 * DAY, DAY..=3_650 * DAY),
        /// Origin at which browsers reach the console. OpenID providers return people to it. Unset: with `server.dev`
        /// the address `server.admin`.
        pub url: Option<String> = optional("console.url", ("url", "https:// or http:// and a host"), public_url),
        pub oidc: OpenIds = value(OpenIds::read(reader)),
    }
}

fn failure_limits(reader: &mut Reader) -> FailureLimits {
    keys!(reader, FailureLimits {
        /// Failed log-ins per minute from one IPv4 address or IPv6 /64. Beyond it, the node answers failures with a
        /// retry delay, delays its HTTP responses to JWTs by one second, and verifies at most 20 new RS256 or ES256
        /// tokens per second.
        per_client_per_minute =
            positive("auth.failures_per_client", limits::FAILED_LOG_INS_PER_CLIENT, "failures per minute"),
        /// Failed log-ins per minute of one app, from all clients. Failures of a client beyond its own limit do not
        /// count. Beyond it, 100 such tokens of the app are verified per second.
        per_app_per_minute =
            positive("auth.failures_per_app", limits::FAILED_LOG_INS_PER_APP, "failures per minute"),
    })
}

fn web_push(reader: &mut Reader) -> RateLimits {
    keys!(reader, RateLimits {
        /// Messages to one Web Push endpoint at this node, as average and burst. Further ones get 429 with
        /// Retry-After.
        endpoint_per_minute =
            positive("web_push.endpoint_rate", limits::ENDPOINT_MESSAGES_PER_MINUTE, "messages per minute"),
        /// Messages to all Web Push endpoints of one app at this node, as average; the burst is ten times
        /// as high.
        app_per_second =
            positive("web_push.app_rate", limits::APP_ENDPOINT_MESSAGES_PER_SECOND, "messages per second"),
    })
}

section! {
    #[derive(Debug, Clone)]
    Log(reader) {
        /// Log level, on standard error.
        pub level: String = text(
            "log.level",
            "info",
            ("level", "off, error, warn, info, debug, trace, or a list with target=level"),
            level,
        ),
        /// Log format.
        pub format: Format = one_of("log.format", &[("text", Format::Text), ("json", Format::Json)]),
    }
}

fn level(text: &str) -> Result<(), String> {
    log::check(text).map_err(|error| error.to_string())
}

fn public_url(text: &str) -> Result<(), String> {
    let expected = || "a URL without a path, such as \"https://push.example.com\"".to_owned();
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).ok_or_else(expected)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    match !rest.is_empty() && rest.chars().all(plain) {
        true => Ok(()),
        false => Err(expected()),
    }
}

fn app_domain(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    match !text.is_empty() && text.chars().all(plain) && !text.starts_with('.') && !text.ends_with('.') {
        true => Ok(()),
        false => Err("a host name without a port, such as \"push.example.com\"".to_owned()),
    }
}

/// The first scheme is the one with TLS.
fn tcp_url(text: &str, schemes: [&str; 2]) -> Result<(), String> {
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)?.strip_prefix("://"));
    let parts = rest.and_then(|rest| rest.rsplit_once(':'));
    let is_port = |port: &str| {
        let plain = port.bytes().all(|byte| byte.is_ascii_digit());
        plain && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    match parts {
        Some((host, port)) if is_host(host) && is_port(port) => Ok(()),
        _ => {
            let [tls, plain] = schemes;
            Err(format!("{tls}://HOST:PORT or {plain}://HOST:PORT, such as \"{tls}://push.example.com:443\""))
        }
    }
}

/// A name, or an address in the form of URLs.
fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => xmpp::domain_name(text).is_ok(),
    }
}

fn host_and_port(text: &str) -> Result<(), String> {
    let parts = text.rsplit_once(':');
    match parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
    {
        true => Ok(()),
        false => Err("HOST:PORT, such as \"push2.example.com:5222\"".to_owned()),
    }
}
