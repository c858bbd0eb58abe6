//! Bringing devices up: a bounded number of handshakes at a time, a second attempt a little later for
//! what may pass, an end at once for what cannot. A server that is not there, or that takes nobody, is
//! tried ever more seldom, and given up soon if it has never taken anyone.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Reasons, Report, Step, take_latency};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;
use crate::tls::Handshakes;

/// A device that was turned away comes back after this long.
const RETRY_NS: u64 = 500_000_000;
/// The first rest after an attempt that nobody took, doubled by each further one.
const REST_NS: u64 = 125_000_000;
const REST_MAX_NS: u64 = 1_000_000_000;
/// A server that is just about to listen does so within this time.
const HOPE_NS: u64 = 3_000_000_000;

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

/// Nobody is let in, whoever comes: no attempt is made until the rest is over.
#[derive(Debug, Clone, Copy)]
struct Resting {
    since_ns: u64,
    rest_ns: u64,
    until_ns: u64,
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
    resting: Option<Resting>,
    /// The last log-in that was seen here.
    seen_log_in_ns: u64,
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
            resting: None,
            seen_log_in_ns: engine.last_log_in_ns,
        }
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step {
        let now_ns = clock::now_ns();
        self.collect_failed(engine, now_ns);
        let is_over = self.fatal.is_some() || now_ns >= self.deadline_ns || self.is_hopeless(engine, now_ns);
        if engine.ready >= self.devices || is_over {
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
        let rest_ns = self.resting.map_or(0, |resting| resting.until_ns);
        // An attempt can be over at once, as where nobody listens on this machine.
        while now_ns >= rest_ns && engine.opening < self.handshakes_max && engine.ended.is_empty() {
            let Some(number) = self.next_device(now_ns) else { break };
            engine.open(number);
        }
        if !engine.ended.is_empty() {
            return Step::Wait(0); // an address that cannot even be tried
        }
        let retry_ns = self.retries.front().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        let next_ns = if now_ns < rest_ns { rest_ns } else { retry_ns };
        Step::Wait(super::soon(self.deadline_ns.min(next_ns)))
    }

    /// No device was ever let in, and everyone who came was told the same for long enough.
    fn is_hopeless(&self, engine: &Engine, now_ns: u64) -> bool {
        let tried_long = self.resting.is_some_and(|resting| now_ns >= resting.since_ns + HOPE_NS);
        tried_long && engine.last_log_in_ns == 0 && self.failed.keys().all(|reason| lets_nobody_in(reason))
    }

    fn rest(&mut self, now_ns: u64) {
        let (since_ns, rest_ns) = match self.resting {
            Some(resting) if now_ns < resting.until_ns => return, // begun before the rest
            Some(resting) => (resting.since_ns, (resting.rest_ns * 2).min(REST_MAX_NS)),
            None => (now_ns, REST_NS),
        };
        self.resting = Some(Resting { since_ns, rest_ns, until_ns: now_ns + rest_ns });
    }

    fn collect_failed(&mut self, engine: &mut Engine, now_ns: u64) {
        if engine.last_log_in_ns != self.seen_log_in_ns {
            self.seen_log_in_ns = engine.last_log_in_ns;
            self.resting = None;
        }
        for (number, ended) in std::mem::take(&mut engine.ended) {
            if lets_nobody_in(&ended.reason) {
                self.rest(now_ns);
            }
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

/// Whoever comes is told this: nothing listens there, or it is draining.
fn lets_nobody_in(reason: &str) -> bool {
    matches!(reason, "connection refused" | "HTTP 503 unavailable")
}
