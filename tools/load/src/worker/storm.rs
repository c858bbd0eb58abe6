//! A reconnect storm: all devices of this worker lose their connections at the same moment and reconnect.

use serde::{Deserialize, Serialize};

use super::reconnect::{Reconnects, Recovery};
use super::{Results, Step};
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
    /// By the deadline.
    pub(crate) recovery: Recovery,
    pub(crate) handshakes: Handshakes,
}

impl Results for StormResults {
    fn add(&mut self, other: Self) {
        self.recovery.add(other.recovery);
        self.handshakes.add(other.handshakes);
    }
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

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step<StormResults> {
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
            let recovery = self.reconnects.take_recovery(engine);
            return Step::Done(StormResults { recovery, handshakes: std::mem::take(&mut engine.handshakes) });
        }
        Step::Wait(self.reconnects.step(engine, now_ns).min(self.plan.deadline_ns))
    }

    fn begin(&mut self, engine: &mut Engine, now_ns: u64) {
        self.begun = true;
        engine.disconnect();
        engine.log_in = Latency::default();
        engine.handshakes = Handshakes::default();
        (0..self.plan.devices).for_each(|number| self.reconnects.lost(number, now_ns));
    }
}
