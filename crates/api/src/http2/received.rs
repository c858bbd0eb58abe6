//! A request's body as `h2` receives it. The client may send as much again as was read.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::{HeaderMap, header};
use hyper::body::{Body, Frame, SizeHint};

pub(super) struct Received {
    stream: RecvStream,
    /// Of a body whose length was told: `h2` holds the client to it (RFC 9113 §8.1.1).
    left_bytes: Option<u64>,
}

impl Received {
    pub(super) fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        let told = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let left_bytes = if stream.is_end_stream() { Some(0) } else { told };
        Self { stream, left_bytes }
    }

    /// None if it was not told.
    pub(super) fn length(&self) -> Option<u64> {
        self.left_bytes
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
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
