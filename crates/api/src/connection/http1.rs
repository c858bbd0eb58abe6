//! HTTP/1.1 connections, and the choice between HTTP/1.1 and HTTP/2 by a connection's first bytes.
//!
//! A connection whose next request is for the gateway goes back to the caller, with everything read of it, before
//! anything of that request is answered.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use axum::response::Response;
use futures_util::FutureExt;
use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

use super::answer::answer;
use super::handle::Handle;
use super::handoff::{self, GatewayRequest};
use super::http2;
use super::pool::Place;
use super::preface::Peeked;
use super::send_deadline::TimedIo;
use super::serving::{HEAD_TIMEOUT, Peer, Serving};

/// A body is read in pieces of at most this size.
const READ_BUFFER_BYTES_MAX: usize = 64 << 10;

/// A connection whose next request is for the gateway.
pub struct Handoff<I> {
    pub io: I,
    /// The bytes read so far, from the first byte of the request.
    pub bytes: Vec<u8>,
}

/// An unsafe request (RFC 9110 §9.2.1) in progress.
type UnsafeRequest = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Serves requests until the client leaves, the pool evicts the connection, or `drain` resolves and the current request
/// is answered. A broken connection is the client's doing and logged at debug.
///
/// An unsafe request runs to completion even if its client disconnects: what it committed has consequences, such as
/// closing a revoked device's connection. The connection counts in the pool until then.
pub async fn serve_connection<I>(
    io: I,
    serving: Serving,
    peer: Peer,
    place: Option<Place>,
    drain: impl Future<Output = ()>,
) -> Option<Handoff<I>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handle = Handle::new(place);
    let mut drain = pin!(drain.fuse());
    let mut io = Peeked::new(io);
    if let Some(http2) = &serving.http2 {
        match speaks_http2(&mut io, &handle, drain.as_mut()).await {
            Some(true) => {
                http2::serve(io, &serving, http2, peer, handle, drain).await;
                return None;
            }
            Some(false) => {}
            None => return None,
        }
    }
    // HTTP/1.1 has one request at a time. Only this task locks it.
    let pending = Mutex::new(None);
    let served = tokio::select! {
        served = serve(io, serving, peer, &handle, &pending, drain) => served,
        () = handle.evicted() => {
            tracing::debug!(peer = %peer.address, "an HTTP connection was evicted");
            Ok(None)
        }
    };
    let handoff = served.unwrap_or_else(|error| {
        tracing::debug!(%error, peer = %peer.address, "an HTTP connection failed");
        None
    });
    if let Some(pending) = pending.into_inner() {
        pending.await;
    }
    handoff
}

/// None if the connection ends before its first bytes show the protocol.
async fn speaks_http2<I: AsyncRead + Unpin>(
    io: &mut Peeked<I>,
    handle: &Handle,
    drain: impl Future<Output = ()>,
) -> Option<bool> {
    tokio::select! {
        biased;
        speaks = io.speaks_http2() => Some(speaks),
        () = handle.evicted() => None,
        () = drain => None,
        () = tokio::time::sleep(HEAD_TIMEOUT) => None,
    }
}

async fn serve<I>(
    io: Peeked<I>,
    serving: Serving,
    peer: Peer,
    handle: &Handle,
    pending: &Mutex<Option<UnsafeRequest>>,
    mut drain: Pin<&mut impl Future<Output = ()>>,
) -> hyper::Result<Option<Handoff<I>>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TimedIo::new(io, handle.clone(), serving.timing);
    let service = service_fn(|request: Request<Incoming>| -> Answer<'_> {
        if serving.hands_off && handoff::is_for_gateway(&request) {
            handle.hand_off(GatewayRequest::new(request));
            return Box::pin(std::future::pending());
        }
        let is_safe = request.method().is_safe();
        let answer = answer(&serving, peer, handle.clone(), request).map(close_after_timeout);
        if is_safe {
            return Box::pin(answer.map(Ok));
        }
        // hyper drops its own future when the client disconnects; `pending` survives.
        *pending.lock() = Some(Box::pin(answer));
        Box::pin(poll_fn(|context| poll_pending(pending, context).map(Ok)))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(serving.head.headers)
        .max_header_size(serving.head.head_bytes)
        .max_buf_size(READ_BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(io), service);
    let ended = poll_fn(|context| {
        if drain.as_mut().poll(context).is_ready() {
            Pin::new(&mut connection).graceful_shutdown();
        }
        match Pin::new(&mut connection).poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            // Earlier responses are written first.
            Poll::Pending if handle.is_handed_off() && !handle.is_write_blocked() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    if let Some(result) = ended.await {
        return result.map(|()| None);
    }
    let parts = connection.into_parts();
    let mut bytes = handle.take_handed_off().map(GatewayRequest::into_bytes).unwrap_or_default();
    bytes.extend_from_slice(&parts.read_buf);
    let (io, rest) = parts.io.into_inner().into_inner().into_parts();
    bytes.extend_from_slice(&rest);
    Ok(Some(Handoff { io, bytes }))
}

/// After a late body, the next request cannot be distinguished from the rest of that body.
fn close_after_timeout(mut answer: Response) -> Response {
    if answer.status() == StatusCode::REQUEST_TIMEOUT {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send + 'a>>;

fn poll_pending(pending: &Mutex<Option<UnsafeRequest>>, context: &mut Context<'_>) -> Poll<Response> {
    let Some(mut answer) = pending.lock().take() else { return Poll::Pending };
    let polled = answer.as_mut().poll(context);
    if polled.is_pending() {
        *pending.lock() = Some(answer);
    }
    polled
}
