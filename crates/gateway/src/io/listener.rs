//! A listening socket and the TCP options that its connections inherit. The accepting thread is in `gateway::acceptor`.
//!
//! TCP itself finds peers that vanished, with any protocol: the kernel probes a silent connection after
//! `Config::tcp_keepalive`, and closes it one minute later if nothing comes back. Unacknowledged data has the same
//! time. Accepted sockets inherit these options from the listening socket, so they cost no call and no memory.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::io::tls;
use crate::wire::Speaks;

/// The kernel caps it at net.core.somaxconn.
pub const BACKLOG: i32 = 8_192;

/// Between two probes of a silent connection.
const PROBE_INTERVAL: Duration = Duration::from_secs(15);
/// Unanswered probes after which the peer is gone: with [`PROBE_INTERVAL`], one minute.
const PROBES: u32 = 4;

/// A listening socket, and the protocol of its connections.
pub(crate) struct Listening {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<tls::Acceptor>,
    pub(crate) speaks: Speaks,
}

impl Listening {
    pub(crate) fn bind(
        address: SocketAddr,
        speaks: Speaks,
        tls: Option<tls::Acceptor>,
        keepalive: Duration,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restart does not wait for the TIME_WAIT of old connections.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        let probes =
            TcpKeepalive::new().with_time(keepalive).with_interval(PROBE_INTERVAL).with_retries(PROBES);
        socket.set_tcp_keepalive(&probes)?;
        // Otherwise unacknowledged data is retransmitted for a quarter of an hour, and no probe is sent meanwhile.
        socket.set_tcp_user_timeout(Some(keepalive + PROBE_INTERVAL * PROBES))?;
        // Frames are small and urgent.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Self { listener: socket.into(), tls, speaks })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_sockets_inherit_the_options() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listening = Listening::bind(any, Speaks::Http, None, Duration::from_secs(90)).expect("bound");
        let address = listening.local_addr().expect("an address");
        let _client = std::net::TcpStream::connect(address).expect("connected");
        listening.listener.set_nonblocking(false).expect("a socket");
        let (accepted, _) = listening.listener.accept().expect("accepted");
        let accepted = socket2::SockRef::from(&accepted);
        assert!(accepted.tcp_nodelay().expect("an option") && accepted.keepalive().expect("an option"));
    }
}
