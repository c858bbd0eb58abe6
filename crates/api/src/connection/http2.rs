//! HTTP/2 connections (RFC 9113) on the library `h2`. A connection's task accepts, serves and ends all its streams.
//!
//! ```text
//!   h2 ─► stream ─┬─► answer ─► response           (API requests: as over HTTP/1.1)
//!                 ├─► bridge ⇄ socket pair ⇄ shard (event streams, long polling)
//!                 └─► HTTP_1_1_REQUIRED            (WebSockets)
//! ```
//!
//! Bounds: concurrent streams, each of which after the first takes a place in the pool; the request head as over HTTP/1.1;
//! received bytes that no handler has read, [`CONNECTION_WINDOW_BYTES`]; bytes to send, [`SEND_BUFFER_BYTES`] a stream and
//! the client's window. Each stream has deadlines for its request body and for sending its response; the connection has its
//! own write deadline ([`super::send_deadline`]).
//!
//! The node closes a connection with ENHANCE_YOUR_CALM when the client resets [`RESETS_MAX`] more streams than it lets
//! finish. `h2` does the same for floods of other frames. An unsafe request runs to completion even if its stream is reset,
//! and keeps its place until it completes.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use h2::Reason;
use h2::server::Connection;
use noroshi_protocol::http::Limits as HeadLimits;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;

use super::handle::Handle;
use super::pool::Http2Close;
use super::preface::Peeked;
use super::send_deadline::TimedIo;
use super::serving::{HEAD_TIMEOUT, Http2, Peer, Serving};
use context::{Outcome, StreamContext};
use keepalive::{Due, Keepalive};

mod bridge;
mod context;
mod keepalive;
mod request_body;
mod response;
mod stream;

/// Bytes of one body that a client may send before a handler reads them.
const STREAM_WINDOW_BYTES: u32 = 128 << 10;
/// The same for all bodies of a connection, so that a slow handler does not block the others.
const CONNECTION_WINDOW_BYTES: u32 = 512 << 10;
/// Bytes that each stream may buffer for the socket: one frame.
const SEND_BUFFER_BYTES: usize = 16 << 10;
/// StreamContext that a client reset before the node accepted them (CVE-2023-44487).
const UNSEEN_RESETS_MAX: usize = 20;
/// StreamContext that `h2` itself resets or refuses over the lifetime of a connection (CVE-2025-8671). Honest clients cause some,
/// such as those that open many streams before they know the limit.
const ERRORS_MAX: usize = 1_024;
/// How many more streams a client may reset than it lets finish.
const RESETS_MAX: u32 = 256;

/// Serves a connection to its end, and completes its unsafe requests.
pub(super) async fn serve<I>(
    io: Peeked<I>,
    serving: &Serving,
    http2: &Http2,
    peer: Peer,
    handle: Handle,
    drain: Pin<&mut impl Future<Output = ()>>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    handle.set_silent();
    // A client may keep sending after GOAWAY. A TCP reset must not discard what it has not read yet.
    handle.linger_at_end();
    let _open = handle.place().map(|place| place.count_http2());
    let streams = StreamContext { serving, http2, peer, handle: &handle };
    let mut in_progress = InProgress::new();
    let io = TimedIo::new(io, handle.clone(), serving.timing);
    let ended = tokio::select! {
        ended = run(io, streams, &mut in_progress, drain) => ended,
        () = handle.evicted() => Http2Close::Evicted,
    };
    tracing::debug!(peer = %peer.address, reason = ended.as_str(), "an HTTP/2 connection ended");
    if let Some(place) = handle.place() {
        place.count_closed(ended);
    }
    // Dropping the connection ended every stream. Unsafe requests still run to completion.
    while in_progress.next().await.is_some() {}
}

/// Streams, from the request head to the end of the response.
type InProgress<'a> = FuturesUnordered<Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>>;

async fn run<'a, I>(
    io: TimedIo<Peeked<I>>,
    streams: StreamContext<'a>,
    in_progress: &mut InProgress<'a>,
    mut drain: Pin<&mut impl Future<Output = ()>>,
) -> Http2Close
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let StreamContext { serving, http2, handle, .. } = streams;
    let handshake = builder(http2, &serving.head).handshake(io);
    let mut connection = match timeout(HEAD_TIMEOUT, handshake).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return close_reason(&error, None),
        Err(_) => return Http2Close::Error,
    };
    let Some(ping) = connection.ping_pong() else { return Http2Close::Error };
    let mut keepalive = Keepalive::new(ping, http2, handle);
    let mut draining = http2.draining.clone();
    let mut resets_left = RESETS_MAX;
    loop {
        let is_idle = in_progress.is_empty();
        // Reading comes last: a client that sends without pause uses up the task's budget.
        tokio::select! {
            biased;
            () = drain.as_mut(), if keepalive.goaway.is_none() => leave(&mut connection, &mut keepalive, Http2Close::Drain),
            // Before the gateway's streams end: each tells its client to reconnect, which must be elsewhere.
            () = drain_begins(&mut draining), if keepalive.goaway.is_none() => {
                if handle.is_lent() {
                    leave(&mut connection, &mut keepalive, Http2Close::Drain);
                }
            }
            due = keepalive.due(is_idle) => match due {
                Due::Ping => {}
                Due::Idle => leave(&mut connection, &mut keepalive, Http2Close::Idle),
                Due::Close(ended) => return ended,
            },
            Some(outcome) = in_progress.next(), if !is_idle => {
                let mut outcome = Some(outcome);
                // Responses that are ready are written together.
                while let Some(ended) = outcome {
                    match ended {
                        Outcome::Done => resets_left = (resets_left + 1).min(RESETS_MAX),
                        Outcome::Cancelled => resets_left = resets_left.saturating_sub(1),
                        Outcome::Left => {}
                        Outcome::Last => leave(&mut connection, &mut keepalive, Http2Close::Drain),
                    }
                    outcome = in_progress.next().now_or_never().flatten();
                }
                if resets_left == 0 {
                    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                    keepalive.set_goaway(Http2Close::Flood);
                }
                keepalive.set_used();
            }
            accepted = connection.accept() => match accepted {
                Some(Ok((_, mut respond))) if keepalive.is_over() => respond.send_reset(Reason::REFUSED_STREAM),
                // Includes reset streams whose requests are still running.
                Some(Ok((_, mut respond))) if in_progress.len() >= 2 * http2.streams_max as usize => {
                    respond.send_reset(Reason::REFUSED_STREAM);
                    if let Some(place) = handle.place() {
                        place.count_refused_stream();
                    }
                }
                Some(Ok((request, respond))) => in_progress.push(Box::pin(streams.serve(request, respond))),
                Some(Err(error)) => return close_reason(&error, keepalive.goaway.map(|(reason, _)| reason)),
                None => return keepalive.goaway.map_or(Http2Close::Client, |(reason, _)| reason),
            },
        }
    }
}

/// Sends GOAWAY. Open streams continue.
fn leave<I>(connection: &mut Connection<I, Bytes>, keepalive: &mut Keepalive, why: Http2Close)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    connection.graceful_shutdown();
    keepalive.set_goaway(why);
}

/// Resolves each time a drain of the gateway begins. Cancel-safe.
async fn drain_begins(draining: &mut watch::Receiver<bool>) {
    while draining.changed().await.is_ok() {
        if *draining.borrow_and_update() {
            return;
        }
    }
    std::future::pending().await // the sender is gone
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
        // Once `h2` forgets a reset stream, frames that the client still sends on it are an error.
        .max_concurrent_reset_streams(2 * streams_max)
        .max_local_error_reset_streams(Some(ERRORS_MAX.max(4 * streams_max)));
    builder
}

/// `goaway`: why GOAWAY was sent before, if it was.
fn close_reason(error: &h2::Error, goaway: Option<Http2Close>) -> Http2Close {
    tracing::debug!(%error, "an HTTP/2 connection failed");
    match error.reason() {
        Some(Reason::ENHANCE_YOUR_CALM) => Http2Close::Flood,
        Some(Reason::NO_ERROR) => Http2Close::Client,
        Some(_) => Http2Close::Error,
        None => goaway.unwrap_or(Http2Close::Error), // the socket: a client may close it as soon as it receives GOAWAY
    }
}
