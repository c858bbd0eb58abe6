//! The parts of an app's first call that are the same for all devices: experiments and maintenance notices.
//!
//! ```text
//!   definitions: store ─► shared snapshot ─► Current of an app at a moment ─► caller
//!                                └────────► notices ─► topic `$maintenance`
//! ```
//!
//! Reading order: [`shared`], `notices`. Whether data of the device itself is still current is decided by `freshness`.
//!
//! How old an answer may be: on the node that changed a definition, not at all; on others, as long as a bus message
//! takes and, if one was lost, ten seconds.

pub mod shared;

mod notices;

use std::sync::Arc;
use std::time::Duration;

use noroshi_events::Event;
use noroshi_events::event::Exposed;
use noroshi_store::{DefinitionKind, Device};
use noroshi_telemetry::metrics;
use noroshi_types::{AppId, Label};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

pub use crate::freshness::{Mark, Tags, tags_of};
pub use shared::{Current, ShownNotice};

use crate::cluster::Nodes;
use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::context::Context;
use crate::error::Error;
use crate::publish::Publisher;
use shared::Shared;

/// How often definitions are read again without a report of a change.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// The pause before another attempt.
const PAUSE: Duration = Duration::from_secs(1);
/// Experiments archived in one commit.
const ARCHIVE_ROWS: usize = 500;

metrics! {
    pub(crate) struct Metrics {
        exposures: Counter = "Variants that devices reported as shown",
    }
}

pub struct FirstCalls {
    context: Arc<Context>,
    nodes: Arc<Nodes>,
    publisher: Arc<Publisher>,
    metrics: Metrics,
    shared: Shared,
    /// Another node changed definitions.
    changed: Notify,
    /// Definitions changed on any node: notices may be due.
    notices: Notify,
}

impl FirstCalls {
    pub(crate) fn new(
        context: Arc<Context>,
        nodes: Arc<Nodes>,
        publisher: Arc<Publisher>,
        metrics: Metrics,
    ) -> Self {
        let (shared, changed, notices) = (Shared::default(), Notify::new(), Notify::new());
        Self { context, nodes, publisher, metrics, shared, changed, notices }
    }

    /// The current values that all devices of an app share.
    pub fn current(&self, app: AppId) -> Arc<Current> {
        self.shared.current(app, self.context.now())
    }

    /// Reads experiments and notices of all apps again. One of many concurrent callers reads for all that called before
    /// it started.
    pub async fn reload(&self) -> Result<(), Error> {
        let tickets = &self.shared.tickets;
        let wanted = tickets.want();
        let _in_order = self.shared.reloading.lock().await;
        let Some(ticket) = tickets.begin(wanted) else { return Ok(()) };
        let live = self.context.store.live_definitions(None).await?;
        if self.shared.replace(live, self.context.now()) {
            self.notices.notify_one();
        }
        tickets.end(ticket);
        Ok(())
    }

    /// An experiment or a notice was created, changed or archived here. This node knows the change when this returns,
    /// the others soon after.
    pub async fn definitions_changed(&self) -> Result<(), Error> {
        let reloaded = self.reload().await;
        self.nodes.send(To::All, Record::DefinitionsChanged);
        reloaded
    }

    /// Another node changed definitions.
    pub(crate) fn changed_elsewhere(&self) {
        self.changed.notify_one();
    }

    /// The device reports that it showed these experiments. Returns its variants of those that it takes part in.
    pub fn exposed<'a>(&self, device: &Device, experiments: &'a [Label]) -> Vec<(&'a Label, Label)> {
        let current = self.current(device.app);
        let variant =
            |experiment: &'a Label| Some((experiment, current.variant_of(experiment, device)?.name.clone()));
        let exposed: Vec<_> = experiments.iter().filter_map(variant).collect();
        for (experiment, variant) in &exposed {
            self.metrics.exposures.inc();
            self.context.outcomes.events().emit(self.context.now(), || {
                let (device_id, user) = (device.id.clone(), device.user.clone());
                let (experiment, variant) = (experiment.as_str().into(), variant.as_str().into());
                Event::Exposed(Box::new(Exposed { app: device.app, device_id, user, experiment, variant }))
            });
        }
        exposed
    }

    /// Archives experiments that are over, so that they are no longer read.
    async fn archive(&self) {
        let now = self.context.now();
        if !self.shared.has_ended(DefinitionKind::Experiment, now) {
            return;
        }
        match self.context.store.archive_ended(DefinitionKind::Experiment, now, ARCHIVE_ROWS).await {
            Ok(0) => {}
            Ok(archived) => {
                tracing::info!(archived, "archived experiments that are over");
                self.changed.notify_one();
            }
            Err(error) => {
                tracing::warn!(%error, "could not archive experiments that are over; retrying");
            }
        }
    }

    async fn reload_forever(&self) {
        loop {
            let wait = match self.reload().await {
                Ok(()) => RELOAD_INTERVAL,
                Err(error) => {
                    tracing::warn!(%error, "could not read experiments and notices; retrying");
                    PAUSE
                }
            };
            self.archive().await;
            let _ = tokio::time::timeout(wait, self.changed.notified()).await;
        }
    }
}

/// Reads definitions again and publishes notices, until it is dropped.
pub(crate) async fn run(first_calls: &FirstCalls) {
    tokio::join!(first_calls.reload_forever(), notices::run(first_calls));
}
