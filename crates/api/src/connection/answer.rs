//! Passes one request to the router and wraps its body and response, so that the connection knows when each ends.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode};
use hyper::body::{Frame, SizeHint};
use tower::ServiceExt;

use super::body_deadline::{BodyTimeout, BoxError, TimedBody};
use super::handle::{Client, Handle};
use super::serving::{Peer, Serving};
use crate::error::{Code, Problem};
use crate::request_id;

/// Answers a request by the router.
pub(super) fn answer<B>(
    serving: &Serving,
    peer: Peer,
    handle: Handle,
    request: Request<B>,
) -> impl Future<Output = Response> + Send + use<B>
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    handle.begin_request();
    let values = request.headers().get_all(serving.proxies.header.name());
    let values = values.iter().map(HeaderValue::as_bytes);
    let client = Client(serving.proxies.client(peer.address.ip(), values));
    let mut request = request.map(|body| Body::new(TimedBody::new(body, handle.clone(), serving.timing)));
    let extensions = request.extensions_mut();
    extensions.insert(peer);
    extensions.insert(client);
    extensions.insert(handle.clone());
    let answer = serving.router.clone().oneshot(request);
    async move {
        let answer = answer.await.unwrap_or_else(|never| match never {});
        let answer = if handle.is_body_timed_out() { timed_out(answer) } else { answer };
        answer.map(|body| Body::new(ResponseBody { body, handle }))
    }
}

/// Replaces the handler's response to a body that missed its deadline.
fn timed_out(answer: Response) -> Response {
    let id = answer.headers().get(&request_id::HEADER).cloned();
    let mut answer = match answer.status() {
        StatusCode::REQUEST_TIMEOUT => answer,
        _ => Problem::new(Code::BodyTimeout, BodyTimeout.to_string()).into_response(),
    };
    answer.headers_mut().extend(id.map(|id| (request_id::HEADER, id)));
    answer
}

/// The request ends when its response body is dropped.
struct ResponseBody {
    body: Body,
    handle: Handle,
}

impl hyper::body::Body for ResponseBody {
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

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.handle.end_request();
    }
}
