//! The handle that the API, the gateway and the node hold: a facade over the components of [`crate::service`].
//!
//! Methods only delegate. The contract of each (order, cancellation, errors) is documented here; the component decides.

use std::collections::HashMap;
use std::sync::Arc;

use noroshi_cluster::batches::BatchQueue;
use noroshi_cluster::{Cluster, Keys, Receiver};
use noroshi_egress::Egress;
use noroshi_events::Events;
use noroshi_store::{
    Ack, Backlog, BacklogPage, Cancelled, Device, Idempotency, JoinShares, LeaveShares, OutcomePart, Recover,
    Registration, Store,
};
use noroshi_telemetry::Spans;
use noroshi_types::rule::{Action, Decision, TopicRules};
use noroshi_types::{
    AppId, AppName, CampaignId, CloseReason, CredentialId, DeviceId, DeviceNum, Invalid, Label,
    NotificationId, Position, Presence, PushToken, Quota, Request, Topic, UserId,
};
use tokio::runtime::Handle;

use crate::campaign::{CampaignProgress, Count, Line, Spec};
use crate::clock::Clock;
use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::cluster::{self, Reload};
use crate::edge::{Edge, Session};
use crate::error::Error;
use crate::first_call::{Current, Mark, Tags};
use crate::login::{LoginAttempt, LoginResult};
use crate::metrics::Metrics;
use crate::publish::{Begun, Receipt};
use crate::push::{self, CredentialView, Outlet, Tested};
use crate::quota::{Held, Origin, Quotas, Shown};
use crate::rules::{self, AppRules, Holder, Rules, Verdict};
use crate::service::Service;

/// Aborts a task when it is dropped.
#[derive(Debug)]
pub struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Everything that a request or a connection may ask for. Shared as `Arc<Delivery>`.
///
/// A method that changes something is not cancel-safe unless its documentation states that it is: a commit has
/// effects, such as the end of a revoked device's connection, and a future that is dropped after the commit skips
/// them. A caller whose client may leave must complete the future (the API does so for every request that is not safe).
pub struct Delivery {
    service: Service,
}

/// Assembly: called by the node before anything runs.
impl Delivery {
    /// `runtime` runs work for the shards, which have no tokio runtime of their own.
    pub fn new(store: Arc<dyn Store>, clock: Clock, metrics: Metrics, runtime: Handle) -> Arc<Self> {
        Arc::new(Self { service: Service::new(store, clock, metrics, runtime) })
    }

    /// Attaches the gateway. Until then nothing is delivered live. A second call is ignored.
    pub fn attach(&self, edge: Arc<dyn Edge>) {
        self.service.context.attach_edge(edge);
    }

    /// Attaches the push services; `vault` seals their credentials (`None`: the configuration has no key). Call
    /// [`Delivery::load_credentials`] next. A second call is ignored.
    pub fn attach_push(
        &self,
        services: Arc<dyn Outlet>,
        vault: Option<noroshi_push::Vault>,
        config: push::Config,
    ) {
        self.service.push.attach(services, vault, config);
    }

    /// Puts a queue between the dispatcher and the senders of all nodes. Call it after [`Delivery::attach_push`], on
    /// every node with the same queue. A second call is ignored.
    pub fn attach_batches(&self, queue: Arc<dyn BatchQueue>) {
        self.service.push.attach_batches(queue);
    }

    /// Makes this node one of several. `reload` runs when another node changed apps or keys. A second call is ignored.
    pub fn attach_cluster(&self, cluster: Cluster, config: cluster::Config, reload: Arc<dyn Reload>) {
        self.service.nodes.attach(cluster, config, reload);
    }

    /// Attaches the event log. A second call is ignored.
    pub fn attach_events(&self, events: Events) {
        self.service.context.outcomes.attach_events(events);
    }

    /// Attaches the span exporter. A second call is ignored.
    pub fn attach_spans(&self, spans: Spans) {
        self.service.context.attach_spans(spans);
    }

    /// Attaches the egress for webhooks of topic rules. A second call is ignored.
    pub fn attach_webhooks(&self, egress: Arc<Egress>) {
        self.service.rules.attach_webhooks(egress);
    }

    /// Runs background tasks until `drain` resolves, then finishes them.
    pub async fn run(self: Arc<Self>, drain: impl Future<Output = ()> + Send) {
        self.service.run(drain).await;
    }

    /// Receives the records of other nodes. It only queues them; [`Delivery::run`] processes them.
    pub fn receiver(&self) -> Arc<dyn Receiver> {
        self.service.nodes.receiver()
    }

    /// The keys of devices and users in the directory; `None` on a node without others.
    pub fn session_keys(&self) -> Option<Keys> {
        self.service.nodes.peers().map(|peers| peers.cluster.keys.clone())
    }

    /// Resolves when the bus has every message that was accepted before. The store awaits it before another node may
    /// commit. Bounded by the caller.
    pub async fn flush(&self) {
        self.service.nodes.flush().await;
    }

    /// Apps or keys were changed here: the other nodes read them again.
    pub fn apps_changed(&self) {
        self.service.nodes.send(To::All, Record::AppsChanged);
    }

    pub fn clock(&self) -> &Clock {
        &self.service.context.clock
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.service.context.store
    }

    /// Records nothing while no exporter is attached.
    pub fn spans(&self) -> &Spans {
        self.service.context.spans()
    }

    /// Drops every event while no log is attached.
    pub fn events(&self) -> &Events {
        self.service.context.outcomes.events()
    }
}

/// Publishing.
impl Delivery {
    /// Accepts a request. When this returns a receipt, what must survive is on stable storage and messages for
    /// connected devices are in transit. Cancel-safe: a dropped future may still have accepted it.
    pub async fn publish(
        &self,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
    ) -> Result<Receipt, Error> {
        self.service.publisher.publish(app, request, idempotency).await
    }

    /// As [`Delivery::publish`], for messages without a request that could be traced: a trace may begin here.
    pub async fn publish_as_root(
        &self,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
    ) -> Result<Receipt, Error> {
        self.service.publisher.publish_as_root(app, request, idempotency).await
    }

    /// The first half of [`Delivery::publish`], for callers that publish several messages in order: decides whether
    /// there is room, which may read the store. Await it for one message before the next.
    pub async fn begin_publish(
        &self,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        origin: Origin,
    ) -> Result<Begun, Error> {
        self.service.publisher.begin_publish(app, request, idempotency, origin).await
    }

    /// As [`Delivery::begin_publish`], for messages without a request that could be traced.
    pub async fn begin_publish_as_root(&self, app: AppId, request: Request) -> Result<Begun, Error> {
        self.service.publisher.begin_publish_as_root(app, request).await
    }

    /// The second half. Its first poll puts the message into the store's queue, behind those polled before. Stored
    /// messages keep that order.
    pub async fn finish_publish(&self, begun: Begun) -> Result<Receipt, Error> {
        self.service.publisher.finish_publish(begun).await
    }

    /// Cancels a notification on every device that has not confirmed it.
    pub async fn cancel(&self, app: AppId, id: NotificationId) -> Result<Cancelled, Error> {
        self.service.publisher.cancel(app, id).await
    }
}

/// Connections. Methods without `async` are called on shards: they never wait, and answer through `reply` on another
/// thread.
impl Delivery {
    /// Logs in a batch of devices, with answers in order.
    pub fn log_in(
        &self,
        entering: Vec<LoginAttempt>,
        reply: impl FnOnce(Result<Vec<LoginResult>, Error>) + Send + 'static,
    ) {
        self.service.logins.log_in(entering, reply);
    }

    /// Reads the next page of a device's backlog, without what the device confirmed before.
    pub fn backlog(&self, backlog: Backlog, reply: impl FnOnce(Result<BacklogPage, Error>) + Send + 'static) {
        let (store, acks) = (self.service.context.store.clone(), self.service.acks.clone());
        self.work(async move {
            acks.settle(backlog.device).await;
            reply(store.backlog(backlog).await.map_err(Error::from));
        });
    }

    /// Reads the messages of a topic since a position.
    pub fn recover(&self, recover: Recover, reply: impl FnOnce(Result<BacklogPage, Error>) + Send + 'static) {
        let store = self.service.context.store.clone();
        self.work(async move { reply(store.recover(recover).await.map_err(Error::from)) });
    }

    /// Runs work of a connection outside its shard. The caller bounds its amount.
    pub fn work(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.service.context.runtime.spawn(work);
    }

    /// As [`Delivery::work`], until the returned value is dropped.
    pub fn work_while_held(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
        AbortOnDrop(self.service.context.runtime.spawn(work).abort_handle())
    }

    /// Queues the confirmations of a device, which are written together with others some milliseconds later. A crash in
    /// between repeats the notifications, with the same ids.
    pub fn ack(&self, device: DeviceNum, ids: Vec<NotificationId>) {
        self.service.acks.push(device, ids);
    }

    /// Writes confirmations at once: durable when this returns. Returns how many of the notifications were outstanding.
    pub async fn ack_now(&self, device: DeviceNum, ids: Vec<NotificationId>) -> Result<u64, Error> {
        self.service.acks.write(vec![Ack { device, ids }]).await
    }

    /// Records the outcomes of a message on the devices of one shard.
    pub fn outcomes(&self, parts: Vec<OutcomePart>) {
        self.service.context.outcomes.record(parts);
    }

    /// A topic's message arrived, and the one after `behind` is missing. No connection gets further stored messages of
    /// the topic until [`crate::Edge::offered`] reports how far the log was offered.
    pub fn topic_gap(&self, app: AppId, topic: Topic, behind: Position) {
        self.service.nodes.topic_gap(app, topic, behind);
    }

    /// The sessions of each user on all nodes, in order.
    pub async fn sessions(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>> {
        self.service.sessions.of_users(app, users).await
    }

    /// The session of each device on any node, in order.
    pub async fn device_sessions(&self, app: AppId, devices: &[DeviceId]) -> Vec<Option<Session>> {
        self.service.sessions.of_devices(app, devices).await
    }

    pub async fn session(&self, app: AppId, device: &DeviceId) -> Option<Session> {
        self.service.sessions.of_device(app, device).await
    }

    /// The session on this node, without asking others.
    pub fn session_here(&self, app: AppId, device: &DeviceId) -> Option<Session> {
        self.service.context.local_session(app, device)
    }

    /// The session on another node, if the device is not connected here.
    pub async fn session_elsewhere(&self, app: AppId, device: &DeviceId) -> Option<Session> {
        self.service.sessions.elsewhere(app, device).await
    }

    /// The number of connections that subscribe to each topic, on all nodes.
    pub async fn topic_sessions(&self, app: AppId, topics: &[Topic]) -> Vec<u64> {
        self.service.sessions.of_topics(app, topics).await
    }

    /// Returns false if the device is not connected.
    pub async fn set_presence(&self, app: AppId, device: &DeviceId, presence: Presence) -> bool {
        self.service.sessions.set_presence(app, device, presence).await
    }

    /// Ends connections of devices, which then connect again: what they learned at login, such as the device's user,
    /// has changed.
    pub async fn disconnect(&self, app: AppId, devices: &[DeviceId]) {
        self.service.sessions.close(app, devices, CloseReason::Drain).await;
    }

    /// Ends the connections of an app that was deleted, including those to push services.
    pub async fn close_app(&self, app: AppId) {
        self.service.freshness.app_changed(app);
        self.service.push.close_app(app);
        self.service.sessions.close_app(app).await;
    }

    /// A connection joins groups of shared subscriptions: it and its fellow members share what is published from now
    /// on.
    pub async fn join_shares(&self, join: JoinShares) -> Result<(), Error> {
        self.service.shares.join(join).await
    }

    /// A device leaves groups, or its connection or session ends.
    pub async fn leave_shares(&self, app: AppId, leave: LeaveShares) -> Result<(), Error> {
        self.service.shares.leave(app, leave).await
    }

    /// Whether devices of the app share subscriptions, as far as this node knows: it may lag by seconds if another node
    /// could not report the change.
    pub fn has_shares(&self, app: AppId) -> bool {
        self.service.shares.has(app)
    }
}

/// Devices.
impl Delivery {
    /// Subscribes durably, also on an open connection. Returns whether the subscription is new.
    pub async fn subscribe(&self, app: AppId, device: &DeviceId, topic: &Topic) -> Result<bool, Error> {
        self.service.devices.subscribe(app, device, topic).await
    }

    /// Registrations subscribed devices durably: their open connections receive the topics as well.
    pub async fn subscribed(&self, app: AppId, devices: &[(&DeviceId, &[Topic])]) {
        self.service.sessions.subscribed(app, devices).await;
    }

    /// Returns whether there was a subscription.
    pub async fn unsubscribe(&self, app: AppId, device: &DeviceId, topic: &Topic) -> Result<bool, Error> {
        self.service.devices.unsubscribe(app, device, topic).await
    }

    /// Records that the user opened notifications on a device: durable when this returns. Returns how many were not
    /// opened there before. Confirms nothing.
    pub async fn open(&self, device: DeviceNum, ids: Vec<NotificationId>) -> Result<u64, Error> {
        self.service.devices.open(device, ids).await
    }

    /// Deletes a device and ends its connection.
    pub async fn delete_device(&self, app: AppId, device: &DeviceId) -> Result<(), Error> {
        self.service.shares.release(app, device).await?;
        self.service.devices.delete(app, device).await
    }

    /// Revokes the tokens and app JWTs of a device, and ends its connection.
    pub async fn revoke_tokens(&self, app: AppId, device: &DeviceId) -> Result<u32, Error> {
        self.service.devices.revoke(app, device).await
    }

    /// Revokes the app JWTs of a user and the tokens of the user's devices, and ends their connections. Returns the
    /// number of devices.
    pub async fn revoke_user(&self, app: AppId, user: &UserId) -> Result<usize, Error> {
        self.service.devices.revoke_user(app, user).await
    }

    /// A device was created, or registered again.
    pub fn registered(&self, device: &Device) {
        self.service.context.outcomes.registered(device);
    }

    /// A device was changed: cached data is stale.
    pub fn device_changed(&self, app: AppId, device: &DeviceId) {
        self.service.freshness.device_changed(app, device);
    }

    /// As [`Delivery::device_changed`], for many devices.
    pub fn devices_changed<'a>(&self, app: AppId, devices: impl IntoIterator<Item = &'a DeviceId>) {
        self.service.freshness.devices_changed(app, devices);
    }

    /// Taken before a device is read.
    pub fn mark(&self) -> Mark {
        self.service.freshness.mark()
    }

    /// Whether what was read of a device after `mark` is still current, as far as this node knows.
    pub fn is_fresh(&self, tags: &Tags, mark: Mark) -> bool {
        self.service.freshness.is_fresh(tags, mark)
    }
}

/// What apps may use.
impl Delivery {
    pub fn quotas(&self) -> &Quotas {
        &self.service.quotas
    }

    /// Durable subscriptions of a device: their number, and topics that are new to the store.
    pub async fn admit_subscriptions(
        &self,
        app: AppId,
        device: &DeviceId,
        topics: &[Topic],
    ) -> Result<Held, Error> {
        self.service.device_admission.subscriptions(app, device, topics).await
    }

    /// Registrations, in order, each decided on its own.
    pub async fn admit_registrations(
        &self,
        app: AppId,
        registrations: &[Registration],
    ) -> Result<Vec<Result<Held, Error>>, Error> {
        self.service.device_admission.registrations(app, registrations).await
    }

    /// Whether a front may forward messages of the app. Waits only briefly for the first count, because the front's
    /// next round waits for the answers of all apps.
    pub async fn admit_relay(&self, app: AppId) -> Result<(), Error> {
        self.service.usage.admit_relay(app).await
    }

    /// One more row that counts under `quota`.
    pub async fn admit_one(&self, app: AppId, quota: Quota) -> Result<Held, Error> {
        self.service.publish_admission.admit_one(app, quota).await
    }

    /// The quotas of an app with the use that is known without a count; `None` for an app that was removed.
    pub fn known_quotas(&self, app: AppId) -> Option<Vec<Shown>> {
        self.service.usage.known(app)
    }

    /// The quotas of an app with its use; `None` for an app that was removed. `all` also counts quotas without a limit,
    /// which reads everything that the app holds.
    pub async fn shown_quotas(&self, app: AppId, all: bool) -> Result<Option<Vec<Shown>>, Error> {
        self.service.usage.shown(app, all).await
    }

    pub fn rules(&self) -> &Rules {
        &self.service.rules
    }

    /// Replaces the topic rules of all apps. Sessions of apps whose rules changed are checked again.
    pub fn set_topic_rules(&self, rules: &HashMap<AppId, (AppName, Arc<TopicRules>)>) {
        self.service.rules.set(rules);
    }

    /// Whether a device may use a topic, or everything that a filter in MQTT's syntax matches. Never waits. Counts a
    /// denial.
    pub fn check_topic(&self, app: &AppRules, holder: &Holder, action: Action, topic: &str) -> Verdict {
        self.service.rules.check(app, holder, action, topic)
    }

    /// Whether a durable subscription stays. If a rule reserves the topic for API keys, one of them created it.
    pub fn check_durable(&self, app: &AppRules, holder: &Holder, topic: &Topic) -> Verdict {
        self.service.rules.check_durable(app, holder, topic)
    }

    /// As [`Delivery::check_topic`], and asks the webhook if it decides. Cancel-safe: the next caller repeats a dropped
    /// question.
    pub async fn ask_topic(
        &self,
        app: &AppRules,
        holder: &Holder,
        action: Action,
        topic: &str,
        protocol: &'static str,
    ) -> Verdict {
        self.service.rules.ask(app, holder, action, topic, protocol).await
    }

    /// The decision of the rules, to explain it to people. Asks no webhook.
    pub fn explain_topic(
        &self,
        holder: &Holder,
        action: Action,
        topic: &str,
    ) -> (Decision, Option<Arc<AppRules>>) {
        self.service.rules.explain(holder, action, topic)
    }

    /// Whether rules apply to the topic: they do not for the service's own topics.
    pub fn is_ruled(topic: &str) -> bool {
        rules::is_ruled(topic)
    }

    /// A change of the configuration; the event never holds a secret.
    pub fn configured(
        &self,
        app: Option<AppId>,
        (what, change): (&'static str, &'static str),
        name: Option<&str>,
    ) {
        self.service.context.outcomes.configured(app, (what, change), name);
    }
}

/// Experiments and notices.
impl Delivery {
    /// The current values that all devices of an app share.
    pub fn current(&self, app: AppId) -> Arc<Current> {
        self.service.first_calls.current(app)
    }

    /// Reads experiments and notices of all apps again. One of many concurrent callers reads for all that called before
    /// it started.
    pub async fn reload_definitions(&self) -> Result<(), Error> {
        self.service.first_calls.reload().await
    }

    /// An experiment or a notice was created, changed or archived here. This node knows the change when this returns,
    /// the others soon after.
    pub async fn definitions_changed(&self) -> Result<(), Error> {
        self.service.first_calls.definitions_changed().await
    }

    /// The device reports that it showed these experiments. Returns its variants of those that it takes part in.
    pub fn exposed<'a>(&self, device: &Device, experiments: &'a [Label]) -> Vec<(&'a Label, Label)> {
        self.service.first_calls.exposed(device, experiments)
    }
}

/// Push credentials.
impl Delivery {
    /// Opens all credentials and hands them to the pools, once at the start. One that cannot be opened is counted and
    /// logged, and its pushes wait; the others work.
    pub async fn load_credentials(&self) -> Result<(), Error> {
        self.service.push.credentials()?.load().await
    }

    /// The credentials of the app, by id.
    pub async fn credentials(&self, app: AppId) -> Result<Vec<CredentialView>, Error> {
        self.service.push.list_credentials(app).await
    }

    /// Checks, seals and stores the credential in `body`, and uses it from now on.
    pub async fn put_credential(
        &self,
        app: AppId,
        body: &[u8],
        replace: bool,
    ) -> Result<CredentialView, Error> {
        self.service.push.credentials()?.put(app, body, replace).await
    }

    /// Deletes a credential. Its pushes in flight are finished, and its connections close.
    pub async fn delete_credential(&self, app: AppId, id: CredentialId) -> Result<(), Error> {
        self.service.push.credentials()?.delete(app, id).await
    }

    /// Sends one push to `token` and returns the answer. The answer does not change the stored token.
    pub async fn test_credential(
        &self,
        app: AppId,
        id: CredentialId,
        token: PushToken,
    ) -> Result<Tested, Error> {
        self.service.push.credentials()?.test(app, id, token).await
    }
}

/// Campaigns.
impl Delivery {
    /// The campaign that an earlier request with this idempotency key created, even if what it needed is gone.
    pub async fn created_campaign(
        &self,
        app: AppId,
        idempotency: &Idempotency,
    ) -> Result<Option<CampaignProgress>, Error> {
        self.service.campaigns.created(app, idempotency).await
    }

    /// Creates a campaign from a checked request whose experiment was looked up ([`Delivery::with_experiment`]). It
    /// starts, waits for its time, or stays a draft. Also returns whether an earlier request with the same idempotency
    /// key created it.
    pub async fn create_campaign(
        &self,
        app: AppId,
        spec: Spec,
        idempotency: Option<Idempotency>,
    ) -> Result<(CampaignProgress, bool), Error> {
        self.service.campaigns.create(app, spec, idempotency).await
    }

    /// Looks up the experiment whose variants the campaign sends, if any. The inner error is the reason if it cannot
    /// send them.
    pub async fn with_experiment(&self, app: AppId, spec: Spec) -> Result<Result<Spec, Invalid>, Error> {
        self.service.campaigns.with_experiment(app, spec).await
    }

    /// The present size of the audience; writes nothing. An uploaded audience is still empty.
    pub async fn dry_run(&self, app: AppId, spec: &Spec) -> Result<Count, Error> {
        self.service.campaigns.dry_run(app, spec).await
    }

    /// Adds recipients to a draft. Returns the number of all recipients, or [`noroshi_store::Error::Conflict`] if the
    /// audience is not uploaded.
    pub async fn upload(&self, app: AppId, id: CampaignId, lines: Vec<Line>) -> Result<u64, Error> {
        self.service.campaigns.upload(app, id, lines).await
    }

    /// Starts a draft: now, or at its `start_at`.
    pub async fn start_campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        self.service.campaigns.start(app, id).await
    }

    /// Sends no further batches; batches in flight are finished.
    pub async fn pause_campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        self.service.campaigns.pause(app, id).await
    }

    pub async fn resume_campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        self.service.campaigns.resume(app, id).await
    }

    /// Ends the campaign: the remaining recipients get nothing.
    pub async fn abort_campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        self.service.campaigns.abort(app, id).await
    }

    /// Deletes a campaign that has ended.
    pub async fn delete_campaign(&self, app: AppId, id: CampaignId) -> Result<(), Error> {
        self.service.campaigns.delete(app, id).await
    }

    pub async fn campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        self.service.campaigns.get(app, id).await
    }

    /// Campaigns created before `before`, newest first.
    pub async fn campaigns(
        &self,
        app: AppId,
        before: Option<CampaignId>,
        limit: usize,
    ) -> Result<Vec<CampaignProgress>, Error> {
        self.service.campaigns.list(app, before, limit).await
    }
}
