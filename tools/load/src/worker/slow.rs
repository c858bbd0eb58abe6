//! Devices that take what is sent to them slowly or not at all, beside healthy ones that are waited for.
//!
//! This worker's first `healthy` devices take everything at once and are counted; the `silent` behind them
//! read nothing, the rest a byte at a time. At the end all of these take what is left, which shows whether
//! the server had closed them.

use serde::{Deserialize, Serialize};

use super::{Reasons, Report, Step, take_latency};
use crate::clock;
use crate::engine::Engine;
use crate::stats::Latency;

/// Between two bytes of a device that takes them one by one.
const SIP_NS: u64 = 10_000_000;
/// How long slow devices go on taking what is left.
const WAKING_NS: u64 = 2_000_000_000;
const WAKING_BYTES: usize = 64 << 10;

/// Counts are this worker's share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SlowPlan {
    pub(crate) healthy: usize,
    pub(crate) silent: usize,
    pub(crate) sipping: usize,
    /// Messages that every healthy device is to have since it connected.
    pub(crate) each: u32,
    /// Slow ones stay slow at least until here.
    pub(crate) until_ns: u64,
    /// Healthy ones are waited for at most until here.
    pub(crate) deadline_ns: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// Of healthy devices.
    pub(crate) deliveries: u64,
    pub(crate) bytes: u64,
    pub(crate) latency: Latency,
    /// Why connections of healthy devices ended, and of slow ones.
    pub(crate) healthy_ended: Reasons,
    pub(crate) slow_ended: Reasons,
}

enum Phase {
    Watching,
    /// Slow devices take what is left, until then.
    Waking(u64),
}

pub(super) struct Watching {
    plan: SlowPlan,
    phase: Phase,
    sip_ns: u64,
    healthy_ended: Reasons,
    slow_ended: Reasons,
}

impl Watching {
    pub(super) fn new(engine: &mut Engine, plan: SlowPlan) -> Self {
        let slow = plan.healthy..plan.healthy + plan.silent + plan.sipping;
        slow.for_each(|number| engine.slow_down(number));
        let at_goal = engine.devices_with(plan.each);
        // The window is open since the last report: messages may arrive before the command does.
        engine.shared.seen.set_goal(plan.each, at_goal);
        engine.ended.clear();
        Self {
            plan,
            phase: Phase::Watching,
            sip_ns: clock::now_ns(),
            healthy_ended: Reasons::new(),
            slow_ended: Reasons::new(),
        }
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step {
        self.collect_ended(engine);
        let now_ns = clock::now_ns();
        match self.phase {
            Phase::Watching => {
                let lost = self.healthy_ended.values().sum::<u64>() as usize;
                let missing = self.plan.healthy.saturating_sub(engine.shared.seen.at_goal + lost);
                let over = now_ns >= self.plan.until_ns && missing == 0;
                if over || now_ns >= self.plan.deadline_ns {
                    self.phase = Phase::Waking(now_ns + WAKING_NS);
                    return Step::Wait(now_ns);
                }
                let first = self.plan.healthy + self.plan.silent;
                self.sip(engine, now_ns, first..first + self.plan.sipping, 1);
                let end_ns = if missing == 0 { self.plan.until_ns } else { self.plan.deadline_ns };
                Step::Wait(super::soon(end_ns.min(self.next_ns(self.plan.sipping))))
            }
            Phase::Waking(until_ns) if now_ns < until_ns && self.slow_left() > 0 => {
                let slow = self.plan.healthy..self.plan.healthy + self.plan.silent + self.plan.sipping;
                self.sip(engine, now_ns, slow, WAKING_BYTES);
                Step::Wait(super::soon(until_ns.min(self.sip_ns)))
            }
            Phase::Waking(_) => self.report(engine),
        }
    }

    /// Slow devices that may still be there.
    fn slow_left(&self) -> usize {
        let ended = self.slow_ended.values().sum::<u64>() as usize;
        (self.plan.silent + self.plan.sipping).saturating_sub(ended)
    }

    fn next_ns(&self, sipping: usize) -> u64 {
        if sipping == 0 { u64::MAX } else { self.sip_ns }
    }

    fn sip(&mut self, engine: &mut Engine, now_ns: u64, numbers: std::ops::Range<usize>, bytes: usize) {
        if now_ns < self.sip_ns {
            return;
        }
        self.sip_ns = now_ns + SIP_NS;
        numbers.for_each(|number| engine.sip(number, bytes));
        self.collect_ended(engine);
    }

    fn collect_ended(&mut self, engine: &mut Engine) {
        for (number, ended) in engine.ended.drain(..) {
            let healthy = number < self.plan.healthy;
            let reasons = if healthy { &mut self.healthy_ended } else { &mut self.slow_ended };
            *reasons.entry(ended.reason).or_default() += 1;
        }
    }

    fn report(&mut self, engine: &mut Engine) -> Step {
        let seen = &mut engine.shared.seen;
        let watched = Watched {
            deliveries: seen.in_window,
            bytes: seen.bytes,
            latency: take_latency(&mut seen.latency),
            healthy_ended: std::mem::take(&mut self.healthy_ended),
            slow_ended: std::mem::take(&mut self.slow_ended),
        };
        seen.open_window(0..u64::MAX);
        Step::Done(Report::Watched(Box::new(watched)))
    }
}
