//! Push: credentials, the queue of push work, and the outcomes of pushes.
//!
//! ```text
//!   publish ──► Store::accept ─┐ (work in the same commit)
//!   collector ──► walks ───────┴─► push queue ──► sender ──► batch ──► Services::send
//!                                       ▲           (lanes, room)  │        │
//!                                       │                          ▼        ▼ answers, as they arrive
//!                                       └── retries ── finisher ◄─ settlement ◄─ answers
//! ```
//!
//! Reading order: [`config`], `pipeline` (what the tasks share), `in_flight` (bounds), `sender` with `take` (takes
//! batches), `batch_tasks`, `batch` (one batch), `recipient` (one push), `answers` with `unwritten` (parts of results),
//! `settlement` with [`retry`] and `token_health` (the meaning of answers), [`record`] (what was sent), `finisher`,
//! `collector`, [`credential`].
//!
//! Broadcast channels: `channels` (what a provider asks for), `broadcaster` (sends what waits for them).
//!
//! Live Activities have a sender of their own: `activity`.
//!
//! Warnings: `configured`. Several nodes: `leadership` (who walks and dispatches), `lease` (who owns a batch), and, with a queue of the
//! cluster, `dispatcher` (store → queue), `batch_codec`, `puller` (queue → sender).
//!
//! Invariants: a batch is finished exactly once, or its unfinished part is taken again after its lease; a slow recipient
//! delays the end of its own batch and nothing else; everything in memory is bounded by [`config::Config`].

mod activity;
mod answers;
mod badge;
mod batch;
mod batch_codec;
mod batch_tasks;
mod broadcaster;
pub mod channels;
mod collector;
mod compute_slot;
pub mod config;
mod configured;
pub mod credential;
mod dispatcher;
mod failure;
mod finisher;
mod in_flight;
mod leadership;
mod lease;
mod metrics;
pub mod outlet;
mod pipeline;
mod publication;
mod puller;
mod recipient;
pub mod record;
pub mod retry;
mod sender;
mod settlement;
mod take;
mod token_health;
mod unwritten;
mod walk_depth;

use std::sync::{Arc, OnceLock};

use noroshi_cluster::batches::BatchQueue;
use noroshi_push::{CredentialStatus, Vault};
use noroshi_types::{AppId, PushService};
use tokio::sync::watch;

use crate::activity::Activities;
use crate::campaign::Campaigns;
use crate::cluster::Nodes;
use crate::context::Context;
use crate::error::Error;
use crate::freshness::Freshness;
use crate::publish::Publisher;
use crate::push_work::PushWork;
use crate::quota::Quotas;

pub use channels::{ChannelSpec, Channels, ListedChannel};
pub use config::Config;
pub use credential::{CredentialView, Rotated, Tested};
pub(crate) use metrics::Metrics;
pub use outlet::Outlet;

use compute_slot::ComputeSlots;
pub(crate) use configured::Configured;
pub use credential::Credentials;
use failure::Failures;
use in_flight::InFlight;
use leadership::Leadership;
use pipeline::Pipeline;
use token_health::TokenHealth;
use walk_depth::WalkDepth;

/// Push work of this node. Without attached push services nothing is sent, and push work stays in the store.
pub struct Service {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) campaigns: Arc<Campaigns>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) freshness: Arc<Freshness>,
    pub(crate) work: Arc<PushWork>,
    pub(crate) configured: Arc<Configured>,
    pub(crate) activities: Arc<Activities>,
    pub(crate) metrics: Metrics,
    /// Set once, before anything runs.
    pub(crate) pipeline: OnceLock<Arc<Pipeline>>,
}

impl Service {
    /// Attaches the push services; `vault` seals their credentials (`None`: the configuration has no key). Call
    /// [`Credentials::load`] next. A second call is ignored.
    pub fn attach(&self, outlet: Arc<dyn Outlet>, vault: Option<Vault>, config: Config) {
        let pipeline = Pipeline {
            in_flight: Arc::new(InFlight::new(config.clone(), self.work.senders.clone())),
            unwritten: Arc::default(),
            leadership: Leadership::new(!config.shared),
            walk_depth: WalkDepth::new(config.ahead_max()),
            publisher: self.publisher.clone(),
            campaigns: self.campaigns.clone(),
            quotas: self.quotas.clone(),
            freshness: self.freshness.clone(),
            metrics: self.metrics.clone(),
            queue: OnceLock::new(),
            token_health: TokenHealth::default(),
            failures: Failures::default(),
            compute: ComputeSlots::new(),
            context: self.context.clone(),
            work: self.work.clone(),
            credentials: Credentials::new(self, outlet.clone(), vault),
            channels: Channels {
                context: self.context.clone(),
                nodes: self.nodes.clone(),
                work: self.work.clone(),
                quotas: self.quotas.clone(),
                outlet: outlet.clone(),
            },
            configured: self.configured.clone(),
            config,
            outlet,
        };
        let _ = self.pipeline.set(Arc::new(pipeline));
    }

    /// Puts a queue between the dispatcher and the senders of all nodes. Call it after [`Service::attach`], on every
    /// node with the same queue. A second call is ignored.
    pub fn attach_batches(&self, queue: Arc<dyn BatchQueue>) {
        if let Some(pipeline) = self.pipeline.get() {
            let _ = pipeline.queue.set(queue);
        }
    }

    /// Fails while no push services are attached.
    pub fn credentials(&self) -> Result<&Credentials, Error> {
        self.pipeline.get().map(|pipeline| &pipeline.credentials).ok_or(Error::NoVault)
    }

    /// Fails while no push services are attached.
    pub fn channels(&self) -> Result<&Channels, Error> {
        self.pipeline.get().map(|pipeline| &pipeline.channels).ok_or(Error::NoVault)
    }

    /// The credentials of the app, by id, also without push services.
    pub async fn list_credentials(&self, app: AppId) -> Result<Vec<CredentialView>, Error> {
        credential::list(&*self.context.store, app).await
    }

    /// The state of the app's credentials on this node. `None`: this node does not send.
    pub fn credential_status(&self, app: AppId) -> Option<Vec<CredentialStatus>> {
        let pipeline = self.pipeline.get().filter(|pipeline| pipeline.config.sends)?;
        Some(pipeline.outlet.status(app))
    }

    /// The push services that the app has credentials for, for warnings: it may miss a change of the last seconds on another
    /// node.
    pub async fn configured_services(&self, app: AppId) -> Result<Vec<PushService>, Error> {
        self.configured.services(&*self.context.store, app, self.context.now()).await
    }

    /// Another node changed the credentials of the app.
    pub(crate) async fn reload_credentials(&self, app: AppId) -> Result<(), Error> {
        match self.pipeline.get() {
            Some(pipeline) => pipeline.credentials.reload(app).await,
            None => Ok(()),
        }
    }

    /// Reads the credentials of every app whose credentials changed since the last call.
    pub(crate) async fn reload_changed_credentials(&self) -> Result<(), Error> {
        match self.pipeline.get() {
            Some(pipeline) => pipeline.credentials.reload_changed().await,
            None => Ok(()),
        }
    }

    /// Closes the connections to push services of an app that was deleted.
    pub(crate) fn close_app(&self, app: AppId) {
        if let Some(pipeline) = self.pipeline.get() {
            pipeline.outlet.set_credentials(app, Vec::new());
        }
    }

    /// Walks, dispatches and sends until `draining` is true, then finishes batches in flight within
    /// [`Config::drain`]. A node that does not send for its cell does nothing.
    pub(crate) async fn run(&self, draining: &watch::Receiver<bool>) {
        let Some(pipeline) = self.pipeline.get().filter(|pipeline| pipeline.config.sends) else { return };
        let parts = || (pipeline.clone(), draining.clone());
        let ((collect, w1), (dispatch, w2), (send, w3), (cast, w4), (send_activities, w5)) =
            (parts(), parts(), parts(), parts(), parts());
        tokio::join!(
            pipeline.leadership.run(&pipeline.context, &pipeline.metrics.leader, draining.clone()),
            collector::run(collect, w1),
            dispatcher::run(dispatch, w2),
            sender::run(send, w3),
            broadcaster::run(cast, w4),
            activity::run(send_activities, self.activities.clone(), w5),
        );
    }
}
