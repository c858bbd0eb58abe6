//! What [`crate::figures`] and [`crate::tails`] share: a node reports to another one only while that one asks, and each has a
//! listener that knows what requests and reports hold.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use noroshi_cluster::{Epoch, NodeInfo};

use crate::cluster::Nodes;
use crate::cluster::outbox::To;
use crate::cluster::wire::Record;

/// How long a request counts. Longer than two intervals between requests.
pub const ASKED_FOR: Duration = Duration::from_secs(12);

/// Another node with a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub epoch: Epoch,
    pub name: String,
    /// False: its version cannot report.
    pub reports: bool,
}

pub(crate) struct Exchange<L: ?Sized> {
    nodes: Arc<Nodes>,
    /// Set once, before anything runs. Weak: the listener holds [`crate::Delivery`].
    listener: OnceLock<Weak<L>>,
}

impl<L: ?Sized> Exchange<L> {
    pub(crate) fn new(nodes: Arc<Nodes>) -> Self {
        Self { nodes, listener: OnceLock::new() }
    }

    /// A second call is ignored.
    pub(crate) fn attach(&self, listener: Weak<L>) {
        let _ = self.listener.set(listener);
    }

    pub(crate) fn listener(&self) -> Option<Arc<L>> {
        self.listener.get()?.upgrade()
    }

    /// The other nodes, as last known. Empty without a cluster.
    pub(crate) fn peers(&self, reports: impl Fn(&NodeInfo) -> bool) -> Vec<Peer> {
        let Some(peers) = self.nodes.peers() else { return Vec::new() };
        let (own, nodes) = (peers.cluster.members.epoch(), peers.cluster.members.nodes());
        let others = nodes.iter().filter(|node| !node.is_self && Some(node.epoch) != own);
        let peer = |node: &noroshi_cluster::NodeView| Peer {
            epoch: node.epoch,
            name: node.info.name.clone(),
            reports: reports(&node.info),
        };
        others.map(peer).collect()
    }

    pub(crate) fn send(&self, to: Epoch, record: Record) {
        self.nodes.send_if_room(To::One(to), record);
    }
}
