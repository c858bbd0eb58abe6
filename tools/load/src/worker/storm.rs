//! A reconnect storm: all devices of this worker lose their connections at the same moment and reconnect.

use serde::{Deserialize, Serialize};

use super::reconnect::{FailedAttempts, Reconnects};
use super::{Report, Step, take_latency};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;
use crate::tls::Handshakes;

/// Counts are those of this worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StormPlan {
    pub(crate) devices: usize,
    pub(crate) opening_max: usize,
    pub(crate) storm_ns: u64,
    pub(crate) deadline_ns: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StormResults {
    /// Devices that reconnected by the deadline, and when the last one did.
    pub(crate) back: usize,
    pub(crate) back_ns: u64,
    pub(crate) log_in: Latency,
    pub(crate) handshakes: Handshakes,
    pub(crate) failed_attempts: FailedAttempts,
    /// The permanent failure that ended the attempts.
    pub(crate) fatal: Option<String>,
}

pub(super) struct Storm {
    plan: StormPlan,
    begun: bool,
    reconnects: Reconnects,
}

impl Storm {
    pub(super) fn new(engine: &Engine, plan: StormPlan) -> Self {
        let seed = plan.storm_ns ^ (engine.partition().index as u64) << 32;
        Self { reconnects: Reconnects::new(plan.opening_max, seed), begun: false, plan }
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step {
        let now_ns = clock::now_ns();
        if !self.begun {
            if now_ns < self.plan.storm_ns {
                return Step::Wait(self.plan.storm_ns);
            }
            self.begin(engine, now_ns);
        }
        for (number, ended) in engine.ended.drain(..) {
            self.reconnects.failed(number, ended, now_ns);
        }
        let all = engine.ready >= self.plan.devices;
        if all || now_ns >= self.plan.deadline_ns || self.reconnects.fatal.is_some() {
            return self.report(engine);
        }
        let wake_ns = self.reconnects.step(engine, now_ns);
        // An attempt that fails at once produces no event.
        let wake_ns = if engine.ended.is_empty() { wake_ns } else { now_ns };
        Step::Wait(wake_ns.min(self.plan.deadline_ns))
    }

    fn begin(&mut self, engine: &mut Engine, now_ns: u64) {
        self.begun = true;
        engine.disconnect();
        engine.log_in = Latency::new();
        engine.handshakes = Handshakes::default();
        (0..self.plan.devices).for_each(|number| self.reconnects.lost(number, now_ns));
    }

    fn report(&mut self, engine: &mut Engine) -> Step {
        Step::Done(Report::StormResults(Box::new(StormResults {
            back: engine.ready,
            back_ns: engine.last_log_in_ns,
            log_in: take_latency(&mut engine.log_in),
            handshakes: std::mem::take(&mut engine.handshakes),
            failed_attempts: std::mem::take(&mut self.reconnects.failed_attempts),
            fatal: self.reconnects.fatal.take(),
        })))
    }
}
