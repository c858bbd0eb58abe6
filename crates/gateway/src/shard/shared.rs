//! What all shards and the accepting thread share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use noroshi_auth::{Auth, ClientNetwork};

use crate::config::Config;
use crate::io::bridge::Bridges;
use crate::io::handover::Handover;
use crate::lifecycle::clients::{Clients, Seat};
use crate::lifecycle::drain::Drain;
use crate::metrics::Metrics;
use crate::protocol::services::Services;
use crate::session::registry::{Address, Registry};
use crate::session::stamp::Stamps;
use crate::shard::mailbox::{Arrival, Mailbox};

/// Receives every connection that is not the gateway's own. Called on a shard, so it must not block.
pub type HandoverFn = Arc<dyn Fn(Handover) + Send + Sync>;

/// What all shards and the accepting thread share.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) auth: Arc<Auth>,
    pub(crate) metrics: Metrics,
    pub(crate) handover: HandoverFn,
    pub(crate) registry: Arc<Registry>,
    /// What the adapters of protocols share.
    pub(crate) services: Arc<Services>,
    pub(crate) stamps: Arc<Stamps>,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) accepting: AtomicBool,
    pub(crate) drain: Drain,
    /// Limits the log lines about refused log-ins.
    pub(crate) refusals: noroshi_telemetry::LogThrottle,
    /// How many connections each client has.
    pub(crate) clients: Arc<Clients>,
    pub(crate) bridges: Bridges,
}

/// Sockets over `Config::connections_max`: newcomers whose requests may be for the API, and refused ones that wait for
/// their peers' ends. They must not take the descriptors that are reserved for everything else.
pub const OVER_MAX: usize = 64;

impl Shared {
    /// Whether nothing more is accepted, not even for a refusal.
    pub(crate) fn is_full(&self) -> bool {
        self.descriptors() >= self.config.connections_max.saturating_add(OVER_MAX)
    }

    /// The mailbox of the shard that has a session.
    pub(crate) fn mailbox_of(&self, address: Address) -> &Mailbox {
        &self.mailboxes[usize::from(address.shard)]
    }

    /// Open sockets. Those of a shard that is gone do not count.
    pub(crate) fn connections(&self) -> usize {
        self.living().map(|mailbox| mailbox.connections.load(Ordering::Acquire)).sum()
    }

    /// Descriptors in use for devices.
    pub(crate) fn descriptors(&self) -> usize {
        self.connections().saturating_add(self.bridges.descriptors())
    }

    /// Counts a socket for its client. None, and counted as refused, if the client has reached its limit.
    pub(crate) fn seat(&self, address: IpAddr) -> Option<Seat> {
        let network = ClientNetwork::of(address);
        let seat = match self.config.proxies.trusts(address) {
            // Its request names the client.
            true => Some(Seat::take_anyway(&self.clients, network)),
            false => Seat::take(&self.clients, network),
        };
        if seat.is_none() {
            self.metrics.refused_client.inc();
        }
        seat
    }

    /// The shard with the most connections without a credential; none if there are none.
    pub(crate) fn most_unauthenticated(&self) -> Option<&Mailbox> {
        let unauthenticated = |mailbox: &&Mailbox| mailbox.unauthenticated.load(Ordering::Relaxed);
        self.living().filter(|mailbox| unauthenticated(mailbox) > 0).max_by_key(unauthenticated)
    }

    /// Gives a socket to the shard that has the fewest. Returns it if that shard has no room, or no shard is left.
    pub(crate) fn arrive(&self, arrival: Arrival) -> Result<(), Arrival> {
        match self.living().min_by_key(|mailbox| mailbox.connections.load(Ordering::Relaxed)) {
            Some(mailbox) => mailbox.arrive(arrival),
            None => Err(arrival),
        }
    }

    fn living(&self) -> impl Iterator<Item = &Mailbox> {
        self.mailboxes.iter().filter(|mailbox| !mailbox.is_gone())
    }
}
