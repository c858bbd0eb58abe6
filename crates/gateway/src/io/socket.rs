//! The socket of one connection, and the bytes that it has not taken yet.
//!
//! Owns the order of output: bytes go to the kernel at once while nothing is unsent, and behind the unsent bytes
//! otherwise. Reports what the kernel took; it closes nothing and counts nothing. The shard calls it, and the writer of
//! marked messages ([`crate::fanout::batch`]).
//!
//! Invariant: every unsent chunk ends at the end of a frame, so [`Socket::discard_unsent`] leaves whole frames behind.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;

use bytes::Bytes;
use mio::net::TcpStream;

use crate::io::tls::TlsSession;
use crate::io::unsent::Unsent;

/// Several slices of at most this length together are copied and sent as one: the copy costs a tenth of what the kernel
/// spends on a list of slices.
const GATHERED_BYTES: usize = 1_024;

/// A TCP socket in plaintext or under TLS.
enum Transport {
    Plain(TcpStream),
    /// None: a polling session, which receives and sends through other connections. (A separate variant would cost every
    /// connection eight bytes.)
    Tls(Option<Box<Tls>>),
}

/// One allocation for both.
struct Tls {
    stream: TcpStream,
    session: TlsSession,
    /// In the shard's list of handshakes that continue in a later turn.
    waits: bool,
}

const _: () = assert!(size_of::<Transport>() <= 16);

/// What a read returned.
pub(crate) struct Received {
    /// 0 is the end.
    pub(crate) bytes: usize,
    /// The socket was empty then: further bytes are a new event, except for the end itself.
    pub(crate) drained: bool,
}

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
    pub(crate) const NONE: Socket = Socket { transport: Transport::Tls(None), unsent: None };

    pub(crate) fn new(stream: TcpStream, tls: Option<TlsSession>) -> Self {
        Self { transport: Transport::new(stream, tls), unsent: None }
    }

    pub(crate) fn stream(&mut self) -> Option<&mut TcpStream> {
        match &mut self.transport {
            Transport::Plain(stream) => Some(stream),
            Transport::Tls(tls) => tls.as_mut().map(|tls| &mut tls.stream),
        }
    }

    fn tls(&self) -> Option<&TlsSession> {
        match &self.transport {
            Transport::Tls(Some(tls)) => Some(&tls.session),
            Transport::Tls(None) | Transport::Plain(_) => None,
        }
    }

    pub(crate) fn into_parts(self) -> Option<(TcpStream, Option<Box<TlsSession>>)> {
        match self.transport {
            Transport::Plain(stream) => Some((stream, None)),
            Transport::Tls(tls) => tls.map(|tls| (tls.stream, Some(Box::new(tls.session)))),
        }
    }

    /// Encrypts everything from here on (STARTTLS). The socket gets another descriptor, which the caller must register:
    /// its own cannot be moved out of here.
    pub(crate) fn begin_tls(&mut self, session: TlsSession) -> io::Result<()> {
        let stream = self.stream().ok_or(io::ErrorKind::NotConnected)?;
        let stream = stream.as_fd().try_clone_to_owned()?;
        self.transport = Transport::new(TcpStream::from_std(stream.into()), Some(session));
        Ok(())
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls().is_some()
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls().is_some_and(TlsSession::is_handshaking)
    }

    pub(crate) fn speaks_http2(&self) -> bool {
        self.tls().is_some_and(TlsSession::speaks_http2)
    }

    /// Defers the handshake. True if it was not deferred already.
    pub(crate) fn defer_handshake(&mut self) -> bool {
        match &mut self.transport {
            Transport::Tls(Some(tls)) => !std::mem::replace(&mut tls.waits, true),
            Transport::Tls(None) | Transport::Plain(_) => false,
        }
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Received> {
        match &mut self.transport {
            Transport::Plain(stream) => {
                let bytes = stream.read(into)?;
                Ok(Received { bytes, drained: bytes < into.len() })
            }
            Transport::Tls(Some(tls)) => {
                tls.waits = false;
                let bytes = tls.session.read(&mut tls.stream, into)?;
                Ok(Received { bytes, drained: tls.session.is_drained() })
            }
            Transport::Tls(None) => Err(io::ErrorKind::WouldBlock.into()),
        }
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
        match &self.transport {
            Transport::Plain(stream) if self.unsent.is_none() => Some(stream.as_fd()),
            Transport::Plain(_) | Transport::Tls(_) => None,
        }
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
        let count = unsent.write_to(|slices| self.transport.write(slices), now_tick)?;
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
            if let Transport::Tls(Some(tls)) = &mut self.transport {
                tls.session.close(&mut tls.stream);
            }
            if let Some(stream) = self.stream() {
                // A peer that is gone has ended it already.
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
        is_flushed
    }
}

impl Transport {
    fn new(stream: TcpStream, tls: Option<TlsSession>) -> Self {
        match tls {
            None => Transport::Plain(stream),
            Some(session) => Transport::Tls(Some(Box::new(Tls { stream, session, waits: false }))),
        }
    }

    /// Writes all slices, or as far as the socket takes them: then an event reports when it takes more.
    fn write(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<usize> {
        let mut rest = slices;
        let mut written = 0;
        while rest.iter().any(|slice| !slice.is_empty()) {
            let step = match (&mut *self, &*rest) {
                (Transport::Plain(stream), [one]) => stream.write(one),
                (Transport::Plain(stream), many) => match gather(many, &mut [0; GATHERED_BYTES]) {
                    Some(bytes) => stream.write(bytes),
                    None => stream.write_vectored(many),
                },
                (Transport::Tls(Some(tls)), slices) => tls.session.write_vectored(&mut tls.stream, slices),
                (Transport::Tls(None), _) => break,
            };
            match step {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    written += count;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Sends pending ciphertext. True when none is left.
    fn flush(&mut self) -> io::Result<bool> {
        match self {
            Transport::Plain(_) | Transport::Tls(None) => Ok(true),
            Transport::Tls(Some(tls)) => tls.session.flush(&mut tls.stream),
        }
    }
}

/// Copies the slices together. None if they are too long.
fn gather<'a>(slices: &[IoSlice<'_>], into: &'a mut [u8; GATHERED_BYTES]) -> Option<&'a [u8]> {
    let mut len = 0;
    for slice in slices {
        into.get_mut(len..len + slice.len())?.copy_from_slice(slice);
        len += slice.len();
    }
    Some(&into[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_slices_are_gathered_in_order() {
        let mut room = [0; GATHERED_BYTES];
        let check = |slices: &[&[u8]], room: &mut [u8; GATHERED_BYTES]| {
            let slices: Vec<_> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
            gather(&slices, room).map(<[u8]>::to_vec)
        };
        assert_eq!(check(&[b"ab", b"", b"c"], &mut room).as_deref(), Some(&b"abc"[..]));
        let half = [7; GATHERED_BYTES / 2];
        assert_eq!(check(&[&half, &half], &mut room), Some(vec![7; GATHERED_BYTES]));
        assert_eq!(check(&[&half, &half, b"x"], &mut room), None);
    }
}
