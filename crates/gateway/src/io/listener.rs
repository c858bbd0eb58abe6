//! Accepting: one thread takes sockets from all listeners and gives each to the least loaded shard.
//!
//! Listeners shared by the kernel (`SO_REUSEPORT`) load event loops unevenly, and a connection stays
//! where it began for days; one thread that accepts is never the bottleneck.
//!
//! Over the rate a plain connection's request is read: a device is answered `503` with a delay that is
//! not the same for all, the API serves its own. A TLS one waits in the kernel's queue for its turn,
//! since an answer would cost the handshake that is to be put off; where that queue is full, TCP tries
//! again after a second, then three, then seven. Where all connections are in use the oldest without a credential
//! makes room; where none can, a device is answered `503`.
//!
//! TCP itself finds peers that vanished without a word, whatever they speak: the kernel probes a silent connection
//! after `Config::tcp_keepalive`, and closes it one minute later if nothing comes back. Unacknowledged data has the
//! same time. Accepted sockets inherit these options from the listening socket, so they cost no call and no memory.

use std::io::{self};
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

/// A socket that listens, and how its connections are read.
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
        // A restart does not wait for the old connections' TIME_WAIT.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        let probes =
            TcpKeepalive::new().with_time(keepalive).with_interval(PROBE_INTERVAL).with_retries(PROBES);
        socket.set_tcp_keepalive(&probes)?;
        // Without it unacknowledged data is sent again for a quarter of an hour, and no probe goes out meanwhile.
        socket.set_tcp_user_timeout(Some(keepalive + PROBE_INTERVAL * PROBES))?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Self { listener: socket.into(), tls, speaks })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
