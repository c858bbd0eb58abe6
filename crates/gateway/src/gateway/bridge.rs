//! HTTP/2 streams that the API passes to the gateway ([`crate::io::bridge`]).

use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::gateway::Gateway;
use crate::lifecycle::Origin;
use crate::shard::mailbox::{Arrival, ArrivalKind, Moved};
use crate::shard::shared::Shared;

/// What the kernel holds for a slow client before the shard's own limits apply: as much as those allow.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// Held while the API has its end of the pair.
pub struct Bridge(Arc<Shared>);

impl Drop for Bridge {
    fn drop(&mut self) {
        self.0.bridges.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gateway {
    /// Opens a connection for a request of this peer. The shard reads `head` first. Returns the other end; none if
    /// there is no room.
    pub fn bridge(&self, peer: SocketAddr, head: Vec<u8>) -> Option<(UnixStream, Bridge)> {
        let shared = &self.shared;
        shared.bridges.open.fetch_add(1, Ordering::Relaxed);
        let bridge = Bridge(shared.clone());
        if shared.is_full() {
            shared.metrics.admission_refused.inc();
            return None;
        }
        let seat = shared.seat(peer.ip())?;
        let (ours, theirs) = pair()
            .inspect_err(|error| tracing::warn!(%error, "cannot create a socket pair for an HTTP/2 stream"))
            .ok()?;
        // Nothing that the gateway does with it requires TCP.
        let stream = TcpStream::from(OwnedFd::from(ours));
        let moved = Moved { tls: None, origin: Origin::Admitted, bytes: head, peer: Some(peer) };
        let arrival = Arrival { stream, kind: ArrivalKind::Moved(Box::new(moved)), seat };
        if shared.arrive(arrival).is_err() {
            shared.metrics.admission_refused.inc();
            return None;
        }
        shared.metrics.bridged.inc();
        Some((theirs, bridge))
    }
}

fn pair() -> std::io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    socket2::SockRef::from(&ours).set_send_buffer_size(SEND_BUFFER_BYTES)?;
    Ok((ours, theirs))
}
