//! How the connections of a listener are served: router, limits and deadlines, HTTP/2 settings and the way to the gateway.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use noroshi_auth::TrustedProxies;
use noroshi_protocol::http::Limits as HeadLimits;
use noroshi_types::limits;
use tokio::sync::watch;

use super::timing::Timing;

/// From the end of a response to the end of the next request head. Longer than the minute for which most clients keep
/// an idle connection, so that the client closes first.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// How the connections of a listener are served.
#[derive(Clone)]
pub struct Serving {
    pub router: Router,
    pub timing: Timing,
    /// Bounds of a request head.
    pub head: HeadLimits,
    pub proxies: Arc<TrustedProxies>,
    /// Requests for the gateway are returned to the caller instead of answered.
    pub hands_off: bool,
    /// None: a connection that begins with the HTTP/2 preface is a malformed request.
    pub http2: Option<Http2>,
}

impl Serving {
    /// Default limits and deadlines; no proxies, gateway or HTTP/2.
    pub fn new(router: Router) -> Self {
        Self {
            router,
            timing: Timing::default(),
            head: HeadLimits::default(),
            proxies: Arc::default(),
            hands_off: false,
            http2: None,
        }
    }
}

/// How HTTP/2 connections are served.
#[derive(Clone)]
pub struct Http2 {
    /// Concurrent streams of a connection.
    pub streams_max: u32,
    /// A connection without streams closes after it, as an HTTP/1.1 connection does between two requests.
    pub idle: Duration,
    /// How long after GOAWAY new streams are still served, since the client may not know of it yet. A connection without
    /// requests closes then.
    pub leave_timeout: Duration,
    pub ping_interval: Duration,
    /// Timeout for a PING's acknowledgement. Frames already being written go out before the PING.
    pub ping_timeout: Duration,
    /// None: the node has no gateway.
    pub bridge: Option<BridgeFn>,
    /// True while the gateway drains. Set before the gateway closes the first stream.
    pub draining: watch::Receiver<bool>,
    /// Largest body without `Content-Length` that is passed to the gateway.
    pub client_message_bytes: usize,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            streams_max: limits::HTTP2_STREAMS,
            idle: HEAD_TIMEOUT,
            leave_timeout: Duration::from_secs(5),
            ping_interval: limits::PING_INTERVAL,
            ping_timeout: limits::SEND_TIMEOUT,
            bridge: None,
            draining: watch::channel(false).1,
            client_message_bytes: limits::CLIENT_MESSAGE_BYTES,
        }
    }
}

/// Passes a request of this client, as an HTTP/1.1 head, to the gateway. None if the gateway has no capacity.
pub type BridgeFn = Arc<dyn Fn(SocketAddr, Vec<u8>) -> Option<GatewayStream> + Send + Sync>;

/// The API's end of a connection to the gateway.
pub struct GatewayStream {
    /// Non-blocking. Takes the request body and yields the response.
    pub stream: UnixStream,
    /// Held while the connection is open: the gateway counts it.
    pub held: Box<dyn Send>,
}

/// The other end of a connection. Added to each of its requests as an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    pub address: SocketAddr,
    /// The client uses TLS.
    pub secure: bool,
}
