//! A request's body as it arrives, with deadlines: for its first byte, for the whole, and for its rate.
//!
//! Every body of every route passes here, so no handler can wait for a client without end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::link::Link;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// From when a body is asked for to its first byte; every `body_rate_min` bytes grant a second more.
    pub body_first_byte: Duration,
    /// To its last byte, whatever its rate.
    pub body: Duration,
    /// Bytes a second.
    pub body_rate_min: u32,
    /// How long a client may take nothing of what it is sent; every `body_rate_min` bytes it takes make up for a second.
    pub send: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        use noroshi_types::limits;
        Self {
            body_first_byte: limits::BODY_FIRST_BYTE_TIMEOUT,
            body: limits::BODY_TIMEOUT,
            body_rate_min: limits::BODY_RATE_MIN,
            send: limits::SEND_TIMEOUT,
        }
    }
}

impl Timing {
    /// How long a body may take of which so many bytes are there.
    fn allowed(&self, received: u64) -> Duration {
        let earned =
            Duration::from_millis(received.saturating_mul(1_000) / u64::from(self.body_rate_min.max(1)));
        self.body_first_byte.saturating_add(earned).min(self.body)
    }
}

/// The client did not send its body in time.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub(crate) struct Late;

pub(crate) struct Arriving<B> {
    body: B,
    link: Link,
    timing: Timing,
    /// When it was first asked for.
    begun: Option<Instant>,
    received: u64,
    /// While nothing is there.
    deadline: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl<B: Body> Arriving<B> {
    pub(crate) fn new(body: B, link: Link, timing: Timing) -> Self {
        let ended = body.is_end_stream();
        Self { body, link, timing, begun: None, received: 0, deadline: None, ended }
    }

    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.link.set_awaits_body(true);
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let at = begun + self.timing.allowed(self.received);
        self.deadline.get_or_insert_with(|| Box::pin(sleep_until(at))).as_mut().poll(context)
    }
}

impl<B> Body for Arriving<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Poll::Ready(polled) = Pin::new(&mut self.body).poll_frame(context) else {
            ready!(self.poll_deadline(context));
            self.link.body_was_late();
            return Poll::Ready(Some(Err(Late.into())));
        };
        self.deadline = None;
        self.link.set_awaits_body(false);
        self.begun.get_or_insert_with(Instant::now);
        match &polled {
            Some(Ok(frame)) => self.received += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => {}
            None => self.ended = true,
        }
        self.ended |= self.body.is_end_stream();
        Poll::Ready(polled.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Arriving<B> {
    fn drop(&mut self) {
        self.link.set_awaits_body(false);
        if !self.ended {
            self.link.left_unread();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_earns_its_time_and_no_more_than_all_of_it() {
        let timing = Timing {
            body_first_byte: Duration::from_secs(10),
            body: Duration::from_secs(30),
            body_rate_min: 1_024,
            send: Duration::from_secs(30),
        };
        let check = |received, seconds| assert_eq!(timing.allowed(received).as_secs(), seconds, "{received}");
        check(0, 10);
        check(1_023, 10);
        check(5 << 10, 15);
        check(1 << 30, 30);
        check(u64::MAX, 30);
    }
}
