//! HTTP/1.1 over any byte stream: the gateway and the node hand over connections, plain or TLS, with
//! what was read of them already. A connection that begins with the preface of HTTP/2 goes to [`mod@crate::http2`].
//!
//! Whatever a client owes has a deadline: its next head here, its bodies in [`crate::arriving`], the taking of
//! its answers in [`crate::paced`]. A connection whose next request is the gateway's goes back to the caller,
//! with everything read of it, before anything of that request is answered.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use noroshi_auth::TrustedProxies;
use noroshi_protocol::http::Limits as HeadLimits;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::ServiceExt;

use crate::arriving::{Arriving, BoxError, Late, Timing};
use crate::begun::Begun;
use crate::error::{Code, Problem};
use crate::http2::{self, Http2};
use crate::link::{Client, Link};
use crate::observe::REQUEST_ID;
use crate::paced::Paced;
use crate::pool::Place;
use crate::state::Peer;
use crate::turn::{self, Turned};

/// From the end of one answer to the end of the next request's head. Longer than the minute for which
/// most clients keep a connection, so that it is they who close it.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(75);

/// A body is read in pieces of at most this size.
const READ_BUFFER_BYTES_MAX: usize = 64 << 10;

/// How the connections of a listener are served.
#[derive(Clone)]
pub struct Serving {
    pub router: Router,
    pub timing: Timing,
    /// Bounds of a request's head.
    pub head: HeadLimits,
    pub proxies: Arc<TrustedProxies>,
    /// Requests of the gateway's are not answered, but returned to the caller.
    pub turns: bool,
    /// None: what begins with the preface of HTTP/2 is a malformed request.
    pub http2: Option<Http2>,
}

impl Serving {
    /// With the default limits and deadlines, and without proxies, a gateway or HTTP/2.
    pub fn new(router: Router) -> Self {
        Self {
            router,
            timing: Timing::default(),
            head: HeadLimits::default(),
            proxies: Arc::default(),
            turns: false,
            http2: None,
        }
    }
}

/// A connection whose next request is the gateway's.
pub struct Turn<I> {
    pub io: I,
    /// From the first byte of the request on, as far as it was read.
    pub bytes: Vec<u8>,
}

/// A request that may change something, on its way to its answer.
type Change = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Serves requests until the client leaves, its place is needed, or `drain` resolves and the request in work is
/// answered. What breaks a connection is the client's affair: it is logged at debug.
///
/// A request that may change something is carried through when its client leaves amid: what it committed has
/// consequences, such as the end of a revoked device's connection. The connection counts until then.
pub async fn serve_connection<I>(
    io: I,
    serving: Serving,
    peer: Peer,
    place: Option<Place>,
    drain: impl Future<Output = ()>,
) -> Option<Turn<I>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let link = Link::new(place);
    let mut drain = pin!(drain.fuse());
    let mut io = Begun::new(io);
    if let Some(http2) = &serving.http2 {
        match speaks_http2(&mut io, &link, drain.as_mut()).await {
            Some(true) => {
                http2::serve(io, &serving, http2, peer, link, drain).await;
                return None;
            }
            Some(false) => {}
            None => return None,
        }
    }
    // Guards the one in work, which only this task looks at: HTTP/1.1 has one at a time.
    let change = Mutex::new(None);
    let served = tokio::select! {
        served = serve(io, serving, peer, &link, &change, drain) => served,
        () = link.evicted() => {
            tracing::debug!(peer = %peer.address, "an HTTP connection made room for another");
            Ok(None)
        }
    };
    let turn = served.unwrap_or_else(|error| {
        tracing::debug!(%error, peer = %peer.address, "an HTTP connection broke");
        None
    });
    if let Some(change) = change.into_inner() {
        change.await;
    }
    turn
}

/// None where the connection is over before that shows.
async fn speaks_http2<I: AsyncRead + Unpin>(
    io: &mut Begun<I>,
    link: &Link,
    drain: impl Future<Output = ()>,
) -> Option<bool> {
    tokio::select! {
        biased;
        speaks = io.speaks_http2() => Some(speaks),
        () = link.evicted() => None,
        () = drain => None,
        () = tokio::time::sleep(HEAD_TIMEOUT) => None,
    }
}

async fn serve<I>(
    io: Begun<I>,
    serving: Serving,
    peer: Peer,
    link: &Link,
    change: &Mutex<Option<Change>>,
    mut drain: Pin<&mut impl Future<Output = ()>>,
) -> hyper::Result<Option<Turn<I>>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = Paced::new(io, link.clone(), serving.timing);
    let service = service_fn(|request: Request<Incoming>| -> Answer<'_> {
        if serving.turns && turn::is_the_gateways(&request) {
            link.turn(Turned::of(request));
            return Box::pin(std::future::pending());
        }
        let is_safe = request.method().is_safe();
        let answer = answer(&serving, peer, link.clone(), request).map(closing);
        if is_safe {
            return Box::pin(answer.map(Ok));
        }
        // hyper drops what it was given here when the client leaves, and not what lies in `change`.
        *change.lock() = Some(Box::pin(answer));
        Box::pin(poll_fn(|context| poll_change(change, context).map(Ok)))
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
            // What was answered before is written first.
            Poll::Pending if link.has_turned() && !link.is_write_blocked() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    if let Some(result) = ended.await {
        return result.map(|()| None);
    }
    let parts = connection.into_parts();
    let mut bytes = link.take_turned().map(Turned::into_bytes).unwrap_or_default();
    bytes.extend_from_slice(&parts.read_buf);
    let (io, rest) = parts.io.into_inner().into_inner().into_parts();
    bytes.extend_from_slice(&rest);
    Ok(Some(Turn { io, bytes }))
}

/// After a body that was late nothing that follows can be told from its rest.
fn closing(mut answer: Response) -> Response {
    if answer.status() == StatusCode::REQUEST_TIMEOUT {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send + 'a>>;

fn poll_change(change: &Mutex<Option<Change>>, context: &mut Context<'_>) -> Poll<Response> {
    let Some(mut answer) = change.lock().take() else { return Poll::Pending };
    let polled = answer.as_mut().poll(context);
    if polled.is_pending() {
        *change.lock() = Some(answer);
    }
    polled
}

/// Lets the router answer a request.
pub(crate) fn answer<B>(
    serving: &Serving,
    peer: Peer,
    link: Link,
    request: Request<B>,
) -> impl Future<Output = Response> + Send + use<B>
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    link.begin_request();
    let values = request.headers().get_all(serving.proxies.header.name());
    let values = values.iter().map(HeaderValue::as_bytes);
    let client = Client(serving.proxies.client(peer.address.ip(), values));
    let mut request = request.map(|body| Body::new(Arriving::new(body, link.clone(), serving.timing)));
    let extensions = request.extensions_mut();
    extensions.insert(peer);
    extensions.insert(client);
    extensions.insert(link.clone());
    let answer = serving.router.clone().oneshot(request);
    async move {
        let answer = answer.await.unwrap_or_else(|never| match never {});
        let answer = if link.is_late() { late(answer) } else { answer };
        answer.map(|body| Body::new(Sent { body, link }))
    }
}

/// Whatever a handler made of a body that missed its deadline.
fn late(answer: Response) -> Response {
    let id = answer.headers().get(&REQUEST_ID).cloned();
    let mut answer = match answer.status() {
        StatusCode::REQUEST_TIMEOUT => answer,
        _ => Problem::new(Code::BodyTimeout, Late.to_string()).into_response(),
    };
    answer.headers_mut().extend(id.map(|id| (REQUEST_ID, id)));
    answer
}

/// An answer's body. The request is over when the last of it was taken.
struct Sent {
    body: Body,
    link: Link,
}

impl hyper::body::Body for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.link.end_request();
    }
}
