//! The handle that the API and the gateway hold.

use std::sync::{Arc, OnceLock};

use noroshi_store::{Backlog, BacklogPage, Cancelled, OutcomePart, Recover, Store};
use noroshi_telemetry::Spans;
use noroshi_types::{AppId, CloseReason, DeviceId, DeviceNum, NotificationId, Topic, UserId};
use tokio::runtime::Handle;

use crate::ack::AckQueue;
use crate::cluster::outbox::{Item, To};
use crate::cluster::wire::Record;
use crate::cluster::{Inlet, Peers};
use crate::edge::Edge;
use crate::first_call::FirstCalls;
use crate::metrics::Metrics;
use crate::push::{self, Outlet, Side};
use crate::quota::{OverQuota, Quotas};
use crate::rules::Rules;
use crate::share::Shares;
use crate::{Clock, service};

/// Without an exporter.
static NO_SPANS: Spans = Spans::off();

/// Why a decision could not be carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The store or the shards are behind: come back in a moment.
    #[error("the node has more work than it can take now")]
    Overloaded,
    /// The configuration has no key for credentials of push services, or push is not set up.
    #[error("the configuration has no key to seal push credentials with")]
    NoVault,
    /// A credential that cannot be used; the text names field and rule.
    #[error(transparent)]
    Credential(noroshi_push::credential::Invalid),
    /// The app has used up its quota: come back later.
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    #[error(transparent)]
    Store(#[from] noroshi_store::Error),
}

/// Work that ends when this is dropped.
#[derive(Debug)]
pub struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Everything a request or a connection may ask for. Shared as `Arc<Delivery>`.
///
/// What changes something is not cancel-safe unless it says so: a commit has consequences, such as the end of a revoked
/// device's connection, and a future that is dropped behind it leaves them undone. Whoever asks for a client that may
/// leave carries it through (the API does for every request that is not safe).
pub struct Delivery {
    pub(crate) store: Arc<dyn Store>,
    /// Set once, when the gateway stands: it needs this handle to be built.
    pub(crate) edge: OnceLock<Arc<dyn Edge>>,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    /// Set once, before anything runs, where there is an event log.
    pub(crate) events: OnceLock<noroshi_events::Events>,
    /// Set once, before anything runs, where spans are exported.
    spans: OnceLock<Spans>,
    pub(crate) acks: Arc<AckQueue>,
    /// Set once, before anything runs. Without it nothing is sent to push services, and what is to be
    /// sent stays in the store.
    pub(crate) push: OnceLock<Arc<Side>>,
    /// Set once, before anything runs, where there are other nodes.
    pub(crate) peers: OnceLock<Arc<Peers>>,
    /// What the other nodes tell, also before `peers` is set.
    pub(crate) inlet: Arc<Inlet>,
    pub(crate) first_calls: FirstCalls,
    pub(crate) quotas: Quotas,
    pub(crate) rules: Rules,
    pub(crate) shares: Shares,
    pub(crate) runtime: Handle,
}

impl Delivery {
    /// `runtime` runs what the shards ask for: they have no tokio of their own.
    pub fn new(store: Arc<dyn Store>, clock: Clock, metrics: Metrics, runtime: Handle) -> Arc<Self> {
        let (edge, push, peers) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let (acks, inlet, first_calls) = (Arc::new(AckQueue::new()), Arc::default(), FirstCalls::new());
        let (events, spans) = (OnceLock::new(), OnceLock::new());
        let quotas = Quotas::new(metrics.quota.clone());
        let shares = Shares::new(metrics.shares.clone());
        Arc::new(Self {
            store,
            edge,
            clock,
            metrics,
            events,
            spans,
            acks,
            push,
            peers,
            inlet,
            first_calls,
            quotas,
            rules: Rules::new(),
            shares,
            runtime,
        })
    }

    /// Connects the gateway. Until then nothing is delivered live. A second call is ignored.
    pub fn attach(&self, edge: Arc<dyn Edge>) {
        let _ = self.edge.set(edge);
    }

    /// Connects the push services; `vault` keeps their credentials (none: the configuration has no key).
    /// To be followed by [`Delivery::load_credentials`]. A second call is ignored.
    pub fn attach_push(
        &self,
        services: Arc<dyn Outlet>,
        vault: Option<noroshi_push::Vault>,
        config: push::Config,
    ) {
        let _ = self.push.set(Arc::new(Side::new(services, vault, config)));
    }

    /// Connects whoever exports spans. A second call is ignored.
    pub fn attach_spans(&self, spans: Spans) {
        let _ = self.spans.set(spans);
    }

    /// Where spans are begun; nothing is recorded where nobody exports them.
    pub fn spans(&self) -> &Spans {
        self.spans.get().unwrap_or(&NO_SPANS)
    }

    /// Puts a queue between the dispatcher and the senders of all nodes: to be called after [`Delivery::attach_push`] and
    /// before anything runs, at every node with the same queue. A second call is ignored.
    pub fn attach_batches(&self, queue: Arc<dyn noroshi_cluster::batches::BatchQueue>) {
        if let Some(side) = self.push.get() {
            let _ = side.queue.set(queue);
        }
    }

    /// Push work was made: every sender looks.
    pub(crate) fn wake_push(&self) {
        self.wake_push_here();
        if let Some(peers) = self.peers() {
            peers.wake();
        }
    }

    /// Push work was made, on another node perhaps.
    pub(crate) fn wake_push_here(&self) {
        if let Some(side) = self.push.get() {
            side.wake();
        }
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What each app may use.
    pub fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn edge(&self) -> Option<&Arc<dyn Edge>> {
        self.edge.get()
    }

    // -- for the gateway: called on shards, never waits, answers through `reply` on another thread --

    /// The next page of a device's backlog, without what it confirmed before.
    pub fn backlog(&self, backlog: Backlog, reply: impl FnOnce(Result<BacklogPage, Error>) + Send + 'static) {
        let (store, acks) = (self.store.clone(), self.acks.clone());
        self.runtime.spawn(async move {
            acks.settle(backlog.device).await;
            reply(store.backlog(backlog).await.map_err(Error::from));
        });
    }

    /// What a topic holds since a position.
    pub fn recover(&self, recover: Recover, reply: impl FnOnce(Result<BacklogPage, Error>) + Send + 'static) {
        let store = self.store.clone();
        self.runtime.spawn(async move { reply(store.recover(recover).await.map_err(Error::from)) });
    }

    /// Runs what a connection asks for beside its shard. The caller bounds how much of it there is.
    pub fn work(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// As [`Delivery::work`], until what it returns is dropped.
    pub fn work_while_held(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        AbortOnDrop(self.runtime.spawn(work).abort_handle())
    }

    /// A device confirmed notifications. Kept in memory for some milliseconds and written together
    /// with others; a crash in between repeats them, with the same ids.
    pub fn ack(&self, device: DeviceNum, ids: Vec<NotificationId>) {
        self.acks.push(device, ids, &self.metrics);
    }

    /// What became of a message on the devices of one shard.
    pub fn outcomes(&self, parts: Vec<OutcomePart>) {
        self.became_parts(&parts);
        self.store.record(parts);
    }

    // -- for the API -------------------------------------------------------------------------------

    /// Confirms at once: when this returns, the confirmation is durable. Returns how many of the ids
    /// were outstanding.
    pub async fn ack_now(&self, device: DeviceNum, ids: Vec<NotificationId>) -> Result<u64, Error> {
        self.write_acks(vec![noroshi_store::Ack { device, ids }]).await
    }

    /// Its user opened notifications on a device: durable when this returns. Returns how many of them were not opened
    /// there before. It confirms nothing.
    pub async fn open(&self, device: DeviceNum, ids: Vec<NotificationId>) -> Result<u64, Error> {
        let now = self.clock.now();
        let opened = self.store.open(device, ids, now).await?;
        self.became_opened(device, &opened, now);
        Ok(opened.len() as u64)
    }

    /// Subscribes durably, also on an open connection. True if it is new.
    pub async fn subscribe(&self, app: AppId, device: &DeviceId, topic: &Topic) -> Result<bool, Error> {
        let held = self.admit_subscriptions(app, device, std::slice::from_ref(topic)).await?;
        let new = self.store.subscribe(app, device, topic, self.clock.now()).await?;
        held.settle();
        self.device_changed(app, device);
        self.subscribed(app, &[(device, std::slice::from_ref(topic))]).await;
        Ok(new)
    }

    /// Registrations subscribed devices durably: their open connections hear the topics too.
    pub async fn subscribed(&self, app: AppId, devices: &[(&DeviceId, &[Topic])]) {
        let subscribed = || devices.iter().filter(|(_, topics)| !topics.is_empty());
        if let Some(edge) = self.edge() {
            subscribed().for_each(|(device, topics)| edge.subscribe(app, device, topics));
        }
        let Some(peers) = self.peers().filter(|_| subscribed().next().is_some()) else { return };
        let tell = |(device, topics): &(&DeviceId, &[Topic])| {
            let record = Record::Subscribe { app, device: (*device).clone(), topics: topics.to_vec() };
            Item::Tell { to: peers.holders(app, device), record }
        };
        // Made before they are queued, so that they leave together.
        let tells: Vec<Item> = subscribed().map(tell).collect();
        peers.handed_over(peers.outbox.push_all(tells)).await;
    }

    /// True if there was a subscription.
    pub async fn unsubscribe(&self, app: AppId, device: &DeviceId, topic: &Topic) -> Result<bool, Error> {
        let was = self.store.unsubscribe(app, device, topic).await?;
        self.device_changed(app, device);
        if let Some(edge) = self.edge() {
            edge.unsubscribe(app, device, topic);
        }
        if let Some(peers) = self.peers() {
            let (device, topics) = (device.clone(), vec![topic.clone()]);
            peers.tell_now(peers.holders(app, &device), Record::Unsubscribe { app, device, topics }).await;
        }
        Ok(was)
    }

    /// Takes back what no device has confirmed yet.
    pub async fn cancel(&self, app: AppId, id: NotificationId) -> Result<Cancelled, Error> {
        let cancelled = self.store.cancel(app, id, self.clock.now()).await?;
        self.became_departed(&cancelled.departed);
        self.campaigns_done(&cancelled.done);
        if cancelled.removed > 0 {
            self.app_changed(app);
        }
        Ok(cancelled)
    }

    /// Removes a device and ends its connection.
    pub async fn delete_device(self: &Arc<Self>, app: AppId, device: &DeviceId) -> Result<(), Error> {
        self.release_shares(app, device).await?;
        self.store.delete_device(app, device, self.clock.now()).await?;
        self.device_changed(app, device);
        self.close(app, std::slice::from_ref(device), CloseReason::Revoked).await;
        Ok(())
    }

    /// Revokes a device's tokens and app JWTs, and ends its connection.
    pub async fn revoke_tokens(&self, app: AppId, device: &DeviceId) -> Result<u32, Error> {
        let version = self.store.revoke_tokens(app, device, self.clock.now()).await?;
        self.device_changed(app, device);
        self.close(app, std::slice::from_ref(device), CloseReason::Revoked).await;
        Ok(version)
    }

    /// Revokes the app JWTs of a user and the tokens of the user's devices, and ends their connections. Returns how
    /// many devices the user has.
    pub async fn revoke_user(&self, app: AppId, user: &UserId) -> Result<usize, Error> {
        let devices = self.store.revoke_user(app, user, self.clock.now()).await?;
        self.devices_changed(app, &devices);
        self.close(app, &devices, CloseReason::Revoked).await;
        Ok(devices.len())
    }

    /// Ends connections of devices, to be opened again: what they were told at their log-ins, such as whose
    /// devices they are, no longer holds.
    pub async fn disconnect(&self, app: AppId, devices: &[DeviceId]) {
        self.close(app, devices, CloseReason::Drain).await;
    }

    /// Ends the connections of an app that is gone, those to push services too.
    pub async fn close_app(&self, app: AppId) {
        self.app_changed(app);
        if let Some(side) = self.push.get() {
            side.outlet.set_credentials(app, Vec::new());
        }
        let reason = CloseReason::Revoked;
        if let Some(edge) = self.edge() {
            edge.close_app(app, reason);
        }
        if let Some(peers) = self.peers() {
            peers.tell(To::Senders, Record::CredentialsChanged { app });
            peers.tell_now(To::Gateways, Record::CloseApp { app, reason }).await;
        }
    }

    async fn close(&self, app: AppId, devices: &[DeviceId], reason: CloseReason) {
        let mut last = None;
        for device in devices {
            if let Some(edge) = self.edge() {
                edge.close(app, device, reason);
            }
            let record = || Record::Close { app, device: device.clone(), reason };
            // What a revoked device left may be on any node: a session that nobody may resume, a will.
            let to = |peers: &Peers| match reason {
                CloseReason::Revoked => To::Gateways,
                _ => peers.holders(app, device),
            };
            last = self.peers().map(|peers| peers.tell(to(peers), record())).or(last);
        }
        self.told(last).await;
    }

    /// Waits until what was queued for other nodes is on its way.
    async fn told(&self, ticket: Option<u64>) {
        if let (Some(peers), Some(ticket)) = (self.peers(), ticket) {
            peers.handed_over(ticket).await;
        }
    }

    /// Runs acknowledgements, clean-up and their like until `drain` resolves, then finishes them.
    pub async fn run(self: Arc<Self>, drain: impl Future<Output = ()> + Send) {
        service::run(self, drain).await;
    }
}
