//! Direct connections between the nodes of a cell, which carry the frames of the bus instead of Redis.
//!
//! ```text
//!   bus ─ push ─► Link ─► outgoing task ══ TLS over TCP ══► incoming task ─► arrivals ─► the receiving node's task
//!    ▲              ▲                                              ▲                            │
//!    └── Receipts ◄─┴────────────── receipts ◄─────────────────────┴──────── acknowledge ───────┘
//! ```
//!
//! A *link* leads from one lease to another and carries frames in that direction, and receipts in the other. Each node
//! dials every other node that announces an address, so two nodes have two links. This module transports frames and
//! does not number, resend or interpret them: the bus does (`redis::outbound`, `redis::lease`).
//!
//! Invariants: frames of a link arrive in order or the link ends; a node hands over nothing that waited in a link for
//! longer than `stall::STALL_MAX`; nothing is read from a peer that has not proved that it knows the secret of the
//! cell; every queue is bounded.
//!
//! Reading order: `identity`, `wire`, `receipts`, `stall`, `stream`, `outgoing`, `incoming`, `listener`.

mod identity;
mod incoming;
mod listener;
mod outgoing;
mod receipts;
mod stall;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use noroshi_types::Invalid;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::metrics::{LinkMetrics, PeerBus};
use crate::{Epoch, Members, NodeView};
use identity::Identity;
pub(crate) use incoming::{Arrival, Arrivals};
use listener::Listener;
use outgoing::Dialer;
pub(crate) use outgoing::Link;
pub(crate) use receipts::Receipts;
use stall::Stall;

/// How long a sender waits for progress of a receiver before it takes another way. Longer than
/// `stall::STALL_MAX`, so that a receiver that was suspended for as long discards what its links still hold.
pub(crate) const RECEIPT_TIMEOUT: Duration = Duration::from_millis(500);
/// Bytes that wait for one link. Further ones take another way.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// Characters of an announced address: a host name has at most 253.
pub const ADVERTISE_MAX: usize = 260;

/// Validated by `Links::open`. All nodes of a cell need the same secret.
pub struct Config {
    /// Bound and listening.
    pub listener: TcpListener,
    /// `HOST:PORT` at which other nodes reach the listener.
    pub advertise: String,
    /// Known to the nodes of this cell only.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("advertise", &self.advertise).finish_non_exhaustive()
    }
}

/// Checks an address to announce: a host name or IP address, and a port.
pub fn check_advertise(text: &str) -> Result<(), Invalid> {
    let invalid = || Invalid::new("must be HOST:PORT, with an IPv6 address in brackets");
    if text.len() > ADVERTISE_MAX {
        return Err(invalid());
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() == 0 || address.ip().is_unspecified() {
            true => Err(Invalid::new("must name an address that other nodes can reach")),
            false => Ok(()),
        };
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let port = port.parse::<u16>().map_err(|_| invalid())?;
    match !host.is_empty() && host.chars().all(is_name) && port != 0 {
        true => Ok(()),
        false => Err(invalid()),
    }
}

/// The links of this node. Works while [`Links::run`] runs.
pub(crate) struct Links {
    dialer: Arc<Dialer>,
    receipts: Arc<Receipts>,
    metrics: LinkMetrics,
    /// Guards the map only.
    outgoing: Mutex<Outgoing>,
}

#[derive(Default)]
struct Outgoing {
    /// The lease that the links start from.
    own: Option<Epoch>,
    links: HashMap<Epoch, Arc<Link>>,
    /// One task for each link, which ends when the link is dropped from the map.
    tasks: JoinSet<()>,
    /// Every other node announces an address.
    is_complete: bool,
}

/// The listening half, until [`Links::run`].
pub(crate) struct Listening {
    listener: Listener,
    stall: Arc<Stall>,
}

impl Links {
    /// `scope` separates cells that were given the same secret. Arrivals of all links go to `arrivals`.
    pub(crate) fn open(
        config: Config,
        scope: &str,
        members: Arc<dyn Members>,
        arrivals: Arrivals,
        metrics: LinkMetrics,
    ) -> Result<(Arc<Self>, Listening), Invalid> {
        check_advertise(&config.advertise)?;
        let identity = Identity::new(&config.secret, scope)?;
        let stall = Arc::new(Stall::new());
        let receipts = Arc::new(Receipts::default());
        let dialer = Dialer::new(identity.client, receipts.clone(), metrics.clone());
        let (tls, socket) = (identity.server, config.listener);
        let listener =
            Listener { socket, tls, members, arrivals, stall: stall.clone(), metrics: metrics.clone() };
        let outgoing = Mutex::default();
        let links = Self { dialer: Arc::new(dialer), receipts, metrics, outgoing };
        Ok((Arc::new(links), Listening { listener, stall }))
    }

    pub(crate) fn receipts(&self) -> &Arc<Receipts> {
        &self.receipts
    }

    /// Accepts links until it is dropped.
    pub(crate) async fn run(listening: Listening) {
        tokio::join!(listening.listener.run(), listening.stall.run());
    }

    /// Opens and closes links as the list of nodes, or the own lease, changed. `None`: this node holds no lease.
    pub(crate) fn update(&self, own: Option<Epoch>, nodes: &[NodeView]) {
        let mut outgoing = self.outgoing.lock();
        let outgoing = &mut *outgoing;
        if outgoing.own != own {
            outgoing.links.values().for_each(|link| link.close());
            outgoing.links.clear();
            outgoing.own = own;
            self.receipts.forget();
        }
        let others = || nodes.iter().filter(|node| Some(node.epoch) != own);
        outgoing.is_complete = others().all(|node| !node.info.links.is_empty());
        let wanted = |epoch: Epoch| others().any(|node| node.epoch == epoch && !node.info.links.is_empty());
        outgoing.links.retain(|epoch, link| {
            let is_wanted = wanted(*epoch);
            if !is_wanted {
                link.close();
                self.receipts.remove(*epoch);
            }
            is_wanted
        });
        while outgoing.tasks.try_join_next().is_some() {}
        let Some(own) = own else { return };
        for node in others().filter(|node| !node.info.links.is_empty()) {
            outgoing.links.entry(node.epoch).or_insert_with(|| {
                let link = Arc::new(Link::new(own, node.epoch, self.metrics.clone()));
                outgoing.tasks.spawn(self.dialer.clone().keep(link.clone(), node.info.links.clone()));
                link
            });
        }
        let up = outgoing.links.values().filter(|link| link.is_up()).count();
        let direct = if outgoing.is_complete { up } else { 0 };
        self.metrics.peers(PeerBus::Direct, direct);
        self.metrics.peers(PeerBus::Redis, others().count() - direct);
    }

    /// Whether every other node announces an address. Until then all nodes use Redis: its channel of a node is one
    /// order of all senders, which a link beside it would break.
    pub(crate) fn is_complete(&self) -> bool {
        self.outgoing.lock().is_complete
    }

    /// Whether the node confirms receipt of frames, over whichever way they came.
    pub(crate) fn confirms(&self, to: Epoch) -> bool {
        let outgoing = self.outgoing.lock();
        outgoing.own == Some(to) || outgoing.links.contains_key(&to)
    }

    pub(crate) fn link(&self, to: Epoch) -> Option<Arc<Link>> {
        self.outgoing.lock().links.get(&to).filter(|link| link.is_up()).cloned()
    }
}
