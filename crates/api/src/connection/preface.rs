//! A connection whose first bytes were peeked at: they show whether it speaks HTTP/2 (RFC 9113 §3.3, §3.4).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use noroshi_protocol::http2::PREFACE;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

pub(super) struct Peeked<I> {
    io: I,
    read: [u8; PREFACE.len()],
    /// `0 <= taken <= filled <= 24`: bytes of `read` that were peeked, and those of them that were read again.
    filled: u8,
    taken: u8,
}

impl<I> Peeked<I> {
    pub(super) fn new(io: I) -> Self {
        Self { io, read: [0; PREFACE.len()], filled: 0, taken: 0 }
    }

    fn rest(&self) -> &[u8] {
        &self.read[usize::from(self.taken)..usize::from(self.filled)]
    }

    /// The connection, and the peeked bytes that were not read again.
    pub(super) fn into_parts(self) -> (I, Vec<u8>) {
        let rest = self.rest().to_vec();
        (self.io, rest)
    }
}

impl<I: AsyncRead + Unpin> Peeked<I> {
    /// Reads until it is certain. The next read returns the end or error again.
    pub(super) async fn speaks_http2(&mut self) -> bool {
        loop {
            let filled = usize::from(self.filled);
            if self.read[..filled] != PREFACE[..filled] {
                return false;
            }
            if filled == PREFACE.len() {
                return true;
            }
            match self.io.read(&mut self.read[filled..]).await {
                // At most 24 in all.
                Ok(count @ 1..) => self.filled += count as u8,
                Ok(0) | Err(_) => return false,
            }
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Peeked<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.taken == self.filled {
            return Pin::new(&mut self.io).poll_read(cx, into);
        }
        let count = self.rest().len().min(into.remaining());
        into.put_slice(&self.rest()[..count]);
        self.taken += count as u8; // at most 24
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Peeked<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(sent: &[u8], speaks_http2: bool) {
        for cut in 0..sent.len() {
            let (parts, mut all) = (two_reads(&sent[..cut], &sent[cut..]), Vec::new());
            let mut peeked = Peeked::new(parts);
            assert_eq!(peeked.speaks_http2().await, speaks_http2, "{sent:?} cut at {cut}");
            peeked.read_to_end(&mut all).await.expect("its bytes");
            assert_eq!(all, sent, "cut at {cut}");
        }
    }

    fn two_reads<'a>(first: &'a [u8], second: &'a [u8]) -> impl AsyncRead + Unpin + 'a {
        first.chain(second)
    }

    #[tokio::test]
    async fn peeked_bytes_show_the_protocol_and_are_read_again() {
        check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nframes", true).await;
        check(PREFACE, true).await;
        check(b"POST /v1/notifications HTTP/1.1\r\n\r\n", false).await;
        check(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx", false).await;
        check(b"PRI", false).await;
    }
}
