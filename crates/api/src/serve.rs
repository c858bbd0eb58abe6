//! HTTP/1.1 over any byte stream: the gateway and the node hand over connections, plain or TLS, with
//! what was read of them already.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use noroshi_types::limits;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt;

use crate::state::Peer;

/// From the end of one answer to the end of the next request's head. Longer than the minute for which
/// most clients keep a connection, so that it is they who close it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// A body is read in pieces of at most this size.
const READ_BUFFER_BYTES_MAX: usize = 64 << 10;

/// Serves requests until the client leaves, or `drain` resolves and the request in work is answered.
/// What breaks a connection is the client's affair: it is logged at debug.
pub async fn serve_connection(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    peer: Peer,
    drain: impl Future<Output = ()>,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request)
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
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = drain => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, peer = %peer.address, "an HTTP connection broke");
    }
}
