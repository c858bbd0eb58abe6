//! How many connections each client network has, for the limit `Config::connections_per_client`.
//!
//! The counts are here and not in the connections: an idle connection costs eight bytes for its network, in a list next
//! to the slab. Without a limit nothing is counted.
//!
//! Each lock guards one part of the counts; nothing is awaited and no other lock is taken under it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use noroshi_auth::ClientNetwork;
use parking_lot::Mutex;

/// Acceptor and shards rarely meet in one of so many.
const PARTS: usize = 16;

pub(crate) struct Clients {
    /// 0: no limit.
    max: u32,
    parts: [Mutex<HashMap<ClientNetwork, u32>>; PARTS],
    hashes: RandomState,
}

impl Clients {
    pub(crate) fn new(max: u32) -> Self {
        Self { max, parts: Default::default(), hashes: RandomState::new() }
    }

    fn part(&self, network: ClientNetwork) -> &Mutex<HashMap<ClientNetwork, u32>> {
        &self.parts[(self.hashes.hash_one(network) % PARTS as u64) as usize]
    }

    /// False, and nothing counted, if the network has reached its limit.
    fn enter(&self, network: ClientNetwork, max: u32) -> bool {
        if self.max == 0 || network == ClientNetwork::NONE {
            return true;
        }
        let mut part = self.part(network).lock();
        let count = part.entry(network).or_default();
        let enters = *count < max;
        *count += u32::from(enters);
        enters
    }

    fn leave(&self, network: ClientNetwork) {
        if self.max == 0 || network == ClientNetwork::NONE {
            return;
        }
        let mut part = self.part(network).lock();
        let Some(count) = part.get_mut(&network) else { return };
        *count -= 1;
        if *count == 0 {
            part.remove(&network);
            // A storm of many clients made it large.
            if part.capacity() > 1_024 && part.len() * 8 < part.capacity() {
                part.shrink_to_fit();
            }
        }
    }
}

/// The place of one socket in the count of its client, while the socket is in transit to a shard. Dropping it frees the
/// place; [`Seats::put`] hands it over to the connection.
pub(crate) struct Seat {
    clients: Arc<Clients>,
    network: ClientNetwork,
}

impl Seat {
    /// None if the client has reached its limit.
    pub(crate) fn take(clients: &Arc<Clients>, network: ClientNetwork) -> Option<Self> {
        let seat = || Self { clients: clients.clone(), network };
        clients.enter(network, clients.max).then(seat)
    }

    /// Counts a socket even over the limit: one of a trusted proxy, whose request names the client later, or one that
    /// only moves.
    pub(crate) fn take_anyway(clients: &Arc<Clients>, network: ClientNetwork) -> Self {
        clients.enter(network, u32::MAX);
        Self { clients: clients.clone(), network }
    }

    /// Leaves the place to a slot, until [`Seats::free`] frees it.
    fn keep(mut self) -> ClientNetwork {
        std::mem::replace(&mut self.network, ClientNetwork::NONE)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.clients.leave(self.network);
    }
}

/// For which client each connection of a shard counts, by slot.
#[derive(Default)]
pub(crate) struct Seats(Vec<ClientNetwork>);

impl Seats {
    pub(crate) fn put(&mut self, slot: u32, seat: Seat) {
        let index = slot as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, ClientNetwork::NONE);
        }
        self.0[index] = seat.keep();
    }

    /// The client that the connection counts for.
    pub(crate) fn client(&self, slot: u32) -> ClientNetwork {
        self.0.get(slot as usize).copied().unwrap_or(ClientNetwork::NONE)
    }

    pub(crate) fn free(&mut self, slot: u32, clients: &Clients) {
        if let Some(network) = self.0.get_mut(slot as usize) {
            clients.leave(std::mem::replace(network, ClientNetwork::NONE));
        }
    }

    /// The socket of one slot moves to another.
    pub(crate) fn move_to(&mut self, from: u32, to: u32, clients: &Arc<Clients>) {
        let seat = Seat::take_anyway(clients, self.client(from));
        self.free(from, clients);
        self.free(to, clients);
        self.put(to, seat);
    }

    /// Counts the connection for another client. False if that has reached its limit.
    pub(crate) fn reassign(&mut self, slot: u32, network: ClientNetwork, clients: &Arc<Clients>) -> bool {
        self.free(slot, clients);
        let seat = Seat::take(clients, network);
        let is_free = seat.is_some();
        if let Some(seat) = seat {
            self.put(slot, seat);
        }
        is_free
    }

    /// Gives memory back behind the first `len` slots.
    pub(crate) fn shrink(&mut self, len: usize) {
        self.0.truncate(len);
        self.0.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(n: u8) -> ClientNetwork {
        ClientNetwork::of([192, 0, 2, n].into())
    }

    #[test]
    fn each_client_has_its_own_limit() {
        let clients = Arc::new(Clients::new(2));
        let mut seats: Vec<_> = (0..2).filter_map(|_| Seat::take(&clients, network(1))).collect();
        assert_eq!(seats.len(), 2);
        assert!(Seat::take(&clients, network(1)).is_none());
        assert!(Seat::take(&clients, network(2)).is_some());
        assert!(Seat::take(&clients, ClientNetwork::NONE).is_some());
        let moved = Seat::take_anyway(&clients, network(1));
        seats.pop();
        assert!(Seat::take(&clients, network(1)).is_none(), "the moved one counts");
        assert_eq!(moved.keep(), network(1));
        clients.leave(network(1));
        seats.extend(Seat::take(&clients, network(1)));
        assert_eq!(seats.len(), 2);
        drop(seats);
        assert!(clients.parts.iter().all(|part| part.lock().is_empty()));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let clients = Arc::new(Clients::new(0));
        let seats: Vec<_> = (0..100).filter_map(|_| Seat::take(&clients, network(1))).collect();
        assert_eq!(seats.len(), 100);
        assert!(clients.parts.iter().all(|part| part.lock().is_empty()));
    }
}
