//! The socket of one connection, and the bytes that it has not taken yet.
//!
//! Owns the order of output: bytes go to the kernel at once while nothing is unsent, and behind the unsent bytes
//! otherwise. Reports what the kernel took; it closes nothing and counts nothing. The shard calls it, and the writer of
//! marked messages ([`crate::fanout::batch`]).
//!
//! Invariant: every unsent chunk ends at the end of a frame, so [`Socket::discard_unsent`] leaves whole frames behind.

use std::io::{self, IoSlice};

use bytes::Bytes;
use mio::net::TcpStream;

use crate::io::tls::TlsSession;
use crate::io::transport::{Received, Transport};
use crate::io::unsent::Unsent;

pub(crate) struct Socket {
    transport: Transport,
    /// Allocated while the kernel does not take everything.
    unsent: Option<Box<Unsent>>,
}

/// What [`Socket::flush`] achieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Bytes are still unsent; this many were taken.
    Blocked(usize),
    /// The last unsent bytes were taken; this many.
    Drained(usize),
    /// There were no unsent bytes.
    Idle,
}

impl Socket {
    /// The socket of a session that polls: it has none.
    pub(crate) const NONE: Socket = Socket { transport: Transport::NONE, unsent: None };

    pub(crate) fn new(stream: TcpStream, tls: Option<TlsSession>) -> Self {
        Self { transport: Transport::new(stream, tls), unsent: None }
    }

    pub(crate) fn stream(&mut self) -> Option<&mut TcpStream> {
        self.transport.stream()
    }

    pub(crate) fn into_parts(self) -> Option<(TcpStream, Option<Box<TlsSession>>)> {
        self.transport.into_parts()
    }

    /// Encrypts everything from here on (STARTTLS). The socket gets another descriptor, which the caller must register.
    pub(crate) fn begin_tls(&mut self, session: TlsSession) -> io::Result<()> {
        self.transport.begin_tls(session)
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.transport.is_handshaking()
    }

    pub(crate) fn speaks_http2(&self) -> bool {
        self.transport.speaks_http2()
    }

    /// Defers the handshake. True if it was not deferred already.
    pub(crate) fn defer_handshake(&mut self) -> bool {
        self.transport.wait()
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Received> {
        self.transport.read(into)
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| unsent.bytes())
    }

    /// When the kernel last took bytes, if some are unsent.
    pub(crate) fn blocked_since(&self) -> Option<u32> {
        self.unsent.as_ref().map(|unsent| unsent.taken_tick)
    }

    /// The descriptor, if bytes can be written to it as they are and nothing is unsent.
    #[cfg(feature = "io-uring")]
    pub(crate) fn idle_descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.transport.plain().filter(|_| self.unsent.is_none())
    }

    /// Writes as far as the kernel takes it; for a socket without unsent bytes. The caller keeps the rest with
    /// [`Socket::keep`].
    pub(crate) fn write(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<usize> {
        self.transport.write(slices)
    }

    /// Keeps the part of a frame that the kernel did not take: everything behind its first `begun` bytes.
    pub(crate) fn keep(&mut self, frame: Bytes, begun: usize, now_tick: u32) {
        let unsent = self.unsent.get_or_insert_with(|| Box::new(Unsent::new(now_tick)));
        match begun {
            0 => unsent.push(frame),
            begun => unsent.push_begun(frame.slice(begun..)),
        }
    }

    /// Writes `frame`, or keeps what the kernel does not take. Returns how many bytes it took.
    pub(crate) fn send(&mut self, frame: Bytes, now_tick: u32) -> io::Result<usize> {
        let mut written = 0;
        if self.unsent.is_none() {
            written = self.transport.write(&mut [IoSlice::new(&frame)])?;
        }
        if written < frame.len() {
            self.keep(frame, written, now_tick);
        }
        Ok(written)
    }

    /// Holds everything back until [`Socket::flush`], so that it leaves with one write.
    pub(crate) fn cork(&mut self, now_tick: u32) {
        self.unsent.get_or_insert_with(|| Box::new(Unsent::new(now_tick)));
    }

    /// Writes unsent bytes as far as the kernel takes them.
    pub(crate) fn flush(&mut self, now_tick: u32) -> io::Result<Flushed> {
        if !self.transport.flush()? {
            return Ok(Flushed::Blocked(0));
        }
        let Some(unsent) = &mut self.unsent else { return Ok(Flushed::Idle) };
        let count = unsent.write_to(&mut self.transport, now_tick)?;
        if !unsent.is_empty() {
            return Ok(Flushed::Blocked(count));
        }
        self.unsent = None;
        Ok(Flushed::Drained(count))
    }

    /// Discards unsent frames except a partially written one, so that a close frame can follow.
    pub(crate) fn discard_unsent(&mut self) {
        if let Some(unsent) = &mut self.unsent {
            unsent.cut();
            if unsent.is_empty() {
                self.unsent = None;
            }
        }
    }

    /// Ends the write side. False, and nothing done, while ciphertext is unsent.
    pub(crate) fn end_writing(&mut self) -> bool {
        let is_flushed = self.transport.flush().unwrap_or(true);
        if is_flushed {
            self.transport.end();
        }
        is_flushed
    }
}
