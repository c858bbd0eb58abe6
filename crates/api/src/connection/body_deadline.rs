//! A request body with deadlines: for its first byte, for its rate, and for the whole.
//!
//! Every body of every route passes through here, so no handler waits for a client forever.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::handle::Handle;
use super::timing::Timing;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The client did not send its body in time.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub(crate) struct BodyTimeout;

pub(super) struct TimedBody<B> {
    body: B,
    handle: Handle,
    timing: Timing,
    /// When the body was first read.
    started_at: Option<Instant>,
    received: u64,
    /// Set while a read is pending.
    deadline: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl<B: Body> TimedBody<B> {
    pub(super) fn new(body: B, handle: Handle, timing: Timing) -> Self {
        let ended = body.is_end_stream();
        Self { body, handle, timing, started_at: None, received: 0, deadline: None, ended }
    }

    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.handle.set_awaits_body(true);
        let started_at = *self.started_at.get_or_insert_with(Instant::now);
        let at = started_at + self.timing.body_allowance(self.received);
        self.deadline.get_or_insert_with(|| Box::pin(sleep_until(at))).as_mut().poll(context)
    }
}

impl<B> Body for TimedBody<B>
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
            self.handle.set_body_timed_out();
            return Poll::Ready(Some(Err(BodyTimeout.into())));
        };
        self.deadline = None;
        self.handle.set_awaits_body(false);
        self.started_at.get_or_insert_with(Instant::now);
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

impl<B> Drop for TimedBody<B> {
    fn drop(&mut self) {
        self.handle.set_awaits_body(false);
        if !self.ended {
            self.handle.set_unread();
        }
    }
}
