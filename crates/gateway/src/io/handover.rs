//! Hands connections with requests for the API over to it, with everything read so far, and takes them back.
//!
//! The gateway reads a request head to know what a connection wants. A request that is not the gateway's is passed to
//! the callback given at the start; [`Handover::into_io`] makes a stream that begins with the bytes already read. The
//! only file of this crate that uses tokio's sockets.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::poll_proceed;

use crate::io::tls::TlsSession;

/// An accepted connection for the API.
pub struct Handover {
    /// Non-blocking.
    pub stream: std::net::TcpStream,
    pub tls: Option<Box<TlsSession>>,
    /// Plaintext read so far, from the first byte of the request on.
    pub prefix: Bytes,
    pub peer: SocketAddr,
}

impl Handover {
    /// Must be called inside a tokio runtime.
    pub fn into_io(self) -> io::Result<Io> {
        let stream = TcpStream::from_std(self.stream)?;
        Ok(Io { stream, tls: self.tls, prefix: self.prefix })
    }
}

impl Io {
    /// Returns the connection to the gateway. `read`: bytes that the API read and did not answer.
    pub(crate) fn into_handover(self, read: Vec<u8>) -> io::Result<Handover> {
        let Io { stream, tls, prefix } = self;
        let stream = stream.into_std()?;
        let peer = stream.peer_addr()?;
        let prefix = if prefix.is_empty() { read.into() } else { [&read, &prefix[..]].concat().into() };
        Ok(Handover { stream, tls, prefix, peer })
    }
}

/// The connection as a tokio stream. It takes part in tokio's cooperative scheduling also under TLS: a peer that sends
/// without pause cannot occupy a worker.
pub struct Io {
    stream: TcpStream,
    tls: Option<Box<TlsSession>>,
    /// Read first; empty afterwards.
    prefix: Bytes,
}

/// tokio's socket as the non-blocking one that TLS expects: `WouldBlock` if it is not ready.
struct Ready<'a>(&'a TcpStream);

impl io::Read for Ready<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl io::Write for Ready<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let io = self.get_mut();
        if io.prefix.has_remaining() {
            let count = io.prefix.len().min(into.remaining());
            into.put_slice(&io.prefix.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let Some(tls) = &mut io.tls else { return Pin::new(&mut io.stream).poll_read(cx, into) };
        let budget = ready!(poll_proceed(cx));
        loop {
            match tls.read(&mut Ready(&io.stream), into.initialize_unfilled()) {
                Ok(count) => {
                    into.advance(count);
                    budget.made_progress();
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // The peer may wait for the rest of our flight before it sends more.
                    if !tls.flush(&mut Ready(&io.stream))? && io.stream.poll_write_ready(cx)?.is_ready() {
                        continue; // the socket takes more by now
                    }
                    ready!(io.stream.poll_read_ready(cx))?
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let io = self.get_mut();
        let Some(tls) = &mut io.tls else { return Pin::new(&mut io.stream).poll_write_vectored(cx, slices) };
        let budget = ready!(poll_proceed(cx));
        loop {
            match tls.write_vectored(&mut Ready(&io.stream), slices) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(io.stream.poll_write_ready(cx))?
                }
                done => {
                    budget.made_progress();
                    return Poll::Ready(done);
                }
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let io = self.get_mut();
        let Some(tls) = &mut io.tls else { return Poll::Ready(Ok(())) };
        while !tls.flush(&mut Ready(&io.stream))? {
            ready!(io.stream.poll_write_ready(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let io = &mut *self;
        if let Some(tls) = &mut io.tls {
            tls.close(&mut Ready(&io.stream));
        }
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
