//! A connection's bytes, whose peer has to take what it is sent.
//!
//! Writing is measured by the time that the peer keeps it waiting, less what it took meanwhile: a peer that
//! reads nothing and one that reads a byte now and then are both given up, a slow one is not.
//!
//! A connection that ends in the middle of a request body lingers: closed at once, the kernel would answer the
//! rest of the body with a reset, and the peer might lose the answer (RFC 9112 §9.6).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::arriving::Timing;
use crate::link::Link;

/// How long the end of the peer is waited for, and how much is read and thrown away meanwhile.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1 << 20;

/// How long a peer kept its sender waiting, less what it earned since by taking bytes.
#[derive(Default)]
pub(crate) struct Debt(Duration);

impl Debt {
    pub(crate) fn waited(&mut self, time: Duration) {
        self.0 += time;
    }

    pub(crate) fn earned(&mut self, bytes: usize, timing: Timing) {
        let earned = Duration::from_secs_f64(bytes as f64 / f64::from(timing.body_rate_min.max(1)));
        self.0 = self.0.saturating_sub(earned);
    }

    /// How long the peer may go on to take nothing.
    pub(crate) fn left(&self, timing: Timing) -> Duration {
        timing.send.saturating_sub(self.0)
    }
}

pub(crate) struct Paced<I> {
    io: I,
    link: Link,
    timing: Timing,
    debt: Debt,
    /// Since when it does, and when that is too long.
    blocked: Option<(Instant, Pin<Box<Sleep>>)>,
    linger: Option<Linger>,
}

struct Linger {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<I> Paced<I> {
    pub(crate) fn new(io: I, link: Link, timing: Timing) -> Self {
        Self { io, link, timing, debt: Debt::default(), blocked: None, linger: None }
    }

    pub(crate) fn into_inner(self) -> I {
        self.io
    }

    fn pace(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(result) = result {
            if let Some((since, _)) = self.blocked.take() {
                self.debt.waited(since.elapsed());
                self.link.set_write_blocked(false);
                self.link.heard(); // it took bytes
            }
            if let Ok(count) = &result {
                self.debt.earned(*count, self.timing);
            }
            return Poll::Ready(result);
        }
        let left = self.debt.left(self.timing);
        let (_, late) = self.blocked.get_or_insert_with(|| {
            self.link.set_write_blocked(true);
            (Instant::now(), Box::pin(sleep(left)))
        });
        ready!(late.as_mut().poll(context));
        let late = "the client did not take its answer in time";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, late)))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Paced<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = into.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(cx, into);
        if into.filled().len() > filled {
            self.link.heard();
        }
        polled
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Paced<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.pace(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.pace(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What TLS still holds counts as what was not taken.
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Ready(flushed) => self.pace(cx, Poll::Ready(flushed.map(|()| 0))).map_ok(drop),
            Poll::Pending => self.pace(cx, Poll::Pending).map_ok(drop),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.linger.is_none() {
            match Pin::new(&mut this.io).poll_shutdown(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return this.pace(cx, Poll::Pending).map_ok(drop),
            }
            if !this.link.has_unread() {
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
                _ => break, // its end
            }
        }
        Poll::Ready(Ok(()))
    }
}
