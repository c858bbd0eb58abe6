//! A reconnect storm: while requests to devices that stay connected go on at their rate, all others lose
//! their connection at one moment and come back. What is measured before that moment and from it on is
//! kept apart.
//!
//! Invariant: this worker's first `steady` devices stay, and they alone are published to.

use serde::{Deserialize, Serialize};

use super::comeback::{Comeback, Turned};
use super::publish::{Plan, Published, Publishing};
use super::{Reasons, Report, Step, take_latency};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;
use crate::tls::Handshakes;

/// A storm may hold deliveries up for longer than an idle server would; what takes longer is lost.
const PATIENCE_NS: u64 = 30_000_000_000;

/// Counts are this worker's share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StormPlan {
    /// Begins before the storm; its end is that of the storm.
    pub(crate) publish: Plan,
    pub(crate) steady: usize,
    /// Those that come back.
    pub(crate) others: usize,
    pub(crate) opening_max: usize,
    pub(crate) drop_ns: u64,
    pub(crate) deadline_ns: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stormed {
    /// Devices that came back by the deadline, and when the last one did.
    pub(crate) back: usize,
    pub(crate) back_ns: u64,
    pub(crate) log_in: Latency,
    pub(crate) handshakes: Handshakes,
    pub(crate) turned: Turned,
    pub(crate) fatal: Option<String>,
    /// Delivery latency before and during the storm.
    pub(crate) before: Latency,
    pub(crate) during: Latency,
    pub(crate) deliveries_during: u64,
    /// Of the whole; its latency is `before` and `during`.
    pub(crate) published: Published,
    /// Connections that were to stay.
    pub(crate) steady_ended: Reasons,
}

enum Phase {
    Before,
    During,
    /// All are back, or it is too late.
    After,
}

pub(super) struct Storm {
    plan: StormPlan,
    phase: Phase,
    publishing: Publishing,
    comeback: Comeback,
    back: usize,
    back_ns: u64,
    before: Latency,
    steady_ended: Reasons,
}

impl Storm {
    pub(super) fn new(engine: &mut Engine, mut plan: StormPlan) -> Self {
        plan.publish.to_ns = u64::MAX; // set when the storm is over
        let publishing = Publishing::new(engine, plan.publish.clone())
            .among(engine, plan.steady)
            .with_patience(PATIENCE_NS);
        let seed = plan.drop_ns ^ (engine.partition().index as u64) << 32;
        Self {
            comeback: Comeback::new(plan.opening_max, seed),
            phase: Phase::Before,
            publishing,
            back: 0,
            back_ns: 0,
            before: Latency::new(),
            steady_ended: Reasons::new(),
            plan,
        }
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step {
        let now_ns = clock::now_ns();
        self.collect_ended(engine, now_ns);
        let wake_ns = match self.phase {
            Phase::Before if now_ns < self.plan.drop_ns => self.plan.drop_ns,
            Phase::Before => {
                self.begin(engine, now_ns);
                now_ns
            }
            Phase::During => self.go_on(engine, now_ns),
            Phase::After => u64::MAX,
        };
        match self.publishing.step(engine) {
            Step::Done(Report::Published(published)) => self.report(engine, *published),
            Step::Done(report) => Step::Done(report),
            Step::Wait(next_ns) => Step::Wait(next_ns.min(wake_ns)),
        }
    }

    fn begin(&mut self, engine: &mut Engine, now_ns: u64) {
        self.before = take_latency(&mut engine.shared.seen.latency);
        engine.shared.seen.open_window(now_ns..u64::MAX);
        engine.log_in = Latency::new();
        let _ = std::mem::take(&mut engine.handshakes); // of before
        for number in self.plan.steady..self.plan.steady + self.plan.others {
            engine.remove(number);
            self.comeback.lost(number, now_ns);
        }
        self.phase = Phase::During;
    }

    fn go_on(&mut self, engine: &mut Engine, now_ns: u64) -> u64 {
        let all = self.plan.steady + self.plan.others;
        if engine.ready < all && now_ns < self.plan.deadline_ns && self.comeback.fatal.is_none() {
            let wake_ns = self.comeback.step(engine, now_ns);
            // An address that cannot even be tried leaves no event behind.
            let wake_ns = if engine.ended.is_empty() { wake_ns } else { now_ns };
            return wake_ns.min(self.plan.deadline_ns);
        }
        self.back = engine.ready.saturating_sub(self.plan.steady);
        self.back_ns = engine.last_log_in_ns;
        self.publishing.end(now_ns); // what is on its way still counts
        self.phase = Phase::After;
        now_ns
    }

    fn collect_ended(&mut self, engine: &mut Engine, now_ns: u64) {
        for (number, ended) in engine.ended.drain(..) {
            if number < self.plan.steady {
                *self.steady_ended.entry(ended.reason).or_default() += 1;
                self.comeback.lost(number, now_ns);
            } else if !matches!(self.phase, Phase::Before) {
                self.comeback.failed(number, ended, now_ns); // before, its turn comes with all others
            }
        }
    }

    fn report(&mut self, engine: &mut Engine, published: Published) -> Step {
        Step::Done(Report::Stormed(Box::new(Stormed {
            back: self.back,
            back_ns: self.back_ns,
            log_in: take_latency(&mut engine.log_in),
            handshakes: std::mem::take(&mut engine.handshakes),
            turned: std::mem::take(&mut self.comeback.turned),
            fatal: self.comeback.fatal.take(),
            before: take_latency(&mut self.before),
            during: published.latency.clone(),
            deliveries_during: published.deliveries,
            published: Published { latency: Latency::new(), ..published },
            steady_ended: std::mem::take(&mut self.steady_ended),
        })))
    }
}
