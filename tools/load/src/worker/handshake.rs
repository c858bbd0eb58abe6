//! TLS handshakes and nothing behind them: a bounded number at a time, each on a connection of its own that
//! ends as soon as both sides are done.

use serde::{Deserialize, Serialize};

use super::{Reasons, Report, Step, take_latency};
use crate::clock;
use crate::device::HANDSHAKE_DONE;
use crate::engine::Engine;
use crate::stats::Latency;
use crate::tls::Handshakes;

/// Counts are this worker's share.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HandshakePlan {
    pub(crate) count: usize,
    pub(crate) opening_max: usize,
    /// Whether tickets of earlier sessions are used.
    pub(crate) resume: bool,
    pub(crate) deadline_ns: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Shaken {
    pub(crate) first_open_ns: u64,
    pub(crate) last_ns: u64,
    /// From the first packet to the last of the handshake.
    pub(crate) latency: Latency,
    pub(crate) handshakes: Handshakes,
    pub(crate) failed: Reasons,
}

pub(super) struct Shaking {
    plan: HandshakePlan,
    started_ns: u64,
    begun: usize,
    /// Failed ones too.
    ended: usize,
    failed: Reasons,
}

impl Shaking {
    pub(super) fn new(engine: &mut Engine, plan: HandshakePlan) -> Self {
        engine.disconnect();
        engine.log_in = Latency::new();
        engine.handshakes = Handshakes::default();
        if let Some(connector) = &engine.connector {
            connector.offer_tickets(plan.resume);
        }
        Self { plan, started_ns: clock::now_ns(), begun: 0, ended: 0, failed: Reasons::new() }
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step {
        for (_, ended) in engine.ended.drain(..) {
            self.ended += 1;
            if ended.reason != HANDSHAKE_DONE {
                *self.failed.entry(ended.reason).or_default() += 1;
            }
        }
        let now_ns = clock::now_ns();
        if self.ended >= self.plan.count || now_ns >= self.plan.deadline_ns {
            return self.report(engine);
        }
        while self.begun < self.plan.count && engine.opening < self.plan.opening_max.max(1) {
            engine.open_handshake(self.begun);
            self.begun += 1;
        }
        // An address that cannot even be tried leaves no event behind.
        Step::Wait(if engine.ended.is_empty() { super::soon(self.plan.deadline_ns) } else { 0 })
    }

    fn report(&mut self, engine: &mut Engine) -> Step {
        let unanswered = engine.opening as u64;
        if unanswered > 0 {
            self.failed.insert("not over by the deadline".to_owned(), unanswered);
        }
        engine.disconnect();
        if let Some(connector) = &engine.connector {
            connector.offer_tickets(true);
        }
        Step::Done(Report::Shaken(Box::new(Shaken {
            first_open_ns: self.started_ns,
            last_ns: engine.last_log_in_ns,
            latency: take_latency(&mut engine.log_in),
            handshakes: std::mem::take(&mut engine.handshakes),
            failed: std::mem::take(&mut self.failed),
        })))
    }
}
