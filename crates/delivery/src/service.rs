//! The components of a node: assembled in one place, and their background tasks.
//!
//! [`Service::new`] builds each component from those below it. No component names [`crate::Delivery`] or another one
//! that is built after it. Records of other nodes reach the components above the cluster through [`Handler`].
//!
//! At the drain no new work starts: queued confirmations are written, batches in flight get
//! [`crate::push::Config::drain`], and unfinished ones are sent again after the next start.

use std::sync::{Arc, OnceLock};

use noroshi_store::Store;
use noroshi_types::AppId;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::ack::Acks;
use crate::campaign::Campaigns;
use crate::clock::Clock;
use crate::cluster::{self, Handler, Nodes};
use crate::context::Context;
use crate::devices::Devices;
use crate::error::Error;
use crate::first_call::{self, FirstCalls};
use crate::freshness::Freshness;
use crate::login::Logins;
use crate::metrics::Metrics;
use crate::outcomes::Outcomes;
use crate::prune::Pruner;
use crate::publish::Publisher;
use crate::push;
use crate::push_work::PushWork;
use crate::quota::{DeviceAdmission, PublishAdmission, Quotas, Usage};
use crate::rules::Rules;
use crate::sessions::Sessions;
use crate::share::{self, Shares};
use crate::share_feed::ShareFeed;

pub(crate) struct Service {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) freshness: Arc<Freshness>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) publish_admission: Arc<PublishAdmission>,
    pub(crate) device_admission: Arc<DeviceAdmission>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) logins: Arc<Logins>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) acks: Arc<Acks>,
    pub(crate) campaigns: Arc<Campaigns>,
    pub(crate) shares: Arc<Shares>,
    pub(crate) push: Arc<push::Service>,
    pub(crate) first_calls: Arc<FirstCalls>,
    pub(crate) rules: Rules,
    push_work: Arc<PushWork>,
    pruner: Pruner,
}

impl Service {
    /// Builds the components in the order of their layers.
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock, metrics: Metrics, runtime: Handle) -> Self {
        let outcomes = Outcomes::new(store.clone(), clock.clone(), metrics.outcomes);
        let context = Arc::new(Context::new(store, clock, outcomes, runtime));

        // Other nodes, and signals between components.
        let feed = Arc::new(ShareFeed::new(metrics.shares.dropped.clone()));
        let nodes = Arc::new(Nodes::new(context.clone(), feed.clone(), metrics.cluster));
        let freshness = Arc::new(Freshness::new(nodes.clone()));
        let push_work = Arc::new(PushWork::new(nodes.clone()));

        // What apps may use.
        let rules = Rules::new(context.clone(), metrics.rules);
        let quotas = Arc::new(Quotas::new(metrics.quota));
        let usage = Arc::new(Usage::new(context.clone(), quotas.clone()));
        let publish_admission = Arc::new(PublishAdmission::new(context.clone(), usage.clone()));
        let device_admission = Arc::new(DeviceAdmission::new(context.clone(), usage.clone()));

        // Devices and their connections.
        let sessions = Arc::new(Sessions::new(context.clone(), nodes.clone(), freshness.clone()));
        let devices = Arc::new(Devices::new(
            context.clone(),
            freshness.clone(),
            sessions.clone(),
            device_admission.clone(),
        ));
        let logins = Arc::new(Logins::new(
            context.clone(),
            nodes.clone(),
            freshness.clone(),
            quotas.clone(),
            device_admission.clone(),
        ));

        // Messages.
        let publisher = Arc::new(Publisher {
            context: context.clone(),
            nodes: nodes.clone(),
            freshness: freshness.clone(),
            admission: publish_admission.clone(),
            feed: feed.clone(),
            push_work: push_work.clone(),
            metrics: metrics.publish,
        });
        let acks = Arc::new(Acks::new(context.clone(), freshness.clone(), feed.clone(), metrics.acks));
        let campaigns =
            Arc::new(Campaigns::new(context.clone(), publish_admission.clone(), push_work.clone()));
        let push = Arc::new(push::Service {
            context: context.clone(),
            nodes: nodes.clone(),
            publisher: publisher.clone(),
            campaigns: campaigns.clone(),
            quotas: quotas.clone(),
            freshness: freshness.clone(),
            work: push_work.clone(),
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
        let pruner = Pruner::new(context.clone(), metrics.pruned);

        Self {
            context,
            nodes,
            freshness,
            quotas,
            usage,
            publish_admission,
            device_admission,
            sessions,
            devices,
            logins,
            publisher,
            acks,
            campaigns,
            shares,
            push,
            first_calls,
            rules,
            push_work,
            pruner,
        }
    }

    /// Runs background tasks until `drain` resolves. Then writes queued confirmations, and finishes batches in flight.
    pub(crate) async fn run(&self, drain: impl Future<Output = ()> + Send) {
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
        // Records of other nodes are processed until all work of this node is done.
        tokio::select! {
            _ = async { tokio::join!(watch_drain, acks, self.push.run(&draining)) } => {}
            () = cluster::run(&self.nodes, self) => {}
            () = self.freshness.run() => {}
            () = first_call::run(&self.first_calls) => {}
            () = self.usage.run() => {}
            () = share::run(&self.shares) => {}
        }
        cluster::finish(&self.nodes).await;
    }
}

async fn wait(mut draining: watch::Receiver<bool>) {
    let _ = draining.wait_for(|draining| *draining).await;
}

#[async_trait::async_trait]
impl Handler for Service {
    fn push_work_added(&self) {
        self.push_work.wake_local();
    }

    fn definitions_changed(&self) {
        self.first_calls.changed_elsewhere();
    }

    fn data_changed(&self, tags: Vec<u64>) {
        self.freshness.changed_elsewhere(tags);
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
