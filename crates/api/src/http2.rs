//! An HTTP/2 connection (RFC 9113) over the library `h2`. The connection's task accepts, serves and ends all its streams.
//!
//! ```text
//!   h2 ─► stream ─┬─► serve::answer ─► reply      (requests of the API: as over HTTP/1.1)
//!                 ├─► bridge ⇄ socket pair ⇄ shard (event streams, long polling)
//!                 └─► HTTP_1_1_REQUIRED            (WebSockets)
//! ```
//!
//! Bounds: the number of streams at once, each of which beside the first takes a place as a connection does ([`crate::pool`]); a
//! request's head as over HTTP/1.1; received bytes that no handler has read, [`CONNECTION_WINDOW_BYTES`]; bytes to be sent,
//! [`SEND_BUFFER_BYTES`] a stream, and no more than the client allows. Each stream has deadlines for its request body and for
//! sending its response. The connection has its own write deadline ([`crate::paced`]).
//!
//! The node closes a connection with ENHANCE_YOUR_CALM when the client resets [`RESETS_MAX`] more streams than it lets
//! finish. `h2` does the same for floods of other frames. An unsafe request runs to completion even if its stream is reset,
//! and keeps its place until it completes.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, future::poll_fn};
use h2::server::Connection;
use h2::{Ping, PingPong, Reason};
use noroshi_protocol::http::Limits as HeadLimits;
use noroshi_types::limits;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::begun::Begun;
use crate::link::Link;
use crate::paced::Paced;
use crate::pool::Ended;
use crate::serve::Serving;
use crate::state::Peer;

mod bridge;
mod received;
mod reply;
mod stream;

use stream::{Outcome, Streams};

/// What a client may send of one body before a handler reads it.
const STREAM_WINDOW_BYTES: u32 = 128 << 10;
/// The same for all bodies of a connection together, so that a slow handler does not hold up the others.
const CONNECTION_WINDOW_BYTES: u32 = 512 << 10;
/// What each stream may have waiting for the socket: as much as a frame.
const SEND_BUFFER_BYTES: usize = 16 << 10;
/// Streams that a client reset before they were looked at (CVE-2023-44487).
const UNSEEN_RESETS_MAX: usize = 20;
/// Streams that `h2` resets or refuses by itself, over the lifetime of a connection (CVE-2025-8671): it never forgets one. Honest
/// clients cause some, such as those that open many streams before they know how many they may.
const ERRORS_MAX: usize = 1_024;
/// How many more streams a client may reset than it lets finish.
const RESETS_MAX: u32 = 256;
/// When an acknowledgement is late, time to read what the socket holds: the node itself may have been slow.
const LAST_LOOK: Duration = Duration::from_millis(10);

/// How HTTP/2 connections are served.
#[derive(Clone)]
pub struct Http2 {
    /// Streams of a connection at once.
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
    /// True while the gateway drains. It becomes true before the gateway closes the first stream.
    pub draining: watch::Receiver<bool>,
    /// The most of a body without `Content-Length` that goes to the gateway.
    pub client_message_bytes: usize,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            streams_max: limits::HTTP2_STREAMS,
            idle: crate::serve::HEAD_TIMEOUT,
            leave_timeout: Duration::from_secs(5),
            ping_interval: limits::PING_INTERVAL,
            ping_timeout: limits::SEND_TIMEOUT,
            bridge: None,
            draining: watch::channel(false).1,
            client_message_bytes: limits::CLIENT_MESSAGE_BYTES,
        }
    }
}

/// Passes a request of this client to the gateway, as an HTTP/1.1 head. None where the gateway has no room.
pub type BridgeFn = Arc<dyn Fn(SocketAddr, Vec<u8>) -> Option<GatewayStream> + Send + Sync>;

/// The API's end of a connection to the gateway.
pub struct GatewayStream {
    /// Non-blocking. Takes the request's body and yields the response.
    pub stream: UnixStream,
    /// Held as long as the connection is open: the gateway counts it.
    pub held: Box<dyn Send>,
}

/// Serves a connection to its end, and completes its unsafe requests.
pub(crate) async fn serve<I>(
    io: Begun<I>,
    serving: &Serving,
    http2: &Http2,
    peer: Peer,
    link: Link,
    drain: Pin<&mut impl Future<Output = ()>>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    link.is_silent();
    // A client may go on sending after GOAWAY: a TCP reset must not discard what it has not read yet.
    link.linger_at_end();
    let _open = link.place().map(|place| place.count_http2());
    let streams = Streams { serving, http2, peer, link: &link };
    let mut in_work = InWork::new();
    let io = Paced::new(io, link.clone(), serving.timing);
    let ended = tokio::select! {
        ended = run(io, streams, &mut in_work, drain) => ended,
        () = link.evicted() => Ended::Evicted,
    };
    tracing::debug!(peer = %peer.address, reason = ended.as_str(), "an HTTP/2 connection ended");
    if let Some(place) = link.place() {
        place.count_closed(ended);
    }
    // The connection is dropped, which ends every stream but those of unsafe requests.
    while in_work.next().await.is_some() {}
}

/// Streams from their request's head to the end of their answer.
type InWork<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>>;

async fn run<'a, I>(
    io: Paced<Begun<I>>,
    streams: Streams<'a>,
    in_work: &mut InWork<'a>,
    mut drain: Pin<&mut impl Future<Output = ()>>,
) -> Ended
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Streams { serving, http2, link, .. } = streams;
    let handshake = builder(http2, &serving.head).handshake(io);
    let mut connection = match timeout(crate::serve::HEAD_TIMEOUT, handshake).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return ended_by(&error, None),
        Err(_) => return Ended::Error,
    };
    let Some(ping) = connection.ping_pong() else { return Ended::Error };
    let mut watch = Watch::new(ping, http2, link);
    let mut draining = http2.draining.clone();
    let mut resets_left = RESETS_MAX;
    loop {
        let is_idle = in_work.is_empty();
        // Reading comes last: a client that sends without pause uses up what a task may do in a turn.
        tokio::select! {
            biased;
            () = drain.as_mut(), if watch.left.is_none() => leave(&mut connection, &mut watch, Ended::Drain),
            // Before the gateway's streams: each ends with the request to connect again, elsewhere.
            () = begins(&mut draining), if watch.left.is_none() => {
                if link.is_lent() {
                    leave(&mut connection, &mut watch, Ended::Drain);
                }
            }
            due = watch.due(is_idle) => match due {
                Due::Ping => {}
                Due::Idle => leave(&mut connection, &mut watch, Ended::Idle),
                Due::Over(ended) => return ended,
            },
            Some(outcome) = in_work.next(), if !is_idle => {
                let mut outcome = Some(outcome);
                // Answers that are ready are written together.
                while let Some(ended) = outcome {
                    match ended {
                        Outcome::Done => resets_left = (resets_left + 1).min(RESETS_MAX),
                        Outcome::Cancelled => resets_left = resets_left.saturating_sub(1),
                        Outcome::Left => {}
                        Outcome::Last => leave(&mut connection, &mut watch, Ended::Drain),
                    }
                    outcome = in_work.next().now_or_never().flatten();
                }
                if resets_left == 0 {
                    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    watch.leaves(Ended::Flood);
                }
                watch.used();
            }
            accepted = connection.accept() => match accepted {
                Some(Ok((_, mut respond))) if watch.is_over() => respond.send_reset(Reason::REFUSED_STREAM),
                // Streams that were reset and whose requests run on are among them.
                Some(Ok((_, mut respond))) if in_work.len() >= 2 * http2.streams_max as usize => {
                    respond.send_reset(Reason::REFUSED_STREAM);
                    if let Some(place) = link.place() {
                        place.count_refused_stream();
                    }
                }
                Some(Ok((request, respond))) => in_work.push(Box::pin(streams.serve(request, respond))),
                Some(Err(error)) => return ended_by(&error, watch.left.map(|(ended, _)| ended)),
                None => return watch.left.map_or(Ended::Client, |(ended, _)| ended),
            },
        }
    }
}

/// Sends GOAWAY. Open streams go on.
fn leave<I>(connection: &mut Connection<I, Bytes>, watch: &mut Watch, why: Ended)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    connection.graceful_shutdown();
    watch.leaves(why);
}

/// Resolves each time a drain of the gateway begins. Cancel-safe.
async fn begins(draining: &mut watch::Receiver<bool>) {
    while draining.changed().await.is_ok() {
        if *draining.borrow_and_update() {
            return;
        }
    }
    std::future::pending().await // nobody drains it
}

fn builder(http2: &Http2, head: &HeadLimits) -> h2::server::Builder {
    let streams_max = http2.streams_max as usize;
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(http2.streams_max)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(u32::try_from(head.head_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(UNSEEN_RESETS_MAX)
        // What a client still sends on a stream that was reset is an error once the stream is forgotten.
        .max_concurrent_reset_streams(2 * streams_max)
        .max_local_error_reset_streams(Some(ERRORS_MAX.max(4 * streams_max)));
    builder
}

/// `left`: why GOAWAY was sent before.
fn ended_by(error: &h2::Error, left: Option<Ended>) -> Ended {
    tracing::debug!(%error, "an HTTP/2 connection broke");
    match error.reason() {
        Some(Reason::ENHANCE_YOUR_CALM) => Ended::Flood,
        Some(Reason::NO_ERROR) => Ended::Client,
        Some(_) => Ended::Error,
        None => left.unwrap_or(Ended::Error), // the socket: a client may close it as soon as it is told to leave
    }
}

/// Whether the client is there, and uses the connection.
struct Watch {
    ping: PingPong,
    link: Link,
    idle: Duration,
    leave_timeout: Duration,
    interval: Duration,
    timeout: Duration,
    /// When a PING is due, or the acknowledgement of the one that is out.
    ping_at: Instant,
    is_out: bool,
    /// Its acknowledgement is late.
    is_late: bool,
    used_at: Instant,
    /// After GOAWAY: why it was sent, and until when new streams are served.
    left: Option<(Ended, Instant)>,
    timer: Pin<Box<Sleep>>,
}

enum Due {
    /// One was sent, or answered.
    Ping,
    Idle,
    /// The connection has to close.
    Over(Ended),
}

impl Watch {
    fn new(ping: PingPong, http2: &Http2, link: &Link) -> Self {
        let now = Instant::now();
        let ping_at = now + http2.ping_interval;
        Self {
            ping,
            link: link.clone(),
            idle: http2.idle,
            leave_timeout: http2.leave_timeout,
            interval: http2.ping_interval,
            timeout: http2.ping_timeout,
            ping_at,
            is_out: false,
            is_late: false,
            used_at: now,
            left: None,
            timer: Box::pin(sleep_until(ping_at)),
        }
    }

    fn used(&mut self) {
        self.used_at = Instant::now();
    }

    /// The first reason counts, but for a flood.
    fn leaves(&mut self, why: Ended) {
        let until = Instant::now() + self.leave_timeout;
        let (ended, _) = self.left.get_or_insert((why, until));
        if why == Ended::Flood {
            *ended = why;
        }
    }

    /// Whether the client has had its time to leave: `h2` goes on accepting until it acknowledges GOAWAY's PING.
    fn is_over(&self) -> bool {
        self.left.is_some_and(|(_, until)| Instant::now() >= until)
    }

    /// Resolves when something is to be done, `is_idle`: nothing is in work. Cancel-safe.
    async fn due(&mut self, is_idle: bool) -> Due {
        loop {
            let leave_at = match self.left {
                // After the last answer the client gets as long again.
                Some((_, until)) => until.max(self.used_at + self.leave_timeout),
                None => self.used_at + self.idle,
            };
            let at = if is_idle { self.ping_at.min(leave_at) } else { self.ping_at };
            if self.timer.deadline() != at {
                self.timer.as_mut().reset(at);
            }
            let (ping, is_out, timer) = (&mut self.ping, self.is_out, self.timer.as_mut());
            tokio::select! {
                ponged = poll_fn(|context| ping.poll_pong(context)), if is_out => {
                    if ponged.is_err() {
                        return Due::Over(Ended::Error);
                    }
                    self.is_out = false;
                    self.ping_at = Instant::now() + self.interval;
                    continue;
                }
                () = timer => {}
            }
            let now = Instant::now();
            if is_idle && now >= leave_at {
                return self.left.map_or(Due::Idle, |(ended, _)| Due::Over(ended));
            }
            if now < self.ping_at {
                continue;
            }
            // A client that sends, or takes what goes out before the PING, is there.
            let was_heard = self.link.take_heard();
            if self.is_out && !was_heard {
                if self.is_late {
                    return Due::Over(Ended::Unresponsive);
                }
                (self.is_late, self.ping_at) = (true, now + LAST_LOOK);
                continue;
            }
            self.is_out |= self.ping.send_ping(Ping::opaque()).is_ok();
            (self.is_late, self.ping_at) = (false, now + self.timeout);
            return Due::Ping;
        }
    }
}
