//! Bringing devices up: a bounded number of handshakes at a time, a second attempt a little later for
//! what may pass, an end at once for what cannot.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Reasons, Report, Step, take_latency};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;
use crate::tls::Handshakes;

/// A device that was turned away comes back after this long.
const RETRY_NS: u64 = 500_000_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Connected {
    /// Devices that are connected now.
    pub(crate) devices: usize,
    pub(crate) first_open_ns: u64,
    pub(crate) last_log_in_ns: u64,
    pub(crate) log_in: Latency,
    pub(crate) handshakes: Handshakes,
    /// Attempts that failed.
    pub(crate) failed: Reasons,
    /// The cause that made another attempt pointless.
    pub(crate) fatal: Option<String>,
}

pub(super) struct Connecting {
    devices: usize,
    handshakes_max: usize,
    deadline_ns: u64,
    started_ns: u64,
    /// Devices that were not tried yet: new ones, and those that were lost since they were brought up.
    missing: VecDeque<usize>,
    /// Devices to try again, and when.
    retries: VecDeque<(u64, usize)>,
    failed: Reasons,
    fatal: Option<String>,
}

impl Connecting {
    pub(super) fn new(engine: &mut Engine, devices: usize, handshakes_max: usize, deadline_ns: u64) -> Self {
        engine.log_in = Latency::new();
        engine.ended.clear();
        Self {
            devices,
            handshakes_max: handshakes_max.max(1),
            deadline_ns,
            started_ns: clock::now_ns(),
            missing: engine.missing_devices(devices).collect(),
            retries: VecDeque::new(),
            failed: Reasons::new(),
            fatal: None,
        }
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step {
        let now_ns = clock::now_ns();
        self.collect_failed(engine, now_ns);
        if engine.ready >= self.devices || self.fatal.is_some() || now_ns >= self.deadline_ns {
            return Step::Done(Report::Connected(Connected {
                devices: engine.ready,
                first_open_ns: self.started_ns,
                last_log_in_ns: engine.last_log_in_ns,
                log_in: take_latency(&mut engine.log_in),
                handshakes: std::mem::take(&mut engine.handshakes),
                failed: std::mem::take(&mut self.failed),
                fatal: self.fatal.take(),
            }));
        }
        while engine.opening < self.handshakes_max {
            let Some(number) = self.next_device(now_ns) else { break };
            engine.open(number);
        }
        if !engine.ended.is_empty() {
            return Step::Wait(0); // an address that cannot even be tried
        }
        let retry_ns = self.retries.front().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        Step::Wait(super::soon(self.deadline_ns.min(retry_ns)))
    }

    fn collect_failed(&mut self, engine: &mut Engine, now_ns: u64) {
        for (number, ended) in engine.ended.drain(..) {
            if ended.retry {
                self.retries.push_back((now_ns + RETRY_NS, number));
            } else {
                self.fatal.get_or_insert_with(|| ended.reason.clone());
            }
            *self.failed.entry(ended.reason).or_default() += 1;
        }
    }

    fn next_device(&mut self, now_ns: u64) -> Option<usize> {
        if self.retries.front().is_some_and(|(at_ns, _)| *at_ns <= now_ns) {
            return self.retries.pop_front().map(|(_, number)| number);
        }
        self.missing.pop_front()
    }
}
