//! Delivery across several nodes: everything that a node does for, and asks of, other nodes. A node without peers skips
//! all of it.
//!
//! ```text
//!   publish ─► outbox ─► dispatcher ─ locate ─► Directory
//!                           ├─ one frame a node ─► Bus ─► inbound (there) ─► Edge
//!                           └─ own part ─► held until a marker returns by the bus ─► Edge
//!   Receiver ─► inbound ─┬─ deliver, close, subscribe, … ─► Edge
//!                        ├─ changed definitions, credentials, devices ─► Handler
//!                        ├─ question ─► Edge ─► answer
//!                        └─ lost, joined ─► sweep ─► Directory::keep, Store::recheck ─► Edge::reread
//! ```
//!
//! Reading order: [`wire`], `outbox`, `route`, `dispatcher`, `own_part`, `inbound`, `question`, `place_history`,
//! `sweep`, `gap`, `reload`, `loads`.
//!
//! Invariants: a node sends records in the order in which it queued them; everything that a node hands to its
//! connections while others exist comes out of the one ordered queue of its bus, so every node hands over stored
//! messages in commit order; the bus may lose anything, and stored messages are then found in the store.

pub mod wire;

mod codec;
mod dispatcher;
mod gap;
mod inbound;
mod loads;
mod metrics;
mod outage;
pub(crate) mod outbox;
mod own_part;
mod place_history;
pub(crate) mod question;
mod reload;
mod route;
mod sweep;

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::{Cluster, Epoch, Keys, NodeInfo, NodeView, Receiver};
use noroshi_types::{AppId, DeviceId, NotificationId, Position, PushService, TokenKey, Topic, UserId};

use crate::cluster::inbound::Inbound;
pub(crate) use crate::cluster::metrics::Metrics;
use crate::cluster::outbox::{Item, Outbox, To};
pub use crate::cluster::place_history::id_at;
use crate::cluster::question::Questions;
use crate::context::Context;
use crate::error::Error;
use crate::share_feed::ShareFeed;

/// Bounds and intervals; the defaults are for production.
#[derive(Debug, Clone)]
pub struct Config {
    /// Requests that may wait for the bus; above it requests are refused.
    pub requests_max: usize,
    /// Their bytes: payloads and targets.
    pub bytes_max: usize,
    /// How long a publish waits until the bus has its message.
    pub hand_over: Duration,
    /// How long Redis may take to answer before it counts as unreachable.
    pub patience: Duration,
    /// How long a question waits for the answers of other nodes.
    pub answer: Duration,
    /// Sessions that all gateways together register again in a second, after a lease or the directory was lost.
    pub keep_per_second: u32,
    /// How often a node looks for missed stored messages without any sign of a loss.
    pub sweep_interval: Duration,
    /// How long one comparison of all sessions with the directory takes, without any sign of a loss.
    pub audit_interval: Duration,
    /// The same after messages may have been lost.
    pub audit_soon: Duration,
    /// The pause between the registration of sessions and one more look at the store: by then other nodes know the new
    /// lease.
    pub known_after: Duration,
    /// How often apps, keys and credentials are read again without a notification of a change.
    pub reload_interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // Less than a second of what one node accepts.
            requests_max: 16_384,
            bytes_max: 64 << 20,
            hand_over: Duration::from_secs(1),
            patience: Duration::from_secs(1),
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

/// Reads apps and keys again after another node changed them.
#[async_trait::async_trait]
pub trait Reload: Send + Sync {
    async fn reload(&self);
}

/// The components above the cluster, as far as records of other nodes concern them. Implemented by
/// [`crate::Delivery`].
#[async_trait::async_trait]
pub(crate) trait Handler: Send + Sync {
    /// Push work was added.
    fn push_work_added(&self);

    /// Experiments or notices changed.
    fn definitions_changed(&self);

    /// Cached data of devices under these names is stale.
    fn data_changed(&self, tags: Vec<u64>);

    /// Items of users changed, of whom this node may have sessions.
    fn items_reported(&self, report: wire::ItemReport);

    /// Preferences of users and devices changed, of whom this node may have sessions.
    fn preferences_changed(&self, app: AppId, users: Vec<UserId>, devices: Vec<DeviceId>);

    /// A node wants live figures.
    fn figures_asked(&self, by: Epoch, apps: Vec<AppId>);

    /// A node reports live figures.
    fn figures_reported(&self, by: Epoch, report: Bytes);

    /// A node wants events for a live tail.
    fn tail_asked(&self, by: Epoch, tail: Bytes);

    /// A node reports events of a live tail.
    fn tail_reported(&self, by: Epoch, report: Bytes);

    /// All cached data of devices may be stale: records may have been lost.
    fn all_data_changed(&self);

    /// Credentials of the app changed.
    async fn reload_credentials(&self, app: AppId) -> Result<(), Error>;

    /// Credentials may have changed without a record of the change.
    async fn reload_changed_credentials(&self) -> Result<(), Error>;
}

/// The other nodes, if there are any.
pub struct Nodes {
    context: Arc<Context>,
    feed: Arc<ShareFeed>,
    metrics: Metrics,
    /// Queues records of other nodes, also before `peers` is set.
    inbound: Arc<Inbound>,
    /// Set once, before anything runs, where there are other nodes.
    peers: OnceLock<Arc<Peers>>,
}

/// A node's side of the cluster.
pub(crate) struct Peers {
    pub(crate) cluster: Cluster,
    pub(crate) outbox: Outbox,
    pub(crate) questions: Questions,
    context: Arc<Context>,
    feed: Arc<ShareFeed>,
    inbound: Arc<Inbound>,
    config: Config,
    metrics: Metrics,
    own_parts: own_part::OwnParts,
    outage: outage::Outage,
    places: place_history::PlaceHistory,
    sweeps: sweep::Sweeps,
    gaps: gap::Gaps,
    absent: inbound::AbsentKeys,
    changes: reload::Changes,
    pub(crate) loads: loads::Loads,
}

impl Nodes {
    pub(crate) fn new(context: Arc<Context>, feed: Arc<ShareFeed>, metrics: Metrics) -> Self {
        Self { context, feed, metrics, inbound: Arc::default(), peers: OnceLock::new() }
    }

    /// Makes this node one of several. `reload` runs when another node changed apps or keys. A second call is ignored.
    pub fn attach(&self, cluster: Cluster, config: Config, reload: Arc<dyn Reload>) {
        let peers = Peers {
            outbox: Outbox::new(config.requests_max, config.bytes_max),
            questions: Questions::new(cluster.clone(), config.answer, self.metrics.unanswered.clone()),
            context: self.context.clone(),
            feed: self.feed.clone(),
            inbound: self.inbound.clone(),
            metrics: self.metrics.clone(),
            own_parts: own_part::OwnParts::default(),
            outage: outage::Outage::default(),
            places: place_history::PlaceHistory::default(),
            sweeps: sweep::Sweeps::default(),
            gaps: gap::Gaps::default(),
            absent: inbound::AbsentKeys::default(),
            changes: reload::Changes::new(reload),
            loads: loads::Loads::default(),
            cluster,
            config,
        };
        let _ = self.peers.set(Arc::new(peers));
    }

    /// Receives the records of other nodes. It only queues them; a task processes them.
    pub fn receiver(&self) -> Arc<dyn Receiver> {
        self.inbound.clone()
    }

    /// Fails while a node runs a program that does not support `name`. `field`: what named it in the request, if a field did.
    fn require(
        &self,
        field: Option<&'static str>,
        name: &str,
        supports: impl Fn(&NodeInfo) -> bool,
    ) -> Result<(), Error> {
        let Some(peers) = self.peers() else { return Ok(()) };
        let nodes = peers.cluster.members.nodes();
        let reason = if !nodes.iter().any(|node| node.is_self) {
            format!("the node does not know the other nodes yet, and which of them support {name}")
        } else if let Some(old) = nodes.iter().find(|node| !supports(&node.info)) {
            let old = &old.info.name;
            format!("the node {old} runs a version that does not support {name}; retry after its upgrade")
        } else {
            return Ok(());
        };
        Err(Error::OldNode { field, reason })
    }

    /// Fails while a node runs a program that could not read work for the token of this key, or would send its pushes to
    /// the main token.
    pub(crate) fn require_token(&self, key: &TokenKey) -> Result<(), Error> {
        self.require(Some("push.token"), "`push.token`", |info| info.push_tokens)?;
        self.require_push_service("push.token", key.kind().service())
    }

    /// Fails while a node runs a program that does not know the push service: it would report its pushes as impossible,
    /// and read no credential of an app that has one of the service.
    /// `field`: what named it in the request.
    pub fn require_push_service(&self, field: &'static str, service: PushService) -> Result<(), Error> {
        if service.is_known_to_all() {
            return Ok(());
        }
        let name = service.as_str();
        let knows = |info: &NodeInfo| info.push_services.iter().any(|known| known == name);
        self.require(Some(field), &format!("\"{name}\""), knows)
    }

    /// Fails while a node runs a program that does not know Live Activities: it would not let devices join.
    pub(crate) fn require_activities(&self) -> Result<(), Error> {
        self.require(None, "activities", |info| info.activities)
    }

    /// Fails while every node that sends pushes runs a program that sends no broadcasts: they would wait for its upgrade,
    /// and might expire meanwhile.
    pub fn require_broadcasts(&self) -> Result<(), Error> {
        let Some(peers) = self.peers() else { return Ok(()) };
        let nodes = peers.cluster.members.nodes();
        let mut senders = nodes.iter().filter(|node| node.info.roles.sender).peekable();
        match senders.peek().is_none() || senders.any(|node| node.info.broadcasts) {
            true => Ok(()),
            false => {
                let reason = "every node with the role sender runs a version without broadcasts; retry after their upgrade";
                Err(Error::OldNode { field: Some("push.broadcast"), reason: reason.to_owned() })
            }
        }
    }

    /// `None` on a node without others.
    pub(crate) fn peers(&self) -> Option<&Arc<Peers>> {
        self.peers.get()
    }

    /// Queues a record for other nodes, if there are any.
    pub(crate) fn send(&self, to: To, record: wire::Record) {
        if let Some(peers) = self.peers() {
            peers.send(to, record);
        }
    }

    /// Queues a record that takes no room from messages.
    pub(crate) fn send_if_room(&self, to: To, record: wire::Record) {
        if let Some(peers) = self.peers().filter(|peers| peers.outbox.has_room()) {
            peers.send(to, record);
        }
    }

    /// Wakes the senders of other nodes.
    pub(crate) fn wake_senders(&self) {
        if let Some(peers) = self.peers() {
            peers.changes.wake();
        }
    }

    /// Waits until the bus has what was queued under `ticket`. Bounded.
    pub(crate) async fn handed_over(&self, ticket: Option<u64>) {
        if let (Some(peers), Some(ticket)) = (self.peers(), ticket) {
            peers.handed_over(ticket).await;
        }
    }

    /// Resolves when the bus has every message that was accepted before. The store awaits it before another node may
    /// commit. Bounded by the caller.
    pub async fn flush(&self) {
        if let Some(peers) = self.peers() {
            peers.flush().await;
        }
    }

    /// The keys of devices and users in the directory; `None` on a node without others.
    pub fn session_keys(&self) -> Option<Keys> {
        self.peers().map(|peers| peers.cluster.keys.clone())
    }

    /// Apps or keys were changed here: the other nodes read them again.
    pub fn apps_changed(&self) {
        self.send(To::All, wire::Record::AppsChanged);
    }

    /// A topic's message arrived, and the one after `behind` is missing. No connection gets further stored messages of
    /// the topic until [`crate::Edge::offered`] reports how far the log was offered. Called on shards; never waits.
    pub fn topic_gap(&self, app: AppId, topic: Topic, behind: Position) {
        let Some(peers) = self.peers() else { return };
        peers.metrics.topic_gaps.inc();
        if !peers.gaps.add(app, topic, behind) {
            peers.sweeps.lost(peers.place_before(Instant::now()));
        }
    }
}

impl Peers {
    /// Queues a record for other nodes. Returns the number of its place in the queue.
    pub(crate) fn send(&self, to: To, record: wire::Record) -> u64 {
        self.outbox.push(Item::Record { to, record })
    }

    /// A stored message may have reached no node: every node compares its sessions with the store from there.
    pub(crate) fn undelivered(&self, id: NotificationId) {
        let since = place_history::before_id(id);
        self.sweeps.lost(since);
        self.send(To::Gateways, wire::Record::Sweep { since: since.0 });
    }

    /// Sessions that the directory does not know begin, none of them with a lower generation.
    pub(crate) fn unregistered(&self, generation: u64) {
        self.sweeps.unregistered(self.place_before(Instant::now()), generation);
    }

    /// Waits until the bus has what was queued up to `ticket`, for a bounded time.
    pub(crate) async fn handed_over(&self, ticket: u64) {
        if tokio::time::timeout(self.config.hand_over, self.outbox.reached(ticket)).await.is_err() {
            self.metrics.late.inc();
        }
    }

    async fn flush(&self) {
        self.outbox.reached(self.outbox.last()).await;
    }

    /// [`Peers::send`], and waits until the bus has it.
    pub(crate) async fn send_now(&self, to: To, record: wire::Record) {
        let ticket = self.send(to, record);
        self.handed_over(ticket).await;
    }

    /// The nodes that hold the device.
    pub(crate) fn holders(&self, app: AppId, device: &DeviceId) -> To {
        To::Holders(self.cluster.keys.device(app, device))
    }

    /// Other nodes with a lease that `chosen` accepts.
    pub(crate) fn others(&self, chosen: impl Fn(&NodeView) -> bool) -> Vec<Epoch> {
        let own = self.cluster.members.epoch();
        let nodes = self.cluster.members.nodes();
        let other = |node: &&NodeView| !node.is_self && Some(node.epoch) != own && chosen(node);
        nodes.iter().filter(other).map(|node| node.epoch).collect()
    }

    /// Whether this node accepts devices. Assumed while the list of nodes does not contain it yet.
    fn is_gateway(&self) -> bool {
        let nodes = self.cluster.members.nodes();
        nodes.iter().find(|node| node.is_self).is_none_or(|node| node.info.roles.gateway)
    }

    pub(crate) fn other_gateways(&self) -> Vec<Epoch> {
        self.others(|node| node.info.roles.gateway)
    }

    /// A place before everything that was handed over at `moment` or later.
    fn place_before(&self, moment: Instant) -> noroshi_store::Place {
        self.places.before(moment, self.context.now())
    }
}

/// Runs the background tasks of the cluster until it is dropped.
pub(crate) async fn run(nodes: &Nodes, handler: &dyn Handler) {
    let Some(peers) = nodes.peers() else { return std::future::pending().await };
    tokio::join!(
        dispatcher::run(peers),
        inbound::run(peers, handler),
        inbound::report_absent(peers),
        loads::run(peers),
        own_part::run(peers),
        place_history::run(peers),
        sweep::run(peers),
        sweep::audit(peers),
        gap::run(peers),
        reload::run(peers, handler),
    );
}

/// Hands over what is still queued.
pub(crate) async fn finish(nodes: &Nodes) {
    if let Some(peers) = nodes.peers() {
        let rounds = dispatcher::run(peers);
        let flushed = tokio::time::timeout(peers.config.hand_over, peers.flush());
        tokio::select! {
            () = rounds => {}
            _ = flushed => {}
        }
        peers.own_parts.pass_all(peers);
    }
}
