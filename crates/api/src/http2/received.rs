//! A request's body as `h2` receives it. The client may send as much again as was read.
//!
//! A client may wait with the body until it is told to go on (`Expect: 100-continue`, RFC 9110 §10.1.1). It is told once the
//! body is asked for, so that a request that is refused by its head costs no body.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::SetOnce;

/// Set when a body is asked for whose client waits.
pub(super) type Wanted = Arc<SetOnce<()>>;

pub(super) struct Received {
    stream: RecvStream,
    wanted: Option<Wanted>,
    /// Of a body whose length was told: `h2` holds the client to it (RFC 9113 §8.1.1).
    left_bytes: Option<u64>,
}

impl Received {
    pub(super) fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        let told = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let left_bytes = if stream.is_end_stream() { Some(0) } else { told };
        let expects = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let waits = !stream.is_end_stream() && headers.get_all(header::EXPECT).iter().any(expects);
        Self { stream, wanted: waits.then(Wanted::default), left_bytes }
    }

    /// None: the client does not wait.
    pub(super) fn wanted(&self) -> Option<Wanted> {
        self.wanted.clone()
    }

    /// None if it was not told.
    pub(super) fn length(&self) -> Option<u64> {
        self.left_bytes
    }
}

/// Tells the client to send its body. One that has left is found to be gone elsewhere.
pub(super) fn ask_for_body(respond: &mut SendResponse<Bytes>) {
    let mut go_on = Response::new(());
    *go_on.status_mut() = StatusCode::CONTINUE;
    let _ = respond.send_informational(go_on);
}

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(wanted) = self.wanted.take() {
            let _ = wanted.set(()); // no one else sets it
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
