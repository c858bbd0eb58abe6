//! One of several nodes fails: its devices of this worker notice and reconnect to the others. Devices of
//! other nodes stay connected; if one of them loses its connection as well, it reconnects too and is counted.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::reconnect::{Reconnects, Recovery};
use super::{Results, Step};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;

/// Maximum wait between checks, since the end of the task arrives without an event.
const CHECK_NS: u64 = 50_000_000;

/// Counts are those of this worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RehomePlan {
    pub(crate) devices: usize,
    pub(crate) opening_max: usize,
    /// The node that fails, as an index into the homes.
    pub(crate) home: usize,
    /// No device reconnects before this time, so that the effect of the disconnect alone is visible.
    pub(crate) first_ns: u64,
    pub(crate) deadline_ns: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Rehomed {
    /// Devices whose home is the failed node, and all connections that were lost, including those of other
    /// nodes.
    pub(crate) at_home: usize,
    pub(crate) lost: usize,
    pub(crate) recovery: Recovery,
}

impl Results for Rehomed {
    fn add(&mut self, other: Self) {
        self.at_home += other.at_home;
        self.lost += other.lost;
        self.recovery.add(other.recovery);
    }
}

pub(super) struct Rehoming {
    plan: RehomePlan,
    reconnects: Reconnects,
    at_home: usize,
    /// Devices whose connection ended.
    lost: HashSet<usize>,
    /// The node has failed: the task ends once all devices are back.
    node_failed: bool,
}

impl Rehoming {
    pub(super) fn new(engine: &mut Engine, plan: RehomePlan) -> Self {
        engine.ended.clear(); // their devices are in `lost`
        engine.log_in = Latency::default();
        let seed = plan.first_ns ^ (engine.partition().index as u64) << 32;
        let mut reconnects = Reconnects::new(plan.opening_max, seed);
        let lost: HashSet<usize> = engine.missing_devices(plan.devices).collect();
        lost.iter().for_each(|number| reconnects.lost(*number, plan.first_ns));
        Self { at_home: engine.ready_at(plan.home), reconnects, lost, node_failed: false, plan }
    }

    pub(super) fn end(&mut self) {
        self.node_failed = true;
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step<Rehomed> {
        let now_ns = clock::now_ns();
        for (number, ended) in std::mem::take(&mut engine.ended) {
            if self.lost.insert(number) {
                // A draining node assigns each device its own delay.
                let after_ns = ended.after_ms.unwrap_or(0).saturating_mul(1_000_000);
                self.reconnects.lost(number, (now_ns + after_ns).max(self.plan.first_ns));
            } else {
                self.reconnects.failed(number, ended, now_ns);
            }
        }
        let over = now_ns >= self.plan.deadline_ns || self.reconnects.fatal.is_some();
        // A device that has not noticed yet still counts as connected.
        let all_back = || engine.ready >= self.plan.devices && engine.ready_at(self.plan.home) == 0;
        if self.node_failed && (over || all_back()) {
            let recovery = self.reconnects.take_recovery(engine);
            return Step::Done(Rehomed { at_home: self.at_home, lost: self.lost.len(), recovery });
        }
        Step::Wait(self.reconnects.step(engine, now_ns).min(now_ns + CHECK_NS))
    }
}
