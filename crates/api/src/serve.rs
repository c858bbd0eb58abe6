//! HTTP/1.1 over any byte stream: the gateway and the node hand over connections, plain or TLS, with
//! what was read of them already.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::Either;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use noroshi_types::limits;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt;

use crate::state::Peer;

/// From the end of one answer to the end of the next request's head. Longer than the minute for which
/// most clients keep a connection, so that it is they who close it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// A body is read in pieces of at most this size.
const READ_BUFFER_BYTES_MAX: usize = 64 << 10;

/// A request that may change something, on its way to its answer.
type Change = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Serves requests until the client leaves, or `drain` resolves and the request in work is answered.
/// What breaks a connection is the client's affair: it is logged at debug.
///
/// A request that may change something is carried through when its client leaves amid: what it committed has
/// consequences, such as the end of a revoked device's connection. The connection counts until then.
pub async fn serve_connection(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    peer: Peer,
    drain: impl Future<Output = ()>,
) {
    // Guards the one in work, which only this task looks at: HTTP/1.1 has one at a time.
    let change = Mutex::new(None);
    if let Err(error) = serve(io, router, peer, &change, drain).await {
        tracing::debug!(%error, peer = %peer.address, "an HTTP connection broke");
    }
    if let Some(change) = change.into_inner() {
        change.await;
    }
}

async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    peer: Peer,
    change: &Mutex<Option<Change>>,
    drain: impl Future<Output = ()>,
) -> hyper::Result<()> {
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let is_safe = request.method().is_safe();
        let answer = router.clone().oneshot(request);
        if is_safe {
            return Either::Left(answer);
        }
        // hyper drops what it was given here when the client leaves, and not what lies in `change`.
        *change.lock() = Some(Box::pin(answer.map(|answer| answer.unwrap_or_else(|never| match never {}))));
        Either::Right(poll_fn(|context| {
            let Some(mut answer) = change.lock().take() else { return Poll::Pending };
            let polled = answer.as_mut().poll(context);
            if polled.is_pending() {
                *change.lock() = Some(answer);
            }
            polled.map(Ok)
        }))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(limits::HEADERS)
        .max_header_size(limits::HEAD_BYTES)
        .max_buf_size(READ_BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    tokio::select! {
        result = connection.as_mut() => result,
        () = drain => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}
