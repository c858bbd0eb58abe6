//! Connects devices: a bounded number of handshakes at a time, a retry a little later after a temporary
//! failure, an immediate end on a permanent one. If the server refuses all connections, the attempts become
//! less frequent, and are given up after a few seconds if no device has ever connected.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{Reasons, Results, Step, add_reasons};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;
use crate::tls::Handshakes;

/// A device whose attempt failed retries after this time.
const RETRY_NS: u64 = 500_000_000;
/// The first pause after the server refused all connections; doubles each time.
const PAUSE_NS: u64 = 125_000_000;
const PAUSE_MAX_NS: u64 = 1_000_000_000;
/// If no device has ever connected by this time, the run is given up.
const GIVE_UP_NS: u64 = 3_000_000_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Connected {
    /// Devices that are connected now.
    pub(crate) devices: usize,
    pub(crate) first_open_ns: u64,
    pub(crate) last_log_in_ns: u64,
    pub(crate) log_in: Latency,
    pub(crate) handshakes: Handshakes,
    /// Failed attempts by reason.
    pub(crate) failed: Reasons,
    /// The permanent failure that ended the attempts.
    pub(crate) fatal: Option<String>,
}

impl Results for Connected {
    fn add(&mut self, other: Self) {
        self.devices += other.devices;
        self.first_open_ns = self.first_open_ns.min(other.first_open_ns);
        self.last_log_in_ns = self.last_log_in_ns.max(other.last_log_in_ns);
        self.log_in.merge(&other.log_in);
        self.handshakes.add(other.handshakes);
        add_reasons(&mut self.failed, other.failed);
        self.fatal = self.fatal.take().or(other.fatal);
    }
}

/// The server refuses everyone: no attempt is made until the pause is over.
#[derive(Debug, Clone, Copy)]
struct Pause {
    since_ns: u64,
    length_ns: u64,
    until_ns: u64,
}

pub(super) struct Connecting {
    devices: usize,
    handshakes_max: usize,
    deadline_ns: u64,
    started_ns: u64,
    /// Devices to connect first: those that were never tried, and those that lost their connection.
    missing: VecDeque<usize>,
    /// Devices to retry, and when.
    retries: VecDeque<(u64, usize)>,
    failed: Reasons,
    fatal: Option<String>,
    pause: Option<Pause>,
    /// The most recent log-in seen so far.
    seen_log_in_ns: u64,
}

impl Connecting {
    pub(super) fn new(engine: &mut Engine, devices: usize, handshakes_max: usize, deadline_ns: u64) -> Self {
        engine.log_in = Latency::default();
        engine.ended.clear();
        engine.reserve(devices);
        Self {
            devices,
            handshakes_max: handshakes_max.max(1),
            deadline_ns,
            started_ns: clock::now_ns(),
            missing: engine.missing_devices(devices).collect(),
            retries: VecDeque::new(),
            failed: Reasons::new(),
            fatal: None,
            pause: None,
            seen_log_in_ns: engine.last_log_in_ns,
        }
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step<Connected> {
        let now_ns = clock::now_ns();
        self.collect_failed(engine, now_ns);
        let is_over = self.fatal.is_some() || now_ns >= self.deadline_ns || self.is_hopeless(engine, now_ns);
        if engine.ready >= self.devices || is_over {
            return Step::Done(Connected {
                devices: engine.ready,
                first_open_ns: self.started_ns,
                last_log_in_ns: engine.last_log_in_ns,
                log_in: std::mem::take(&mut engine.log_in),
                handshakes: std::mem::take(&mut engine.handshakes),
                failed: std::mem::take(&mut self.failed),
                fatal: self.fatal.take(),
            });
        }
        let pause_end_ns = self.pause.map_or(0, |pause| pause.until_ns);
        // An attempt can fail at once, e.g. if nothing listens on this machine.
        while now_ns >= pause_end_ns && engine.opening < self.handshakes_max && engine.ended.is_empty() {
            let Some(number) = self.next_device(now_ns) else { break };
            engine.open(number);
        }
        if !engine.ended.is_empty() {
            return Step::Wait(0); // the attempt failed at once
        }
        let retry_ns = self.retries.front().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        let next_ns = if now_ns < pause_end_ns { pause_end_ns } else { retry_ns };
        Step::Wait(super::soon(self.deadline_ns.min(next_ns)))
    }

    /// No device has ever connected, and all attempts failed the same way for long enough.
    fn is_hopeless(&self, engine: &Engine, now_ns: u64) -> bool {
        let tried_long = self.pause.is_some_and(|pause| now_ns >= pause.since_ns + GIVE_UP_NS);
        tried_long && engine.last_log_in_ns == 0 && self.failed.keys().all(|reason| refuses_everyone(reason))
    }

    fn rest(&mut self, now_ns: u64) {
        let (since_ns, length_ns) = match self.pause {
            Some(pause) if now_ns < pause.until_ns => return, // the attempt began before the pause
            Some(pause) => (pause.since_ns, (pause.length_ns * 2).min(PAUSE_MAX_NS)),
            None => (now_ns, PAUSE_NS),
        };
        self.pause = Some(Pause { since_ns, length_ns, until_ns: now_ns + length_ns });
    }

    fn collect_failed(&mut self, engine: &mut Engine, now_ns: u64) {
        if engine.last_log_in_ns != self.seen_log_in_ns {
            self.seen_log_in_ns = engine.last_log_in_ns;
            self.pause = None;
        }
        for (number, ended) in std::mem::take(&mut engine.ended) {
            if refuses_everyone(&ended.reason) {
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

/// Failures that every device would get: nothing listens there, or the server is draining.
fn refuses_everyone(reason: &str) -> bool {
    matches!(reason, "connection refused" | "HTTP 503 unavailable")
}
