//! Streams of HTTP/2 that are the gateway's: the API, which serves the connection, gives each of them here as a connection
//! of HTTP/1.1, over a socket pair ([`Gateway::bridge`]). To the shard it is a connection like any other, but that the address of
//! its peer is beside it ([`Shard::peer`]).
//!
//! It counts for its client, takes from the rate of connects, and takes three descriptors of the devices' share: both
//! ends of the pair, and the connection it came by, which the API does not count meanwhile.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use crate::admission::{Bucket, Rate};
use crate::connection::Origin;
use crate::gateway::{Gateway, Shared};
use crate::listener::OVER_MAX;
use crate::mailbox::{Arrival, ArrivalKind, Moved};
use crate::shard::Shard;

/// Of one that is open, besides the shard's own.
const DESCRIPTORS: usize = 2;
/// What the kernel holds for a client that is slow, before the shard's own bounds count: as much as those.
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
    /// A request of HTTP/1.1 on a connection of its own, from this peer: `head` is what the shard reads first. Returns the other end;
    /// none where there is no room.
    pub fn bridge(&self, peer: SocketAddr, head: Vec<u8>) -> Option<(UnixStream, Bridge)> {
        let shared = &self.shared;
        shared.bridges.open.fetch_add(1, Ordering::Relaxed);
        let bridge = Bridge(shared.clone());
        if shared.descriptors() >= shared.config.connections_max.saturating_add(OVER_MAX) {
            shared.metrics.admission_refused.inc();
            return None;
        }
        let seat = shared.seat(peer.ip())?;
        let (ours, theirs) =
            pair().inspect_err(|error| tracing::warn!(%error, "a stream of HTTP/2 has no socket")).ok()?;
        let origin = match shared.bridges.is_within_rate(shared.config.connects_per_second) {
            true => Origin::Admitted,
            false => Origin::OverRate,
        };
        // A socket is a socket: nothing that is done to it here asks for TCP.
        let stream = TcpStream::from(OwnedFd::from(ours));
        let moved = Moved { tls: None, origin, bytes: head, peer: Some(peer) };
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
    /// The other end of a connection.
    pub(crate) fn peer(&mut self, slot: u32) -> Option<SocketAddr> {
        if let Some(peer) = self.bridged.get(&slot) {
            return Some(*peer);
        }
        self.connection(slot)?.transport.stream()?.peer_addr().ok()
    }
}
