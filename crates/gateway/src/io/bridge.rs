//! HTTP/2 streams whose requests the gateway serves. The API passes each one to a shard as an HTTP/1.1 connection over a
//! socket pair ([`Gateway::bridge`]). The shard serves it like any other connection, but keeps the address of its peer
//! separately ([`Shard::peer`]).
//!
//! A bridged stream counts as one of its client's connections and takes three descriptors of the devices' share: both ends
//! of the pair, and the HTTP/2 connection, which the API does not count meanwhile. It takes from the rate of connects if it
//! opens a session ([`Shard::limit_bridged`]).

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::fanout::mailbox::{Arrival, ArrivalKind, Moved};
use crate::gateway::{Gateway, Shared};
use crate::io::listener::OVER_MAX;
use crate::lifecycle::admission::{Bucket, Rate};
use crate::shard::Shard;
use crate::shard::connection::Origin;

/// Of an open stream, besides the shard's own.
const DESCRIPTORS: usize = 2;
/// What the kernel holds for a slow client before the shard's own limits apply: as much as those allow.
const SEND_BUFFER_BYTES: usize = 64 << 10;

/// How many there are, and how fast they come.
pub(crate) struct Bridges {
    open: AtomicUsize,
    openings: Mutex<Option<Bucket>>,
    started: Instant,
}

impl Bridges {
    pub(crate) fn new() -> Self {
        Self { open: AtomicUsize::new(0), openings: Mutex::default(), started: Instant::now() }
    }

    pub(crate) fn descriptors(&self) -> usize {
        self.open.load(Ordering::Relaxed) * DESCRIPTORS
    }

    fn is_within_rate(&self, per_second: u32) -> bool {
        let rate = Rate { per_second, burst: (per_second / 10).max(32) };
        // Wrapped on purpose: only differences are used.
        let now_ms = (self.started.elapsed().as_millis() & u128::from(u32::MAX)) as u32;
        self.openings.lock().get_or_insert_with(|| Bucket::full(rate, now_ms)).take(rate, now_ms)
    }
}

/// Held as long as the API has its end.
pub struct Bridge(Arc<Shared>);

impl Drop for Bridge {
    fn drop(&mut self) {
        self.0.bridges.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gateway {
    /// Opens a connection for a request of this peer. The shard reads `head` first. Returns the other end, or none where
    /// there is no room.
    pub fn bridge(&self, peer: SocketAddr, head: Vec<u8>) -> Option<(UnixStream, Bridge)> {
        let shared = &self.shared;
        shared.bridges.open.fetch_add(1, Ordering::Relaxed);
        let bridge = Bridge(shared.clone());
        if shared.descriptors() >= shared.config.connections_max.saturating_add(OVER_MAX) {
            shared.metrics.admission_refused.inc();
            return None;
        }
        let seat = shared.seat(peer.ip())?;
        let (ours, theirs) = pair()
            .inspect_err(|error| tracing::warn!(%error, "cannot create a socket pair for an HTTP/2 stream"))
            .ok()?;
        // A socket is a socket: nothing that is done to it here asks for TCP.
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

/// By slot.
pub(crate) type Peers = HashMap<u32, SocketAddr>;

impl Shard {
    /// Takes a connect from the rate if the connection is a bridged stream: other connections did when they came. Called
    /// only for a request that opens a session, since each poll of a session is a stream of its own.
    pub(crate) fn limit_bridged(&mut self, slot: u32) {
        let (bridges, per_second) = (&self.shared.bridges, self.shared.config.connects_per_second);
        if self.bridged.contains_key(&slot)
            && !bridges.is_within_rate(per_second)
            && let Some(connection) = self.connections.get_mut(slot as usize)
        {
            connection.origin = Origin::OverRate;
        }
    }

    /// The other end of a connection.
    pub(crate) fn peer(&mut self, slot: u32) -> Option<SocketAddr> {
        if let Some(peer) = self.bridged.get(&slot) {
            return Some(*peer);
        }
        self.connection(slot)?.transport.stream()?.peer_addr().ok()
    }
}
