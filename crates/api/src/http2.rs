//! A connection of HTTP/2 (RFC 9113) over the library `h2`: streams come, are answered and go, all in the connection's task.
//!
//! ```text
//!   h2 ─► stream ─┬─► serve::answer ─► reply      (the API's: as over HTTP/1.1)
//!                 ├─► bridge ⇄ socket pair ⇄ shard (event streams, long polling)
//!                 └─► HTTP_1_1_REQUIRED            (WebSockets)
//! ```
//!
//! Bounds: streams at once, and of those each but one takes a place as a connection would ([`crate::pool`]); a head as over
//! HTTP/1.1; received bytes that no handler has read, [`CONNECTION_WINDOW_BYTES`]; bytes to be sent, [`SEND_BUFFER_BYTES`] a stream, and not
//! more than the client allows. A body, and the taking of an answer, have their deadlines a stream; a connection that takes
//! nothing has one of its own ([`crate::paced`]).
//!
//! A client that resets more streams than it lets be answered is told ENHANCE_YOUR_CALM and closed, as are floods of other
//! frames, which `h2` counts. A request that may change something is carried through when its stream is reset, and counts until
//! then.

use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use futures_util::{FutureExt, future::poll_fn};
use h2::{Ping, PingPong, Reason};
use noroshi_types::limits;
use tokio::io::{AsyncRead, AsyncWrite};
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

/// What a client may send of one body before a handler reads on.
const STREAM_WINDOW_BYTES: u32 = 128 << 10;
/// And of all bodies of a connection: some handlers are slow, and the others go on.
const CONNECTION_WINDOW_BYTES: u32 = 512 << 10;
/// What waits for the socket, of each stream. A frame has as much.
const SEND_BUFFER_BYTES: usize = 16 << 10;
/// Streams that a client reset before they were looked at (CVE-2023-44487).
const UNSEEN_RESETS_MAX: usize = 20;
/// Streams that broke the protocol so that the node resets them (CVE-2025-8671).
const ERRORS_MAX: usize = 64;
/// Answers that a client may give up, beyond those it takes.
const RESETS_MAX: u32 = 256;
/// How long a client that was told GOAWAY may take to leave, when nothing is in work.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// How connections of HTTP/2 are served.
#[derive(Clone)]
pub struct Http2 {
    /// Streams of a connection at once.
    pub streams_max: u32,
    /// A connection without streams is closed after it, as one of HTTP/1.1 is between two requests.
    pub idle: Duration,
    pub ping_interval: Duration,
    /// For the answer to a PING: frames that were begun come first.
    pub ping_timeout: Duration,
    /// None: the node has no gateway.
    pub bridge: Option<BridgeFn>,
}

impl Default for Http2 {
    fn default() -> Self {
        Self {
            streams_max: limits::HTTP2_STREAMS,
            idle: crate::serve::HEAD_TIMEOUT,
            ping_interval: limits::PING_INTERVAL,
            ping_timeout: limits::SEND_TIMEOUT,
            bridge: None,
        }
    }
}

/// Gives a request to the gateway, as the head of a request of HTTP/1.1 from this address. None where it has no room.
pub type BridgeFn = Arc<dyn Fn(SocketAddr, Vec<u8>) -> Option<Bridged> + Send + Sync>;

/// The other end of a connection of the gateway's.
pub struct Bridged {
    /// Non-blocking. What is to be written is the request's body, what is read is the response.
    pub stream: UnixStream,
    /// Held as long as the connection is open: it counts at the gateway.
    pub held: Box<dyn Send>,
}

/// Serves a connection to its end, and then what is to be carried through.
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
    // A client may go on sending after it was told to leave: a reset must not overtake what it was told.
    link.left_unread();
    let _open = link.place().map(|place| place.count_http2());
    let streams = Streams { serving, http2, peer, link: &link };
    let mut in_work = InWork::new();
    let io = Paced::new(io, link.clone(), serving.timing);
    let ended = tokio::select! {
        ended = run(io, streams, &mut in_work, drain) => ended,
        () = link.evicted() => Ended::Evicted,
    };
    tracing::debug!(peer = %peer.address, reason = ended.as_str(), "a connection of HTTP/2 ended");
    if let Some(place) = link.place() {
        place.count_closed(ended);
    }
    // The connection is dropped, so every stream ends that is not to be carried through.
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
    let http2 = streams.http2;
    let mut connection = match timeout(crate::serve::HEAD_TIMEOUT, builder(http2).handshake(io)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return ended_by(&error),
        Err(_) => return Ended::Unresponsive,
    };
    let Some(ping) = connection.ping_pong() else { return Ended::Error };
    let mut watch = Watch::new(ping, http2);
    let mut calm = RESETS_MAX;
    let mut leaving: Option<Ended> = None;
    loop {
        let is_idle = in_work.is_empty();
        tokio::select! {
            biased;
            accepted = connection.accept() => match accepted {
                // Twice as many while requests are carried through whose streams were reset.
                Some(Ok((_, mut respond))) if in_work.len() >= 2 * http2.streams_max as usize => {
                    respond.send_reset(Reason::REFUSED_STREAM);
                }
                Some(Ok((request, respond))) => in_work.push(Box::pin(streams.serve(request, respond))),
                Some(Err(error)) => return ended_by(&error),
                None => return leaving.unwrap_or(Ended::Client),
            },
            Some(outcome) = in_work.next(), if !is_idle => {
                let mut outcome = Some(outcome);
                // Answers that are ready are written together.
                while let Some(ended) = outcome {
                    calm = match ended {
                        Outcome::Answered => (calm + 1).min(RESETS_MAX),
                        Outcome::Cancelled => calm.saturating_sub(1),
                        Outcome::Left => calm,
                        Outcome::Last => {
                            connection.graceful_shutdown();
                            watch.leaves();
                            calm
                        }
                    };
                    outcome = in_work.next().now_or_never().flatten();
                }
                if calm == 0 && leaving != Some(Ended::Flood) {
                    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    leaving = Some(Ended::Flood);
                }
                watch.used();
            }
            () = drain.as_mut(), if leaving.is_none() => {
                connection.graceful_shutdown();
                leaving = Some(Ended::Drain);
                watch.leaves();
            }
            due = watch.due(is_idle) => match due {
                Due::Ping => {}
                Due::Idle => {
                    connection.graceful_shutdown();
                    leaving.get_or_insert(Ended::Idle);
                    watch.leaves();
                }
                Due::Left => return leaving.unwrap_or(Ended::Idle),
                Due::Unanswered => return Ended::Unresponsive,
            },
        }
    }
}

fn builder(http2: &Http2) -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .max_concurrent_streams(http2.streams_max)
        .initial_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(limits::HEAD_BYTES as u32)
        .max_send_buffer_size(SEND_BUFFER_BYTES)
        .max_pending_accept_reset_streams(UNSEEN_RESETS_MAX)
        .max_local_error_reset_streams(Some(ERRORS_MAX));
    builder
}

fn ended_by(error: &h2::Error) -> Ended {
    tracing::debug!(%error, "a connection of HTTP/2 broke");
    match error.reason() {
        Some(Reason::ENHANCE_YOUR_CALM) => Ended::Flood,
        Some(Reason::NO_ERROR) => Ended::Client,
        _ => Ended::Error,
    }
}

/// Whether the client is there, and uses the connection.
struct Watch {
    ping: PingPong,
    idle: Duration,
    interval: Duration,
    timeout: Duration,
    /// When a PING is due, or its answer if one is out.
    ping_at: Instant,
    is_out: bool,
    used_at: Instant,
    /// It was told to leave.
    leave_by: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

enum Due {
    /// One was sent, or answered.
    Ping,
    Idle,
    Left,
    Unanswered,
}

impl Watch {
    fn new(ping: PingPong, http2: &Http2) -> Self {
        let now = Instant::now();
        let ping_at = now + http2.ping_interval;
        Self {
            ping,
            idle: http2.idle,
            interval: http2.ping_interval,
            timeout: http2.ping_timeout,
            ping_at,
            is_out: false,
            used_at: now,
            leave_by: None,
            timer: Box::pin(sleep_until(ping_at)),
        }
    }

    fn used(&mut self) {
        self.used_at = Instant::now();
    }

    fn leaves(&mut self) {
        self.leave_by.get_or_insert_with(|| Instant::now() + LEAVE_TIMEOUT);
    }

    /// Resolves when something is to be done, `is_idle`: nothing is in work. Cancel-safe.
    async fn due(&mut self, is_idle: bool) -> Due {
        loop {
            let leave_at = match self.leave_by {
                // With the last answer the time begins anew.
                Some(leave_by) => leave_by.max(self.used_at + LEAVE_TIMEOUT),
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
                        return Due::Unanswered;
                    }
                    self.is_out = false;
                    self.ping_at = Instant::now() + self.interval;
                    continue;
                }
                () = timer => {}
            }
            let now = Instant::now();
            if is_idle && now >= leave_at {
                return if self.leave_by.is_some() { Due::Left } else { Due::Idle };
            }
            if now < self.ping_at {
                continue;
            }
            if self.is_out {
                return Due::Unanswered;
            }
            // It fails only while another one is out.
            self.is_out = self.ping.send_ping(Ping::opaque()).is_ok();
            self.ping_at = now + self.timeout;
            return Due::Ping;
        }
    }
}
