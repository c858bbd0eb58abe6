//! What the tasks of the push pipeline share: the components they use, and the state between them.
//!
//! Created by [`super::Service`] when push services are attached, and shared as `Arc<Pipeline>`.

use std::sync::{Arc, OnceLock};

use noroshi_cluster::batches::BatchQueue;

use super::Metrics;
use super::channels::Channels;
use super::compute_slot::ComputeSlots;
use super::config::Config;
use super::configured::Configured;
use super::credential::Credentials;
use super::failure::Failures;
use super::in_flight::InFlight;
use super::leadership::Leadership;
use super::outlet::Outlet;
use super::token_health::{Rate, Realm, TokenHealth};
use super::unwritten::Unwritten;
use super::walk_depth::WalkDepth;
use crate::campaign::Campaigns;
use crate::context::Context;
use crate::freshness::Freshness;
use crate::publish::Publisher;
use crate::push_work::PushWork;
use crate::quota::Quotas;

pub(crate) struct Pipeline {
    pub(crate) context: Arc<Context>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) campaigns: Arc<Campaigns>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) freshness: Arc<Freshness>,
    pub(crate) work: Arc<PushWork>,
    pub(crate) metrics: Metrics,
    pub(crate) config: Config,
    pub(crate) outlet: Arc<dyn Outlet>,
    pub(crate) credentials: Credentials,
    pub(crate) channels: Channels,
    pub(crate) configured: Arc<Configured>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) unwritten: Arc<Unwritten>,
    pub(crate) leadership: Leadership,
    /// The queue between the dispatcher and the senders. Set before anything runs; without it senders take batches from
    /// the store.
    pub(crate) queue: OnceLock<Arc<dyn BatchQueue>>,
    pub(crate) walk_depth: WalkDepth,
    pub(crate) token_health: TokenHealth,
    pub(crate) failures: Failures,
    /// Limits how many batches compute at a time.
    pub(crate) compute: ComputeSlots,
}

impl Pipeline {
    /// Logs and counts a change of the rate of suspect tokens.
    pub(super) fn report_rate(&self, realm: Realm, rate: Rate) {
        let (app, service, environment) = realm;
        let (service, environment) = (service.as_str(), environment.as_str());
        match rate {
            Rate::Alarm { suspects, answers } => tracing::warn!(
                app = app.0,
                service,
                environment,
                suspects,
                answers,
                "too many push tokens are suspect: the credential, its topic or its environment must be wrong, so none is suspended"
            ),
            Rate::Over => {
                tracing::info!(
                    app = app.0,
                    service,
                    environment,
                    "the rate of suspect push tokens is normal again"
                )
            }
            Rate::Normal | Rate::Abnormal => return,
        }
        self.metrics.alarm(realm, !rate.is_normal());
    }
}
