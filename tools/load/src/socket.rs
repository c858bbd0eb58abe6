//! A non-blocking connection of a device or a provider, plain or with TLS, with the same read and write
//! interface. It does not interpret the bytes.
//!
//! Readiness is edge-triggered: after an event, read until `WouldBlock` ([`Socket::is_drained`] returns
//! whether that may be skipped), and write or [`Socket::flush`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::{ClientConnection, HandshakeKind, ProtocolVersion};

use crate::tls::Connector;

/// The segment size with Ethernet and IPv6 headers within 1,500 bytes.
const NARROW_SEGMENT_BYTES: u32 = 1_440;
const NARROW_BUFFER_BYTES: usize = 16 << 10;

/// The address and options of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) to: SocketAddr,
    pub(crate) source: Option<SocketAddr>,
    /// Simulates an ordinary network. On loopback a segment has 64 KiB, and the kernel's buffers of a
    /// connection grow to megabytes, which would hide a slow reader.
    pub(crate) narrow: bool,
    pub(crate) tls: Option<&'a Connector>,
}

pub(crate) struct Socket {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Socket {
    /// Starts to connect.
    pub(crate) fn open(route: Route<'_>) -> io::Result<Self> {
        let tls = route.tls.map(Connector::session).transpose()?.map(Box::new);
        Ok(Self { stream: connect(route)?, tls })
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.stream, token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        self.stream.set_nodelay(true)
    }

    /// Whether a read of `len` bytes into `room` was the last for now. epoll(7): a short read has emptied a
    /// stream, but its end needs another read; with TLS a short read may just be a short record.
    pub(crate) fn is_drained(&self, len: usize, room: usize, peer_closed: bool) -> bool {
        self.tls.is_none() && len < room && !peer_closed
    }

    /// The kind of the TLS handshake, once complete.
    pub(crate) fn handshake(&self) -> Option<HandshakeKind> {
        let tls = self.tls.as_ref()?;
        tls.handshake_kind().filter(|_| !tls.is_handshaking())
    }

    /// Whether the handshake is complete and left a ticket, which is the last message of TLS 1.2.
    pub(crate) fn has_ticket(&self) -> bool {
        let done = |tls: &ClientConnection| match tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => tls.tls13_tickets_received() > 0,
            _ => true,
        };
        self.tls.as_ref().is_some_and(|tls| !tls.is_handshaking() && done(tls))
    }

    /// Sends pending bytes; returns false if the socket did not accept all of them.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.stream) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // While connecting; a writable event follows.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes plain bytes; with TLS all of them unless older ones are pending.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return self.stream.write(bytes);
        }
        if !self.flush()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let Some(tls) = &mut self.tls else { return Ok(0) };
        let len = tls.writer().write(bytes)?;
        self.flush()?;
        Ok(len)
    }

    /// Reads plain bytes; 0 is the end, with or without close_notify.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(tls) = &mut self.tls else { return self.stream.read(into) };
            match tls.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // RFC 8446 §6.1 requires close_notify; without it the frames inside still have lengths.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if tls.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            let processed = tls.process_new_packets();
            let flushed = self.flush(); // sends an alert in case of an error
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            flushed?;
        }
    }
}

fn connect(Route { to, source, narrow, .. }: Route<'_>) -> io::Result<TcpStream> {
    use socket2::{Domain, Protocol, Socket, Type};
    if source.is_none() && !narrow {
        return TcpStream::connect(to);
    }
    let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    if narrow {
        // Both are announced in the first packet.
        socket.set_tcp_mss(NARROW_SEGMENT_BYTES)?;
        socket.set_recv_buffer_size(NARROW_BUFFER_BYTES)?;
    }
    if let Some(source) = source {
        socket.bind(&source.into())?;
    }
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
            Err(error)
        }
        Ok(()) | Err(_) => Ok(TcpStream::from_std(socket.into())),
    }
}
