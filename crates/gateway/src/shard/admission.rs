//! Sockets that arrive, the limits on connections that have not shown a credential, and for which client a connection
//! counts.
//!
//! Called by the event loop and, for a request's client, by `input`. The limits themselves are in [`crate::lifecycle`].

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use mio::Token;
use noroshi_auth::ClientNetwork;
use noroshi_protocol::http::Head;
use noroshi_types::CloseReason;

use crate::io::socket::Socket;
use crate::io::tls::TlsSession;
use crate::lifecycle::Origin;
use crate::rate::Bucket;
use crate::session::phase::Phase;
use crate::shard::connection::Connection;
use crate::shard::mailbox::{Arrival, ArrivalKind};
use crate::shard::{Shard, slot_of};
use crate::wire::Framing;

/// Sockets taken in one turn.
const ARRIVALS_PER_TURN: usize = 256;

impl Shard {
    pub(crate) fn take_arrivals(&mut self) {
        for _ in 0..ARRIVALS_PER_TURN {
            let Ok(arrival) = self.receivers.arrivals.try_recv() else { return };
            self.guard(None, |shard| shard.handle_arrival(arrival));
        }
    }

    fn handle_arrival(&mut self, arrival: Arrival) {
        let (mut head, mut peer, mut refused) = (None, None, false);
        let (protocol, tls, origin) = match arrival.kind {
            ArrivalKind::New { speaks, tls, origin } => match tls.map(TlsSession::new).transpose() {
                Ok(tls) => (speaks.protocol(), tls, origin),
                Err(error) => {
                    tracing::error!(%error, "cannot create a TLS session");
                    return self.mailbox().left();
                }
            },
            ArrivalKind::Moved(moved) => {
                (head, peer) = (Some(moved.bytes), moved.peer);
                (None, moved.tls.map(|session| *session), moved.origin)
            }
            ArrivalKind::Refused => {
                refused = true;
                (None, None, Origin::Admitted)
            }
        };
        let mut stream = mio::net::TcpStream::from_std(arrival.stream);
        let entry = self.connections.vacant_entry();
        let token = Token(entry.key());
        if let Err(error) = self.io.register(&mut stream, slot_of(token)) {
            tracing::warn!(%error, "cannot register a socket");
            self.mailbox().left();
            return;
        }
        let config = &self.shared.config;
        let generation = self.shared.services.generations.next(self.now.wall);
        let frames = Bucket::full(self.shared.services.frame_rate(), self.now.ms32());
        let mut connection = Connection::new(Socket::new(stream, tls), generation, frames);
        connection.origin = origin;
        connection.deadline_tick = self.now.tick_after(config.head_timeout);
        if refused {
            connection.phase = Phase::Closing;
            connection.ended = true;
            connection.close_reason = Some(CloseReason::Overloaded);
            connection.deadline_tick = self.now.tick_after(config.close_linger);
        }
        self.shared.metrics.connections(connection.protocol, connection.framing).inc();
        let slot = slot_of(token);
        entry.insert(connection);
        self.lifecycle.seats.put(slot, arrival.seat);
        if let Some(peer) = peer {
            self.io.peers.insert(slot, peer);
        }
        self.admit_unauthenticated(slot);
        if let Some(protocol) = protocol {
            self.open_protocol(slot, protocol, Framing::Stream);
        }
        self.arm(slot);
        if let Some(mut bytes) = head {
            self.handle_bytes(slot, &mut bytes);
            // TLS reads whole records: some of the newer bytes may have left the socket already.
            self.io.read_later(slot);
        }
    }

    /// The client that a trusted proxy names in a request's head. None if the peer is the client.
    pub(crate) fn forwarded(&mut self, slot: u32, head: &Head<'_>) -> Option<ClientNetwork> {
        if self.shared.config.proxies.networks.is_empty() {
            return None;
        }
        let peer = self.peer(slot)?.ip();
        let proxies = &self.shared.config.proxies;
        if !proxies.trusts(peer) {
            return None;
        }
        Some(ClientNetwork::of(proxies.client(peer, head.header_bytes(proxies.header.name()))))
    }

    /// A connection begins without a credential. At the limit, the oldest such connection is evicted; if there is no
    /// other, this one is refused if it turns out to be a device's.
    pub(crate) fn admit_unauthenticated(&mut self, slot: u32) {
        let config = &self.shared.config;
        let shards = self.shared.mailboxes.len().max(1);
        let unauthenticated_limit = config.unauthenticated_limit().div_ceil(shards);
        let is_full = self.shared.descriptors() > config.connections_max;
        if is_full || self.lifecycle.unauthenticated.len() >= unauthenticated_limit {
            match self.lifecycle.unauthenticated.take_oldest() {
                Some(oldest) => {
                    self.mailbox().unauthenticated.fetch_sub(1, Ordering::Relaxed);
                    self.shared.metrics.evicted.inc();
                    self.abort(oldest, CloseReason::Overloaded);
                }
                None => {
                    if let Some(connection) = self.connection(slot) {
                        connection.origin = Origin::OverRate;
                    }
                }
            }
        }
        self.lifecycle.unauthenticated.insert(slot);
        self.mailbox().unauthenticated.fetch_add(1, Ordering::Relaxed);
    }

    /// The connection has shown a valid credential, or ends.
    pub(crate) fn end_unauthenticated(&mut self, slot: u32) {
        if self.lifecycle.unauthenticated.remove(slot) {
            self.mailbox().unauthenticated.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts a bridged stream against the rate of connects; other connections were counted on arrival. Called only for
    /// a request that opens a session, since each poll of a session is a separate stream.
    pub(crate) fn limit_bridged(&mut self, slot: u32) {
        let (bridges, per_second) = (&self.shared.bridges, self.shared.config.connects_per_second);
        if self.io.peers.contains_key(&slot)
            && !bridges.is_within_rate(per_second)
            && let Some(connection) = self.connections.get_mut(slot as usize)
        {
            connection.origin = Origin::OverRate;
        }
    }

    /// The address of the peer.
    pub(crate) fn peer(&mut self, slot: u32) -> Option<SocketAddr> {
        match self.io.peers.get(&slot) {
            Some(peer) => Some(*peer),
            None => self.connection(slot)?.socket.stream()?.peer_addr().ok(),
        }
    }
}
