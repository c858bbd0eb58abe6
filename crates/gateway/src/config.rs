//! Configuration of the gateway. Defaults are those of `types::limits`, with their reasons; `node` fills this from the
//! configuration file and validates it.
//!
//! May use `io::tls` and `wire`.

use std::net::SocketAddr;
use std::time::Duration;

use noroshi_auth::TrustedProxies;
use noroshi_protocol::{engine_io, http, mqtt, socket_io};
use noroshi_supervision::Threads;
use noroshi_types::limits;

use crate::io::tls;
use crate::wire::Speaks;

pub mod xmpp;

/// One address to listen on.
#[derive(Debug, Clone)]
pub struct Listener {
    pub speaks: Speaks,
    /// Port 0 lets the kernel choose; `Bound::local_addrs` returns the choice.
    pub address: SocketAddr,
    /// Plaintext without.
    pub tls: Option<tls::Acceptor>,
}

/// Configuration of both layers of Socket.IO.
#[derive(Debug, Clone, Default)]
pub struct SocketIo {
    pub engine: engine_io::Config,
    pub conversation: socket_io::Config,
}

impl SocketIo {
    /// What the conformance suites expect of a server that they cannot configure.
    pub fn conformance() -> Self {
        let mut it = Self::default();
        (it.engine.ping_interval_ms, it.engine.ping_timeout_ms) = (300, 200);
        it.engine.payload_bytes_max = 1_000_000;
        it.engine.queue_bytes_max = 4_000_000;
        it.conversation.limits.binary_bytes = 1_000_000;
        it.conversation.connect_timeout_ms = 1_000;
        it
    }
}

/// Server Reference of MQTT 5 (§4.11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// `host:port`, or several separated by spaces.
    pub servers: Box<str>,
    /// Permanently: 0x9D rather than 0x9C.
    pub moved: bool,
}

#[derive(Debug, Clone)]
pub struct Config {
    pub listeners: Vec<Listener>,
    /// Event loops, each one thread: one per core.
    pub shards: usize,
    /// Admits devices; without, every connection is handed over.
    pub devices: bool,
    /// A request to a host directly under this domain names the app of that name.
    pub app_domain: Option<String>,
    /// Serves `GET /v1/echo` for the WebSocket conformance suite; never in production.
    pub conformance: bool,
    pub mqtt: mqtt::Config,
    /// The server that MQTT clients are redirected to when this node is drained or full; without it they are only
    /// closed.
    pub mqtt_redirect: Option<Redirect>,
    pub socket_io: SocketIo,
    pub xmpp: xmpp::Config,
    /// Bytes of a client's publication; as many as a provider may send.
    pub publish_bytes_max: usize,
    /// The app whose devices MQTT clients without a token are, where those are admitted; they may publish. For the
    /// conformance suites; never in production.
    pub anonymous_app: Option<String>,
    /// Open sockets; above this number, a client gets the advice to reconnect later.
    pub connections_max: usize,
    /// Open sockets without a credential; 0: a quarter of `connections_max`.
    pub unauthenticated_max: usize,
    /// Open sockets of one client network; 0: no limit.
    pub connections_per_client: u32,
    /// Proxies whose forwarding header is trusted.
    pub proxies: TrustedProxies,
    pub connects_per_second: u32,
    pub head: http::Limits,
    /// From the accept to a complete request head, including the TLS handshake.
    pub head_timeout: Duration,
    pub auth_timeout: Duration,
    /// From the head of a POST to its first byte, and to its last.
    pub body_first_byte_timeout: Duration,
    pub body_timeout: Duration,
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
    pub client_message_bytes: usize,
    pub frames_per_second: u32,
    pub frames_burst: u32,
    /// Unsent bytes above which `active` and `connected` messages are dropped.
    pub send_queue_soft_bytes: usize,
    /// Unsent bytes above which a connection is closed as a slow consumer.
    pub send_queue_bytes: usize,
    pub send_stall: Duration,
    /// How long a message only for connected devices may wait for its shard.
    pub live_age_max: Duration,
    /// Bytes of parked sessions, for MQTT and for XMPP each.
    pub parked_sessions_bytes: usize,
    /// How long a peer may be silent before TCP probes it (`listener`).
    pub tcp_keepalive: Duration,
    /// Whether frames are submitted together, if the build (feature `io-uring`) and the kernel support it.
    pub io_uring: bool,
    /// Requests whose deliveries may wait for one shard; publishing is refused from half of it on.
    pub mailbox_items: usize,
    /// Whether connections that begin with the preface of HTTP/2 are handed over, rather than refused.
    pub http2: bool,
    /// Whether WebSockets may compress their messages (RFC 7692) if their clients offer it.
    pub websocket_deflate: bool,
    /// How long a peer may take to answer a close.
    pub close_linger: Duration,
    /// Where the gateway's threads report progress.
    pub threads: Threads,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            shards: std::thread::available_parallelism().map_or(1, usize::from),
            devices: true,
            conformance: false,
            mqtt: mqtt::Config::default(),
            mqtt_redirect: None,
            socket_io: SocketIo::default(),
            xmpp: xmpp::Config::default(),
            publish_bytes_max: limits::DATA_BYTES,
            anonymous_app: None,
            connections_max: usize::MAX,
            unauthenticated_max: 0,
            connections_per_client: limits::CONNECTIONS_PER_CLIENT,
            proxies: TrustedProxies::default(),
            connects_per_second: limits::CONNECTS_PER_SECOND,
            app_domain: None,
            head: http::Limits::default(),
            head_timeout: limits::HEAD_TIMEOUT,
            auth_timeout: limits::AUTH_TIMEOUT,
            body_first_byte_timeout: limits::BODY_FIRST_BYTE_TIMEOUT,
            body_timeout: limits::BODY_TIMEOUT,
            ping_interval: limits::PING_INTERVAL,
            ping_timeout: limits::PING_TIMEOUT,
            client_message_bytes: limits::CLIENT_MESSAGE_BYTES,
            frames_per_second: limits::FRAMES_PER_SECOND,
            frames_burst: limits::FRAMES_BURST,
            send_queue_soft_bytes: limits::SEND_QUEUE_SOFT_BYTES,
            send_queue_bytes: limits::SEND_QUEUE_BYTES,
            send_stall: limits::SEND_STALL,
            live_age_max: limits::LIVE_AGE_MAX,
            parked_sessions_bytes: limits::PARKED_SESSIONS_BYTES,
            tcp_keepalive: limits::TCP_KEEPALIVE,
            io_uring: true,
            // 16,384 × (a pointer and at most 10,000 addresses of 16 B) is bounded earlier by the number of deliveries
            // (`mailbox`); a usual item names some hundreds.
            mailbox_items: 16_384,
            http2: false,
            websocket_deflate: false,
            close_linger: Duration::from_secs(2),
            threads: Threads::default(),
        }
    }
}

/// A TLS handshake holds some tens of KiB: 16,384 of them half a GiB.
const UNAUTHENTICATED_DEFAULT_MAX: usize = 16_384;

impl Config {
    /// Limit of connections without a credential.
    pub(crate) fn unauthenticated_limit(&self) -> usize {
        match self.unauthenticated_max {
            0 => (self.connections_max / 4).clamp(1, UNAUTHENTICATED_DEFAULT_MAX),
            max => max,
        }
    }
}
