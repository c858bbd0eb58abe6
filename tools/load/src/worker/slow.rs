//! Devices that read slowly or not at all, next to healthy ones.
//!
//! The first `healthy` devices of this worker read everything at once and are measured; the next `silent`
//! ones read nothing, the rest one byte at a time. At the end all slow devices read the rest, which shows
//! whether the server had closed their connections.

use serde::{Deserialize, Serialize};

use super::{Reasons, Results, Step, add_reasons};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;

/// Time between two bytes of a device that reads byte by byte.
const READ_INTERVAL_NS: u64 = 10_000_000;
/// How long slow devices read the remaining bytes.
const DRAIN_NS: u64 = 2_000_000_000;
const DRAIN_BYTES: usize = 64 << 10;

/// Counts are those of this worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SlowPlan {
    pub(crate) healthy: usize,
    pub(crate) silent: usize,
    pub(crate) trickling: usize,
    /// Messages that every healthy device should receive after it connected.
    pub(crate) each: u32,
    /// Slow devices stay slow at least until this time.
    pub(crate) until_ns: u64,
    /// The latest time to wait for healthy devices.
    pub(crate) deadline_ns: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SlowResults {
    /// Of healthy devices.
    pub(crate) deliveries: u64,
    pub(crate) bytes: u64,
    pub(crate) latency: Latency,
    /// Why connections of healthy and of slow devices were closed.
    pub(crate) healthy_ended: Reasons,
    pub(crate) slow_ended: Reasons,
}

impl Results for SlowResults {
    fn add(&mut self, other: Self) {
        self.deliveries += other.deliveries;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        add_reasons(&mut self.healthy_ended, other.healthy_ended);
        add_reasons(&mut self.slow_ended, other.slow_ended);
    }
}

enum Phase {
    Watching,
    /// Slow devices read the remaining bytes until this time.
    Draining(u64),
}

pub(super) struct Watching {
    plan: SlowPlan,
    phase: Phase,
    next_read_ns: u64,
    healthy_ended: Reasons,
    slow_ended: Reasons,
}

impl Watching {
    pub(super) fn new(engine: &mut Engine, plan: SlowPlan) -> Self {
        let slow = plan.healthy..plan.healthy + plan.silent + plan.trickling;
        slow.for_each(|number| engine.slow_down(number));
        let at_goal = engine.devices_with(plan.each);
        // The window has been open since the last report, because messages may arrive before the command
        // does.
        engine.shared.seen.set_goal(plan.each, at_goal);
        engine.ended.clear();
        Self {
            plan,
            phase: Phase::Watching,
            next_read_ns: clock::now_ns(),
            healthy_ended: Reasons::new(),
            slow_ended: Reasons::new(),
        }
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step<SlowResults> {
        self.collect_ended(engine);
        let now_ns = clock::now_ns();
        match self.phase {
            Phase::Watching => {
                let lost = self.healthy_ended.values().sum::<u64>() as usize;
                let missing = self.plan.healthy.saturating_sub(engine.shared.seen.at_goal + lost);
                let over = now_ns >= self.plan.until_ns && missing == 0;
                if over || now_ns >= self.plan.deadline_ns {
                    self.phase = Phase::Draining(now_ns + DRAIN_NS);
                    return Step::Wait(now_ns);
                }
                let first = self.plan.healthy + self.plan.silent;
                self.read_bytes(engine, now_ns, first..first + self.plan.trickling, 1);
                let end_ns = if missing == 0 { self.plan.until_ns } else { self.plan.deadline_ns };
                Step::Wait(super::soon(end_ns.min(self.next_ns(self.plan.trickling))))
            }
            Phase::Draining(until_ns) if now_ns < until_ns && self.slow_connected() > 0 => {
                let slow = self.plan.healthy..self.plan.healthy + self.plan.silent + self.plan.trickling;
                self.read_bytes(engine, now_ns, slow, DRAIN_BYTES);
                Step::Wait(super::soon(until_ns.min(self.next_read_ns)))
            }
            Phase::Draining(_) => Step::Done(self.results(engine)),
        }
    }

    /// Slow devices that may still be connected.
    fn slow_connected(&self) -> usize {
        let ended = self.slow_ended.values().sum::<u64>() as usize;
        (self.plan.silent + self.plan.trickling).saturating_sub(ended)
    }

    fn next_ns(&self, trickling: usize) -> u64 {
        if trickling == 0 { u64::MAX } else { self.next_read_ns }
    }

    fn read_bytes(
        &mut self,
        engine: &mut Engine,
        now_ns: u64,
        numbers: std::ops::Range<usize>,
        bytes: usize,
    ) {
        if now_ns < self.next_read_ns {
            return;
        }
        self.next_read_ns = now_ns + READ_INTERVAL_NS;
        numbers.for_each(|number| engine.read_bytes(number, bytes));
        self.collect_ended(engine);
    }

    fn collect_ended(&mut self, engine: &mut Engine) {
        for (number, ended) in engine.ended.drain(..) {
            let healthy = number < self.plan.healthy;
            let reasons = if healthy { &mut self.healthy_ended } else { &mut self.slow_ended };
            *reasons.entry(ended.reason).or_default() += 1;
        }
    }

    fn results(&mut self, engine: &mut Engine) -> SlowResults {
        let seen = &mut engine.shared.seen;
        let watched = SlowResults {
            deliveries: seen.in_window,
            bytes: seen.bytes,
            latency: std::mem::take(&mut seen.latency),
            healthy_ended: std::mem::take(&mut self.healthy_ended),
            slow_ended: std::mem::take(&mut self.slow_ended),
        };
        seen.open_window(0..u64::MAX);
        watched
    }
}
