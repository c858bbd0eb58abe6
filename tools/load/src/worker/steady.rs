//! Publishes at a rate to devices that stay connected while another worker causes a reconnect storm.
//! Deliveries before and during the storm are reported separately.
//!
//! It continues until it is asked to end, and then until it has sent every request due by that time: the
//! measurement includes requests that the storm delayed.

use serde::{Deserialize, Serialize};

use super::publish::{Plan, Published, Publishing};
use super::{Reasons, Step, add_reasons, drain_ended};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;

/// Deliveries may take longer during a storm than on an idle server; after this long they are counted as
/// lost.
const STALL_TIMEOUT_NS: u64 = 30_000_000_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SteadyPlan {
    /// Its end is set later by [`Steady::end`].
    pub(crate) publish: Plan,
    pub(crate) storm_ns: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SteadyResults {
    pub(crate) before: Latency,
    pub(crate) during: Latency,
    pub(crate) deliveries_during: u64,
    /// The whole run; its latency is split into `before` and `during`.
    pub(crate) published: Published,
    /// Connections closed although they should have stayed.
    pub(crate) ended: Reasons,
}

pub(super) struct Steady {
    storm_ns: u64,
    publishing: Publishing,
    /// `Some` once the storm has started.
    before: Option<Latency>,
    ended: Reasons,
    /// The deadline, once it was asked to end.
    end_ns: u64,
}

impl Steady {
    pub(super) fn new(engine: &mut Engine, plan: SteadyPlan) -> Self {
        let publish = Plan { to_ns: u64::MAX, ..plan.publish };
        Self {
            storm_ns: plan.storm_ns,
            publishing: Publishing::new(engine, publish).with_stall_timeout(STALL_TIMEOUT_NS),
            before: None,
            ended: Reasons::new(),
            end_ns: u64::MAX,
        }
    }

    /// Called when the storm is over.
    pub(super) fn end(&mut self) {
        self.end_ns = clock::now_ns() + STALL_TIMEOUT_NS;
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step<SteadyResults> {
        drain_ended(engine, &mut self.ended);
        let now_ns = clock::now_ns();
        if self.before.is_none() && now_ns >= self.storm_ns {
            self.before = Some(std::mem::take(&mut engine.shared.seen.latency));
            engine.shared.seen.open_window(now_ns..u64::MAX);
        }
        let has_end = self.end_ns != u64::MAX;
        if has_end && (self.publishing.next_due_ns() > now_ns || now_ns >= self.end_ns) {
            self.publishing.end(now_ns);
        }
        match self.publishing.step(engine) {
            Step::Done(published) => Step::Done(self.results(published)),
            Step::Wait(wake_ns) if self.before.is_none() => Step::Wait(wake_ns.min(self.storm_ns)),
            Step::Wait(wake_ns) => Step::Wait(wake_ns),
        }
    }

    fn results(&mut self, published: Published) -> SteadyResults {
        let mut ended = std::mem::take(&mut self.ended);
        add_reasons(&mut ended, published.disconnected.clone());
        SteadyResults {
            before: self.before.take().unwrap_or_default(),
            during: published.latency.clone(),
            deliveries_during: published.deliveries,
            published: Published { latency: Latency::default(), disconnected: Reasons::new(), ..published },
            ended,
        }
    }
}
