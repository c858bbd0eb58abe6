//! The components of a node, built in one place, and their background tasks. The API, the gateway and the node hold it
//! as `Arc<Delivery>`, and call the component that does the work.
//!
//! [`Delivery::new`] builds each component from those below it. No component names [`Delivery`] or another one that is
//! built after it. Records of other nodes reach the components above the cluster through [`Handler`].
//!
//! At the drain no new work starts: queued acknowledgements are written, batches in flight get
//! [`crate::push::Config::drain`], and unfinished ones are sent again after the next start.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use noroshi_cluster::Epoch;
use noroshi_store::{Backlog, BacklogPage, Preferring, Recover, Store};
use noroshi_types::{AppId, DeviceId, UserId};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::ack::Acks;
use crate::activity::Activities;
use crate::backpressure::Backpressure;
use crate::campaign::Campaigns;
use crate::clock::Clock;
use crate::cluster::wire::ItemReport;
use crate::cluster::{self, Handler, Nodes};
use crate::context::Context;
use crate::devices::Devices;
use crate::error::Error;
use crate::figures::Figures;
use crate::first_call::{self, FirstCalls};
use crate::freshness::Freshness;
use crate::items::Items;
use crate::login::Logins;
use crate::metrics::Metrics;
use crate::preferences::Preferences;
use crate::prune::Pruner;
use crate::publish::Publisher;
use crate::push;
use crate::push_work::PushWork;
use crate::quota::{Quotas, Usage};
use crate::rules::Rules;
use crate::seen::Seen;
use crate::sessions::Sessions;
use crate::share::{self, Shares};
use crate::share_feed::ShareFeed;
use crate::tails::Tails;

/// Everything that a request or a connection may ask for, by component.
///
/// A method of a component that changes something is not cancel-safe unless its documentation states that it is: a
/// commit has effects, such as the end of a revoked device's connection, and a future that is dropped after the commit
/// skips them. A caller whose client may leave must complete the future (the API does so for every request that is not
/// safe).
pub struct Delivery {
    pub context: Arc<Context>,
    pub nodes: Arc<Nodes>,
    pub figures: Figures,
    pub tails: Tails,
    pub freshness: Arc<Freshness>,
    pub quotas: Arc<Quotas>,
    pub usage: Arc<Usage>,
    pub sessions: Arc<Sessions>,
    pub devices: Arc<Devices>,
    pub logins: Arc<Logins>,
    pub seen: Arc<Seen>,
    pub backpressure: Arc<Backpressure>,
    pub items: Arc<Items>,
    pub preferences: Preferences,
    pub publisher: Arc<Publisher>,
    pub acks: Arc<Acks>,
    pub campaigns: Arc<Campaigns>,
    pub activities: Arc<Activities>,
    pub shares: Arc<Shares>,
    pub push: Arc<push::Service>,
    pub first_calls: Arc<FirstCalls>,
    pub rules: Rules,
    push_work: Arc<PushWork>,
    pruner: Pruner,
}

impl Delivery {
    /// Builds the components in the order of their layers. `runtime` runs work for the shards, which have no tokio
    /// runtime of their own.
    pub fn new(store: Arc<dyn Store>, clock: Clock, metrics: Metrics, runtime: Handle) -> Arc<Self> {
        let context = Arc::new(Context::new(store, clock, metrics.outcomes, runtime));

        // Other nodes, and signals between components.
        let feed = Arc::new(ShareFeed::new(metrics.shares.share_messages_dropped.clone()));
        let nodes = Arc::new(Nodes::new(context.clone(), feed.clone(), metrics.cluster));
        let freshness = Arc::new(Freshness::new(nodes.clone()));
        let (figures, tails) = (Figures::new(nodes.clone()), Tails::new(nodes.clone()));
        let push_work = Arc::new(PushWork::new(nodes.clone()));

        // What apps may use.
        let rules = Rules::new(context.clone(), metrics.rules);
        let quotas = Arc::new(Quotas::new(metrics.quota));
        let usage = Arc::new(Usage { context: context.clone(), quotas: quotas.clone() });

        // Devices and their connections.
        let sessions = Arc::new(Sessions {
            context: context.clone(),
            nodes: nodes.clone(),
            freshness: freshness.clone(),
        });
        let devices = Arc::new(Devices {
            context: context.clone(),
            freshness: freshness.clone(),
            sessions: sessions.clone(),
            usage: usage.clone(),
        });
        let preferences =
            Preferences::new(context.clone(), nodes.clone(), freshness.clone(), metrics.preferences);
        let seen = Arc::new(Seen::new(context.clone()));
        let logins = Arc::new(Logins {
            seen: seen.clone(),
            context: context.clone(),
            nodes: nodes.clone(),
            freshness: freshness.clone(),
            usage: usage.clone(),
        });

        // Messages.
        let backpressure = Arc::new(Backpressure::new(context.clone(), nodes.clone(), metrics.backpressure));
        let items = Arc::new(Items::new(context.clone(), nodes.clone(), freshness.clone(), metrics.items));
        let publisher = Arc::new(Publisher {
            context: context.clone(),
            nodes: nodes.clone(),
            freshness: freshness.clone(),
            usage: usage.clone(),
            feed: feed.clone(),
            items: items.clone(),
            push_work: push_work.clone(),
            backpressure: backpressure.clone(),
            metrics: metrics.publish,
        });
        let acks = Arc::new(Acks::new(context.clone(), freshness.clone(), feed.clone(), metrics.acks));
        let campaigns =
            Arc::new(Campaigns::new(context.clone(), nodes.clone(), usage.clone(), push_work.clone()));
        let activities = Arc::new(Activities {
            context: context.clone(),
            nodes: nodes.clone(),
            publisher: publisher.clone(),
            work: push_work.clone(),
        });
        let push = Arc::new(push::Service {
            context: context.clone(),
            nodes: nodes.clone(),
            publisher: publisher.clone(),
            campaigns: campaigns.clone(),
            quotas: quotas.clone(),
            freshness: freshness.clone(),
            work: push_work.clone(),
            configured: Arc::default(),
            activities: activities.clone(),
            metrics: metrics.push,
            pipeline: OnceLock::new(),
        });
        let shares = Arc::new(Shares {
            context: context.clone(),
            nodes: nodes.clone(),
            sessions: sessions.clone(),
            devices: devices.clone(),
            publisher: publisher.clone(),
            feed,
            metrics: metrics.shares,
        });
        let first_calls =
            Arc::new(FirstCalls::new(context.clone(), nodes.clone(), publisher.clone(), metrics.first_calls));
        let pruner = Pruner { context: context.clone(), pruned: metrics.pruned };

        Arc::new(Self {
            context,
            nodes,
            figures,
            tails,
            freshness,
            quotas,
            usage,
            sessions,
            devices,
            logins,
            seen,
            backpressure,
            items,
            preferences,
            publisher,
            acks,
            campaigns,
            activities,
            shares,
            push,
            first_calls,
            rules,
            push_work,
            pruner,
        })
    }

    /// Runs background tasks until `drain` resolves. Then writes queued acknowledgements, and finishes batches in
    /// flight.
    pub async fn run(self: Arc<Self>, drain: impl Future<Output = ()> + Send) {
        let (drained, draining) = watch::channel(false);
        let watch_drain = async {
            drain.await;
            // The receivers are below.
            let _ = drained.send(true);
        };
        let acks = async {
            tokio::select! {
                () = self.acks.write_until(wait(draining.clone())) => {}
                () = self.pruner.run() => {}
            }
        };
        let seen = self.seen.run(wait(draining.clone()));
        // Records of other nodes are processed until all work of this node is done.
        tokio::select! {
            _ = async { tokio::join!(watch_drain, acks, seen, self.push.run(&draining)) } => {}
            () = cluster::run(&self.nodes, &*self) => {}
            () = self.backpressure.run() => {}
            () = self.freshness.run() => {}
            () = first_call::run(&self.first_calls) => {}
            () = self.items.run() => {}
            () = self.preferences.run() => {}
            () = self.usage.run() => {}
            () = share::run(&self.shares) => {}
        }
        cluster::finish(&self.nodes).await;
    }

    pub fn clock(&self) -> &Clock {
        &self.context.clock
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.context.store
    }

    /// Ends the connections of an app that was deleted, including those to push services.
    pub async fn close_app(&self, app: AppId) {
        self.freshness.app_changed(app);
        self.push.close_app(app);
        self.sessions.close_app(app).await;
    }

    /// Deletes a device and ends its connection.
    pub async fn delete_device(&self, app: AppId, device: &DeviceId) -> Result<(), Error> {
        self.shares.release(app, device).await?;
        self.devices.delete(app, device).await
    }
}

/// Connections: called on shards. The methods never wait, and answer through `reply` on another thread.
impl Delivery {
    /// Reads the next page of a device's backlog, without what the device acknowledged before.
    pub fn backlog(&self, backlog: Backlog, reply: impl FnOnce(Result<BacklogPage, Error>) + Send + 'static) {
        let (store, acks) = (self.store().clone(), self.acks.clone());
        self.work(async move {
            acks.settle(backlog.device).await;
            reply(store.backlog(backlog).await.map_err(Error::from));
        });
    }

    /// Reads the messages of a topic since a position.
    pub fn recover(&self, recover: Recover, reply: impl FnOnce(Result<BacklogPage, Error>) + Send + 'static) {
        let store = self.store().clone();
        self.work(async move { reply(store.recover(recover).await.map_err(Error::from)) });
    }

    /// Runs work of a connection outside its shard. The caller bounds its amount.
    pub fn work(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.context.runtime.spawn(work);
    }

    /// As [`Delivery::work`], until the returned value is dropped.
    pub fn work_while_held(&self, work: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(self.context.runtime.spawn(work))
    }
}

async fn wait(mut draining: watch::Receiver<bool>) {
    let _ = draining.wait_for(|draining| *draining).await;
}

#[async_trait::async_trait]
impl Handler for Delivery {
    fn push_work_added(&self) {
        self.push_work.wake_local();
    }

    fn definitions_changed(&self) {
        self.first_calls.changed_elsewhere();
    }

    fn data_changed(&self, tags: Vec<u64>) {
        self.freshness.changed_elsewhere(tags);
    }

    fn items_reported(&self, report: ItemReport) {
        self.items.queue(report);
    }

    fn preferences_changed(&self, app: AppId, users: Vec<UserId>, devices: Vec<DeviceId>) {
        let users = users.into_iter().map(Preferring::User);
        self.preferences.queue(app, users.chain(devices.into_iter().map(Preferring::Device)));
    }

    fn figures_asked(&self, by: Epoch, apps: Vec<AppId>) {
        if let Some(listener) = self.figures.listener() {
            listener.asked(by, apps);
        }
    }

    fn figures_reported(&self, by: Epoch, report: Bytes) {
        if let Some(listener) = self.figures.listener() {
            listener.reported(by, report);
        }
    }

    fn tail_asked(&self, by: Epoch, tail: Bytes) {
        if let Some(listener) = self.tails.listener() {
            listener.asked(by, tail);
        }
    }

    fn tail_reported(&self, by: Epoch, report: Bytes) {
        if let Some(listener) = self.tails.listener() {
            listener.reported(by, report);
        }
    }

    fn all_data_changed(&self) {
        self.freshness.all_changed();
    }

    async fn reload_credentials(&self, app: AppId) -> Result<(), Error> {
        self.push.reload_credentials(app).await
    }

    async fn reload_changed_credentials(&self) -> Result<(), Error> {
        self.push.reload_changed_credentials().await
    }
}
