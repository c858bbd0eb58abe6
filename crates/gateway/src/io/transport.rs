//! The transport of one connection: a socket in plaintext or under TLS.
//!
//! A polling session has none: it receives and sends through other connections.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;

use mio::net::TcpStream;

use crate::io::tls::TlsSession;

pub(crate) enum Transport {
    Plain(TcpStream),
    /// None: no socket. It receives nothing and takes nothing. (A separate variant would cost every connection eight
    /// bytes.)
    Tls(Option<Box<Tls>>),
}

/// One allocation for both.
pub(crate) struct Tls {
    stream: TcpStream,
    session: TlsSession,
    /// In the shard's list of handshakes that continue in a later turn.
    waits: bool,
}

/// What a read returned.
pub(crate) struct Received {
    /// 0 is the end.
    pub(crate) bytes: usize,
    /// The socket was empty then: further bytes are a new event, except for the end itself.
    pub(crate) drained: bool,
}

const _: () = assert!(size_of::<Transport>() <= 16);

impl Transport {
    pub(crate) const NONE: Transport = Transport::Tls(None);

    pub(crate) fn new(stream: TcpStream, tls: Option<TlsSession>) -> Self {
        match tls {
            None => Transport::Plain(stream),
            Some(session) => Transport::Tls(Some(Box::new(Tls { stream, session, waits: false }))),
        }
    }

    /// Encrypts everything from here on (STARTTLS). The socket gets another descriptor, to be registered: its own
    /// cannot be moved out of here.
    pub(crate) fn begin_tls(&mut self, session: TlsSession) -> io::Result<()> {
        let stream = self.stream().ok_or(io::ErrorKind::NotConnected)?;
        let stream = stream.as_fd().try_clone_to_owned()?;
        *self = Transport::new(TcpStream::from_std(stream.into()), Some(session));
        Ok(())
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Transport::Tls(Some(_)))
    }

    pub(crate) fn stream(&mut self) -> Option<&mut TcpStream> {
        match self {
            Transport::Plain(stream) => Some(stream),
            Transport::Tls(Some(tls)) => Some(&mut tls.stream),
            Transport::Tls(None) => None,
        }
    }

    /// The descriptor, if bytes written to it are sent as they are.
    #[cfg(feature = "io-uring")]
    pub(crate) fn plain(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        match self {
            Transport::Plain(stream) => Some(stream.as_fd()),
            Transport::Tls(_) => None,
        }
    }

    pub(crate) fn speaks_http2(&self) -> bool {
        matches!(self, Transport::Tls(Some(tls)) if tls.session.speaks_http2())
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self, Transport::Tls(Some(tls)) if tls.session.is_handshaking())
    }

    /// Defers the handshake. True if it was not deferred already.
    pub(crate) fn wait(&mut self) -> bool {
        match self {
            Transport::Plain(_) | Transport::Tls(None) => false,
            Transport::Tls(Some(tls)) => !std::mem::replace(&mut tls.waits, true),
        }
    }

    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<Received> {
        match self {
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

    /// Writes all slices, or as far as the socket takes them: then an event reports when it takes more.
    pub(crate) fn write(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<usize> {
        let mut rest = slices;
        let mut written = 0;
        while rest.iter().any(|slice| !slice.is_empty()) {
            let step = match (&mut *self, &*rest) {
                (Transport::Plain(stream), [one]) => stream.write(one),
                (Transport::Plain(stream), many) => stream.write_vectored(many),
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
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match self {
            Transport::Plain(_) | Transport::Tls(None) => Ok(true),
            Transport::Tls(Some(tls)) => tls.session.flush(&mut tls.stream),
        }
    }

    /// Ends the write side.
    pub(crate) fn end(&mut self) {
        if let Transport::Tls(Some(tls)) = self {
            tls.session.close(&mut tls.stream);
        }
        if let Some(stream) = self.stream() {
            // A peer that is gone has ended it already.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }

    pub(crate) fn into_parts(self) -> Option<(TcpStream, Option<Box<TlsSession>>)> {
        match self {
            Transport::Plain(stream) => Some((stream, None)),
            Transport::Tls(Some(tls)) => Some((tls.stream, Some(Box::new(tls.session)))),
            Transport::Tls(None) => None,
        }
    }
}
