//! Waits until every device of this worker has received a number of messages since it connected.

use serde::{Deserialize, Serialize};

use super::{Reasons, Report, Step, drain_ended, take_latency};
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

/// `None`: all connections were just closed, there is nothing to wait for.
pub(super) struct Receiving(Option<u64>);

impl Receiving {
    pub(super) fn new(engine: &mut Engine, each: u32, deadline_ns: u64) -> Self {
        // Messages may arrive before the command does, so counts start when a device connects.
        let at_goal = engine.devices_with(each);
        engine.shared.seen.set_goal(each, at_goal);
        Self(Some(deadline_ns))
    }

    pub(super) fn nothing() -> Self {
        Self(None)
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step {
        let Some(deadline_ns) = self.0 else { return Step::Done(Report::Disconnected) };
        let missing_devices = engine.ready.saturating_sub(engine.shared.seen.at_goal);
        if missing_devices > 0 && clock::now_ns() < deadline_ns {
            return Step::Wait(deadline_ns);
        }
        let seen = &mut engine.shared.seen;
        seen.take_unreported();
        let mut received = Received {
            deliveries: seen.in_window,
            bytes: seen.bytes,
            latency: take_latency(&mut seen.latency),
            last_ns: seen.last_ns,
            missing_devices,
            disconnected: Reasons::new(),
        };
        seen.open_window(0..u64::MAX);
        drain_ended(engine, &mut received.disconnected);
        Step::Done(Report::Received(Box::new(received)))
    }
}
