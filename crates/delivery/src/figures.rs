//! Live figures of other nodes: requests for them, and reports. What a report holds is the business of its listener.
//!
//! A node reports only while another node asks: a request counts for [`ASKED_FOR`], and is repeated meanwhile. A node of an
//! older version is not asked, and the answer shows it as missing.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use noroshi_cluster::Epoch;
use noroshi_types::AppId;

use crate::cluster::Nodes;
use crate::cluster::outbox::To;
use crate::cluster::wire::Record;

/// How long a request counts. Longer than two intervals between requests.
pub const ASKED_FOR: Duration = Duration::from_secs(12);
/// The most bytes of a report. A receiver skips a longer one.
pub use crate::cluster::wire::REPORT_BYTES_MAX;

/// Gets requests and reports of other nodes. The methods never wait.
pub trait Listener: Send + Sync {
    /// A node asks for figures, and for those of these apps in particular.
    fn asked(&self, by: Epoch, apps: Vec<AppId>);
    fn reported(&self, by: Epoch, report: Bytes);
}

/// Another node with a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub epoch: Epoch,
    pub name: String,
    /// False: its version reports no figures.
    pub reports: bool,
}

pub struct Figures {
    nodes: Arc<Nodes>,
    /// Set once, before anything runs. Weak: the listener holds [`crate::Delivery`].
    listener: OnceLock<Weak<dyn Listener>>,
}

impl Figures {
    pub(crate) fn new(nodes: Arc<Nodes>) -> Self {
        Self { nodes, listener: OnceLock::new() }
    }

    /// A second call is ignored.
    pub fn attach(&self, listener: Weak<dyn Listener>) {
        let _ = self.listener.set(listener);
    }

    pub(crate) fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.listener.get()?.upgrade()
    }

    /// The other nodes, as last known. Empty without a cluster.
    pub fn peers(&self) -> Vec<Peer> {
        let Some(peers) = self.nodes.peers() else { return Vec::new() };
        let (own, nodes) = (peers.cluster.members.epoch(), peers.cluster.members.nodes());
        let others = nodes.iter().filter(|node| !node.is_self && Some(node.epoch) != own);
        let peer = |node: &noroshi_cluster::NodeView| Peer {
            epoch: node.epoch,
            name: node.info.name.clone(),
            reports: node.info.figures,
        };
        others.map(peer).collect()
    }

    /// Asks these nodes for reports during the next [`ASKED_FOR`].
    pub fn ask(&self, of: impl IntoIterator<Item = Epoch>, apps: &[AppId]) {
        for epoch in of {
            self.nodes.send_if_room(To::One(epoch), Record::AskFigures { apps: apps.to_vec() });
        }
    }

    pub fn report(&self, to: Epoch, report: Bytes) {
        self.nodes.send_if_room(To::One(to), Record::Figures { report });
    }
}
