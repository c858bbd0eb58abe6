//! A connection whose peer must read what it is sent.
//!
//! The deadline counts the time for which the peer blocks writes, less the time that it earns by reading: a peer that
//! reads nothing, or a byte now and then, times out; a slow peer does not.
//!
//! A connection that ends in the middle of a request body lingers. If it closed at once, the kernel would answer the rest
//! of the body with a reset, and the peer could lose the response (RFC 9112 §9.6).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::handle::Handle;
use super::timing::Timing;

/// How long a closing connection waits for the end of the peer's bytes, and how many it discards meanwhile.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1 << 20;

/// For how long a peer blocked writes, less what it earned by reading.
#[derive(Default)]
pub(super) struct BlockedTime(Duration);

impl BlockedTime {
    pub(super) fn add_blocked(&mut self, time: Duration) {
        self.0 += time;
    }

    pub(super) fn add_sent(&mut self, bytes: usize, timing: Timing) {
        let earned = Duration::from_secs_f64(bytes as f64 / f64::from(timing.body_rate_min.max(1)));
        self.0 = self.0.saturating_sub(earned);
    }

    /// How much longer the peer may block.
    pub(super) fn remaining(&self, timing: Timing) -> Duration {
        timing.send.saturating_sub(self.0)
    }
}

pub(super) struct TimedIo<I> {
    io: I,
    handle: Handle,
    timing: Timing,
    blocked_time: BlockedTime,
    /// Since when the peer blocks writes, and the timer of its deadline.
    blocked: Option<(Instant, Pin<Box<Sleep>>)>,
    linger: Option<Linger>,
}

struct Linger {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<I> TimedIo<I> {
    pub(super) fn new(io: I, handle: Handle, timing: Timing) -> Self {
        Self { io, handle, timing, blocked_time: BlockedTime::default(), blocked: None, linger: None }
    }

    pub(super) fn into_inner(self) -> I {
        self.io
    }

    fn apply_deadline(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = result {
            if let Some((since, _)) = self.blocked.take() {
                self.blocked_time.add_blocked(since.elapsed());
                self.handle.set_write_blocked(false);
                self.handle.set_active(); // it read bytes
            }
            if let Ok(count) = &result {
                self.blocked_time.add_sent(*count, self.timing);
            }
            return Poll::Ready(result);
        }
        let remaining = self.blocked_time.remaining(self.timing);
        let (_, deadline) = self.blocked.get_or_insert_with(|| {
            self.handle.set_write_blocked(true);
            (Instant::now(), Box::pin(sleep(remaining)))
        });
        ready!(deadline.as_mut().poll(context));
        let reason = "the client did not read its response in time";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for TimedIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = into.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, into);
        if into.filled().len() > filled {
            self.handle.set_active();
        }
        polled
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TimedIo<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.apply_deadline(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.apply_deadline(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Bytes that TLS buffers count as unread.
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Ready(flushed) => self.apply_deadline(cx, Poll::Ready(flushed.map(|()| 0))).map_ok(drop),
            Poll::Pending => self.apply_deadline(cx, Poll::Pending).map_ok(drop),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            match Pin::new(&mut this.io).poll_shutdown(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return this.apply_deadline(cx, Poll::Pending).map_ok(drop),
            }
            if !this.handle.has_unread() {
                return Poll::Ready(Ok(()));
            }
        }
        let linger = this
            .linger
            .get_or_insert_with(|| Linger { until: Box::pin(sleep(LINGER)), bytes_left: LINGER_BYTES_MAX });
        let mut discarded = [0; 4_096];
        while linger.bytes_left > 0 && linger.until.as_mut().poll(cx).is_pending() {
            let mut discarded = ReadBuf::new(&mut discarded);
            match ready!(Pin::new(&mut this.io).poll_read(cx, &mut discarded)) {
                Ok(()) if !discarded.filled().is_empty() => {
                    linger.bytes_left = linger.bytes_left.saturating_sub(discarded.filled().len());
                }
                _ => break, // end of stream
            }
        }
        Poll::Ready(Ok(()))
    }
}
