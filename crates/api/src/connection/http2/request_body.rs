//! A request body as `h2` receives it. Reading bytes reopens the client's window by the same amount.
//!
//! A client may wait for `100 Continue` before it sends the body (`Expect: 100-continue`, RFC 9110 §10.1.1). The node sends it
//! when a handler first reads the body, so a request that is rejected by its head costs no body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::SetOnce;

/// Set when a handler reads the body of a client that waits for `100 Continue`.
pub(super) type ContinueRequest = Arc<SetOnce<()>>;

pub(super) struct RequestBody {
    stream: RecvStream,
    continue_request: Option<ContinueRequest>,
    /// Of a body with `Content-Length`, which `h2` enforces (RFC 9113 §8.1.1).
    left_bytes: Option<u64>,
}

impl RequestBody {
    pub(super) fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        let declared =
            headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let left_bytes = if stream.is_end_stream() { Some(0) } else { declared };
        let expects = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let waits = !stream.is_end_stream() && headers.get_all(header::EXPECT).iter().any(expects);
        Self { stream, continue_request: waits.then(ContinueRequest::default), left_bytes }
    }

    /// None: the client does not wait.
    pub(super) fn continue_request(&self) -> Option<ContinueRequest> {
        self.continue_request.clone()
    }

    /// None without `Content-Length`.
    pub(super) fn length(&self) -> Option<u64> {
        self.left_bytes
    }
}

/// Sends `100 Continue`. A failure means that the client is gone, which other calls report.
pub(super) fn send_continue(respond: &mut SendResponse<Bytes>) {
    let mut informational = Response::new(());
    *informational.status_mut() = StatusCode::CONTINUE;
    let _ = respond.send_informational(informational);
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(request) = self.continue_request.take() {
            let _ = request.set(()); // set only here
        }
        let Some(bytes) = ready!(self.stream.poll_data(context)) else { return Poll::Ready(None) };
        let received = bytes.and_then(|bytes| {
            self.stream.flow_control().release_capacity(bytes.len())?;
            if let Some(left) = &mut self.left_bytes {
                *left = left.saturating_sub(bytes.len() as u64);
            }
            Ok(Frame::data(bytes))
        });
        Poll::Ready(Some(received))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.left_bytes.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
