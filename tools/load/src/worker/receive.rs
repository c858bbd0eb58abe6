//! Waits until every device of this worker has received a number of messages since it connected.

use serde::{Deserialize, Serialize};

use super::{Reasons, Results, Step, add_reasons, drain_ended};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Received {
    /// Messages since the last report.
    pub(crate) deliveries: u64,
    pub(crate) bytes: u64,
    pub(crate) latency: Latency,
    /// When the last one arrived.
    pub(crate) last_ns: u64,
    /// Messages that had not arrived at the deadline.
    pub(crate) missing_devices: usize,
    /// Connections closed during the run, by reason.
    pub(crate) disconnected: Reasons,
}

impl Results for Received {
    fn add(&mut self, other: Self) {
        self.deliveries += other.deliveries;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.missing_devices += other.missing_devices;
        add_reasons(&mut self.disconnected, other.disconnected);
    }
}

pub(super) struct Receiving {
    deadline_ns: u64,
}

impl Receiving {
    pub(super) fn new(engine: &mut Engine, each: u32, deadline_ns: u64) -> Self {
        // Messages may arrive before the command does, so counts start when a device connects.
        let at_goal = match each {
            0 => engine.ready,
            each => engine.devices_with(each),
        };
        engine.shared.seen.set_goal(each, at_goal);
        Self { deadline_ns }
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step<Received> {
        let missing_devices = engine.ready.saturating_sub(engine.shared.seen.at_goal);
        if missing_devices > 0 && clock::now_ns() < self.deadline_ns {
            return Step::Wait(self.deadline_ns);
        }
        let seen = &mut engine.shared.seen;
        seen.take_unreported();
        let mut received = Received {
            deliveries: seen.in_window,
            bytes: seen.bytes,
            latency: std::mem::take(&mut seen.latency),
            last_ns: seen.last_ns,
            missing_devices,
            disconnected: Reasons::new(),
        };
        seen.open_window(0..u64::MAX);
        drain_ended(engine, &mut received.disconnected);
        Step::Done(received)
    }
}
