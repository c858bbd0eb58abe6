//! One of several nodes dies: its devices of this worker notice, and come back at the others. Those of other nodes
//! stay where they are; should they lose their connection too, they come back as well, and it is told.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::comeback::{Comeback, Turned};
use super::{Report, Step, take_latency};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;

/// Events that are waited for at most: an end of the task is none.
const LOOK_NS: u64 = 50_000_000;

/// Counts are this worker's share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RehomePlan {
    pub(crate) devices: usize,
    pub(crate) opening_max: usize,
    /// The node that dies, by its place among the homes.
    pub(crate) home: usize,
    /// Nobody tries before: what the disconnect alone does can be seen.
    pub(crate) first_ns: u64,
    pub(crate) deadline_ns: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Rehomed {
    /// Devices that had the node that dies as their home, and connections that ended, also of others.
    pub(crate) at_home: usize,
    pub(crate) lost: usize,
    /// Devices that are connected now, and when the last one was.
    pub(crate) back: usize,
    pub(crate) back_ns: u64,
    pub(crate) log_in: Latency,
    pub(crate) turned: Turned,
    /// What made further attempts pointless.
    pub(crate) fatal: Option<String>,
}

pub(super) struct Rehoming {
    plan: RehomePlan,
    comeback: Comeback,
    at_home: usize,
    /// Devices whose connection ended.
    lost: HashSet<usize>,
    /// The node is dead: it ends once all are back.
    told: bool,
}

impl Rehoming {
    pub(super) fn new(engine: &mut Engine, plan: RehomePlan) -> Self {
        engine.ended.clear(); // they are missing
        engine.log_in = Latency::new();
        let seed = plan.first_ns ^ (engine.partition().index as u64) << 32;
        let mut comeback = Comeback::new(plan.opening_max, seed);
        let lost: HashSet<usize> = engine.missing_devices(plan.devices).collect();
        lost.iter().for_each(|number| comeback.lost(*number, plan.first_ns));
        Self { at_home: engine.ready_at(plan.home), comeback, lost, told: false, plan }
    }

    pub(super) fn end(&mut self) {
        self.told = true;
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step {
        let now_ns = clock::now_ns();
        for (number, ended) in std::mem::take(&mut engine.ended) {
            if self.lost.insert(number) {
                self.comeback.lost(number, now_ns.max(self.plan.first_ns));
            } else {
                self.comeback.failed(number, ended, now_ns);
            }
        }
        let over = now_ns >= self.plan.deadline_ns || self.comeback.fatal.is_some();
        // Who has not noticed yet is still counted as connected.
        let all_back = || engine.ready >= self.plan.devices && engine.ready_at(self.plan.home) == 0;
        if self.told && (over || all_back()) {
            return self.report(engine);
        }
        let wake_ns = self.comeback.step(engine, now_ns);
        // An address that cannot even be tried leaves no event behind.
        let wake_ns = if engine.ended.is_empty() { wake_ns } else { now_ns };
        Step::Wait(wake_ns.min(now_ns + LOOK_NS))
    }

    fn report(&mut self, engine: &mut Engine) -> Step {
        Step::Done(Report::Rehomed(Box::new(Rehomed {
            at_home: self.at_home,
            lost: self.lost.len(),
            back: engine.ready,
            back_ns: engine.last_log_in_ns,
            log_in: take_latency(&mut engine.log_in),
            turned: std::mem::take(&mut self.comeback.turned),
            fatal: self.comeback.fatal.take(),
        })))
    }
}
