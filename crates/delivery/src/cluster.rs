//! Delivery over several nodes: what a node with others beside it does besides handing messages to its own
//! connections. A node alone has none of this.
//!
//! ```text
//!   publish ─► outbox ─► dispatcher ─ locate ─► Directory
//!                           ├─ one frame a node ─► Bus ─► inlet (there) ─► Edge
//!                           └─ own part ─► turn (comes back by the bus, so that it keeps its place) ─► Edge
//!   Receiver ─► inlet ─┬─ deliver, close, subscribe, … ─► Edge
//!                      ├─ ask ─► Edge ─► answer
//!                      └─ lost, joined ─► sweep ─► Directory::keep, Store::recheck ─► Edge::reread
//! ```
//!
//! Reading order: [`wire`], `outbox`, `route`, `dispatcher`, `turn`, `inlet`, `ask`, `place`, `sweep`, `gap`, `change`.
//!
//! Invariants: what one node sends leaves in the order in which it was queued; everything a node hands to
//! its connections while others are there came out of the one ordered stream of its bus, so what is kept is
//! handed over in commit order on every node; the bus may lose anything, and what is kept is then found in the store.

pub mod wire;

pub(crate) mod ask;
mod change;
mod codec;
mod dispatcher;
pub(crate) mod gap;
mod inlet;
pub(crate) mod login;
pub(crate) mod metrics;
mod outage;
pub(crate) mod outbox;
mod place;
mod route;
mod sweep;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use noroshi_cluster::{Cluster, Epoch, NodeView, Receiver};
use noroshi_types::{AppId, DeviceId, NotificationId};

pub(crate) use crate::cluster::inlet::Inlet;
use crate::cluster::metrics::Metrics;
use crate::cluster::outbox::{Item, Outbox, To};
pub use crate::cluster::place::id_at;
use crate::delivery::Delivery;

/// Bounds and intervals; the defaults are for production.
#[derive(Debug, Clone)]
pub struct Config {
    /// Requests that wait to be handed to the bus; above it requests are refused.
    pub requests_max: usize,
    /// Their bytes, payload and targets.
    pub bytes_max: usize,
    /// How long a publish waits for the bus to have its message.
    pub hand_over: Duration,
    /// How long other nodes are waited for that were asked something.
    pub answer: Duration,
    /// Sessions put into the directory again in a second by all gateways together, after leases were lost or the directory.
    pub keep_per_second: u32,
    /// How often it is looked whether anything kept was missed, though nothing says so.
    pub sweep_interval: Duration,
    /// In which all sessions are compared with the directory once, though nothing says that it lacks any.
    pub audit_interval: Duration,
    /// The same where messages may have been lost.
    pub audit_soon: Duration,
    /// After sessions were put into the directory: others have a new lease in their lists by then, and what they sent
    /// before is looked for once more.
    pub known_after: Duration,
    /// How often apps, keys and credentials are read again, though nobody says that they changed.
    pub reload_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // Less than a second of what one node accepts.
            requests_max: 16_384,
            bytes_max: 64 << 20,
            hand_over: Duration::from_secs(1),
            answer: Duration::from_secs(1),
            // Each costs Redis about 7 µs.
            keep_per_second: 20_000,
            sweep_interval: Duration::from_secs(60),
            audit_interval: Duration::from_secs(3_600),
            audit_soon: Duration::from_secs(60),
            known_after: Duration::from_secs(3),
            reload_interval: Duration::from_secs(10),
        }
    }
}

/// What reads apps and keys again when another node changed them.
#[async_trait::async_trait]
pub trait Reload: Send + Sync {
    async fn reload(&self);
}

/// What a node has of the others.
pub(crate) struct Peers {
    pub(crate) cluster: Cluster,
    pub(crate) config: Config,
    pub(crate) metrics: Metrics,
    pub(crate) outbox: Outbox,
    turns: turn::Turns,
    outage: outage::Outage,
    asks: ask::Asks,
    places: place::Places,
    sweeps: sweep::Sweeps,
    pub(crate) gaps: gap::Gaps,
    absent: inlet::Absent,
    changes: change::Changes,
}

impl Delivery {
    /// Makes this node one of several. To be called before anything runs; a second call is ignored.
    /// `reload` is told when another node changed apps or keys.
    pub fn attach_cluster(&self, cluster: Cluster, config: Config, reload: Arc<dyn Reload>) {
        let peers = Peers {
            outbox: Outbox::new(config.requests_max, config.bytes_max),
            metrics: self.metrics.cluster.clone(),
            turns: turn::Turns::default(),
            outage: outage::Outage::default(),
            asks: ask::Asks::default(),
            places: place::Places::default(),
            sweeps: sweep::Sweeps::default(),
            gaps: gap::Gaps::default(),
            absent: inlet::Absent::default(),
            changes: change::Changes::new(reload),
            cluster,
            config,
        };
        let _ = self.peers.set(Arc::new(peers));
    }

    /// What the cluster tells this node; everything is queued and done by [`Delivery::run`].
    pub fn receiver(&self) -> Arc<dyn Receiver> {
        self.inlet.clone()
    }

    /// How devices and users are called in the directory; none for a node alone.
    pub fn session_keys(&self) -> Option<noroshi_cluster::Keys> {
        self.peers().map(|peers| peers.cluster.keys.clone())
    }

    pub(crate) fn peers(&self) -> Option<&Arc<Peers>> {
        self.peers.get()
    }

    /// Resolves when every message that was accepted before has been handed to the bus: awaited by the
    /// store before it lets another node commit. Bounded by its caller.
    pub async fn flush(&self) {
        if let Some(peers) = self.peers() {
            peers.outbox.reached(peers.outbox.last()).await;
        }
    }
}

impl Peers {
    /// Queues something for other nodes; the number of its place in the queue.
    pub(crate) fn tell(&self, to: To, record: wire::Record) -> u64 {
        self.outbox.push(Item::Tell { to, record })
    }

    /// A kept message may not have been told to anyone: every node compares its sessions with the store from there.
    pub(crate) fn untold(&self, id: NotificationId) {
        let since = place::before_id(id);
        self.sweeps.lost(since);
        self.tell(To::Gateways, wire::Record::Sweep { since: since.0 });
    }

    /// Waits until the bus has what was queued up to `ticket`; not for long, and not while there is no bus.
    pub(crate) async fn handed_over(&self, ticket: u64) {
        if tokio::time::timeout(self.config.hand_over, self.outbox.reached(ticket)).await.is_err() {
            self.metrics.late.inc();
        }
    }

    /// [`Peers::tell`], and waits until it is on its way.
    pub(crate) async fn tell_now(&self, to: To, record: wire::Record) {
        let ticket = self.tell(to, record);
        self.handed_over(ticket).await;
    }

    /// Whoever holds the device.
    pub(crate) fn holders(&self, app: AppId, device: &DeviceId) -> To {
        To::Holders(self.cluster.keys.device(app, device))
    }

    /// There is push work: other senders are told soon.
    pub(crate) fn wake(&self) {
        self.changes.wake();
    }

    /// Other nodes with a lease that `chosen` takes.
    pub(crate) fn others(&self, chosen: impl Fn(&NodeView) -> bool) -> Vec<Epoch> {
        let own = self.cluster.members.epoch();
        let nodes = self.cluster.members.nodes();
        let other = |node: &&NodeView| !node.is_self && Some(node.epoch) != own && chosen(node);
        nodes.iter().filter(other).map(|node| node.epoch).collect()
    }

    /// Whether this node lets devices in; a list that does not have it yet does not say.
    pub(crate) fn is_gateway(&self) -> bool {
        let nodes = self.cluster.members.nodes();
        nodes.iter().find(|node| node.is_self).is_none_or(|node| node.info.roles.gateway)
    }

    pub(crate) fn other_gateways(&self) -> Vec<Epoch> {
        self.others(|node| node.info.roles.gateway)
    }
}

/// Runs what a node with others beside it does in the background, until it is dropped.
pub(crate) async fn run(delivery: &Arc<Delivery>) {
    let Some(peers) = delivery.peers() else { return std::future::pending().await };
    tokio::join!(
        dispatcher::run(delivery, peers),
        inlet::run(delivery, peers),
        inlet::report_absent(delivery, peers),
        turn::run(delivery, peers),
        place::run(delivery, peers),
        sweep::run(delivery, peers),
        sweep::audit(delivery, peers),
        gap::run(delivery, peers),
        change::run(delivery, peers),
    );
}

/// Hands over what is queued still.
pub(crate) async fn finish(delivery: &Arc<Delivery>) {
    if let Some(peers) = delivery.peers() {
        let rounds = dispatcher::run(delivery, peers);
        let flushed = tokio::time::timeout(peers.config.hand_over, delivery.flush());
        tokio::select! {
            () = rounds => {}
            _ = flushed => {}
        }
        peers.turns.pass_all(delivery, peers);
    }
}
