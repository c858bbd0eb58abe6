//! TLS handshakes only: a bounded number at a time, each on its own connection, which is closed as soon as
//! both sides have finished.

use serde::{Deserialize, Serialize};

use super::{Reasons, Results, Step, add_reasons};
use crate::clock;
use crate::connection::HANDSHAKE_DONE;
use crate::engine::Engine;
use crate::stats::Latency;
use crate::tls::Handshakes;

/// Counts are those of this worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HandshakePlan {
    pub(crate) count: usize,
    pub(crate) opening_max: usize,
    /// Whether to resume sessions with tickets from earlier handshakes.
    pub(crate) resume: bool,
    pub(crate) deadline_ns: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HandshakeResults {
    pub(crate) first_open_ns: u64,
    pub(crate) last_ns: u64,
    /// From the first to the last packet of the handshake.
    pub(crate) latency: Latency,
    pub(crate) handshakes: Handshakes,
    pub(crate) failed: Reasons,
}

impl Results for HandshakeResults {
    fn add(&mut self, other: Self) {
        self.first_open_ns = self.first_open_ns.min(other.first_open_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        self.latency.merge(&other.latency);
        self.handshakes.add(other.handshakes);
        add_reasons(&mut self.failed, other.failed);
    }
}

pub(super) struct Handshaking {
    plan: HandshakePlan,
    started_ns: u64,
    begun: usize,
    /// Including failed ones.
    ended: usize,
    failed: Reasons,
}

impl Handshaking {
    pub(super) fn new(engine: &mut Engine, plan: HandshakePlan) -> Self {
        engine.disconnect();
        engine.log_in = Latency::default();
        engine.handshakes = Handshakes::default();
        if let Some(connector) = &engine.connector {
            connector.offer_tickets(plan.resume);
        }
        Self { plan, started_ns: clock::now_ns(), begun: 0, ended: 0, failed: Reasons::new() }
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step<HandshakeResults> {
        for (_, ended) in engine.ended.drain(..) {
            self.ended += 1;
            if ended.reason != HANDSHAKE_DONE {
                *self.failed.entry(ended.reason).or_default() += 1;
            }
        }
        let now_ns = clock::now_ns();
        if self.ended >= self.plan.count || now_ns >= self.plan.deadline_ns {
            return Step::Done(self.results(engine));
        }
        while self.begun < self.plan.count && engine.opening < self.plan.opening_max.max(1) {
            engine.open_handshake(self.begun);
            self.begun += 1;
        }
        // An attempt that fails at once produces no event.
        Step::Wait(if engine.ended.is_empty() { super::soon(self.plan.deadline_ns) } else { 0 })
    }

    fn results(&mut self, engine: &mut Engine) -> HandshakeResults {
        let unanswered = engine.opening as u64;
        if unanswered > 0 {
            self.failed.insert("not over by the deadline".to_owned(), unanswered);
        }
        engine.disconnect();
        if let Some(connector) = &engine.connector {
            connector.offer_tickets(true);
        }
        HandshakeResults {
            first_open_ns: self.started_ns,
            last_ns: engine.last_log_in_ns,
            latency: std::mem::take(&mut engine.log_in),
            handshakes: std::mem::take(&mut engine.handshakes),
            failed: std::mem::take(&mut self.failed),
        }
    }
}
