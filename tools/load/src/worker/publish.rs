//! Publishing to users, some of them connected and some away, while everything that arrives is counted.
//!
//! At a rate the load is open: requests are due at fixed moments whatever the server does, and latency
//! counts from that moment. Without one the load is closed: as many requests as may be in flight, where
//! a request is in flight until it is answered *and* its deliveries have arrived, so that no queue grows
//! behind the answers.

use serde::{Deserialize, Serialize};

use super::{Reasons, Report, Step, add_reasons, drain_ended, take_latency};
use crate::clock;
use crate::engine::Engine;
use crate::http::Request;
use crate::payload::{Draw, When, push_users_body};
use crate::sender::{Answer, Pending};
use crate::stats::Latency;

/// Deliveries that are missing after this long without a single one are lost.
const STALL_NS: u64 = 2_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// Requests per second.
    Rate(f64),
    Max,
}

/// What to publish, and when: three moments of [`clock::now_ns`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) start_ns: u64,
    /// The measured window; what comes before it warms up.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) pace: Pace,
    /// Requests at most.
    pub(crate) in_flight: usize,
    /// Targets of a request that are connected.
    pub(crate) connected: usize,
    /// Targets of a request that are away, out of `away_devices`.
    pub(crate) away: usize,
    pub(crate) away_devices: usize,
    pub(crate) when: When,
    pub(crate) data_bytes: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Published {
    /// Requests answered with success inside the window.
    pub(crate) accepted: u64,
    /// Requests answered with success at any time.
    pub(crate) accepted_ever: u64,
    /// From the moment a request was due to its answer.
    pub(crate) accept: Latency,
    /// Requests that were not accepted, inside the window or not.
    pub(crate) refused: Reasons,
    /// Deliveries inside the window.
    pub(crate) deliveries: u64,
    pub(crate) bytes: u64,
    /// From the moment a request was due to the arrival at each device.
    pub(crate) latency: Latency,
    /// Deliveries that were to come, and those that came since the last report: where the server chooses
    /// the devices, as the floor does, this worker's requests may reach another's, so only the sums over all
    /// workers compare.
    pub(crate) expected_ever: u64,
    pub(crate) deliveries_ever: u64,
    /// Requests that were due and could not even be sent: the rate was too high.
    pub(crate) unsent: u64,
    /// Connections that ended meanwhile.
    pub(crate) disconnected: Reasons,
}

pub(super) struct Publishing {
    plan: Plan,
    connected: Draw,
    away: Draw,
    /// Requests begun, at a rate also the number of the next one.
    begun: u64,
    /// Deliveries that requests so far will cause, on top of what had been seen before; without those that
    /// were given up.
    expected: u64,
    /// What had been seen, and when the number last changed.
    progress: (u64, u64),
    body: Vec<u8>,
    /// After this long without a single delivery, those that are missing are lost.
    patience_ns: u64,
    published: Published,
}

impl Publishing {
    pub(super) fn new(engine: &mut Engine, plan: Plan) -> Self {
        engine.set_senders(plan.in_flight);
        engine.shared.seen.open_window(plan.from_ns..plan.to_ns);
        engine.answers.clear();
        let partition = engine.partition();
        let numbers = engine.ready_devices().map(|number| partition.global(number) as u32);
        let seed = plan.start_ns ^ (partition.index as u64) << 32;
        Self {
            connected: Draw::new(numbers, seed),
            away: Draw::new(0..plan.away_devices as u32, seed.rotate_left(17)),
            begun: 0,
            expected: engine.shared.seen.total,
            progress: (engine.shared.seen.total, plan.start_ns),
            body: Vec::new(),
            patience_ns: STALL_NS,
            published: Published {
                accepted: 0,
                accepted_ever: 0,
                accept: Latency::new(),
                refused: Reasons::new(),
                deliveries: 0,
                bytes: 0,
                latency: Latency::new(),
                expected_ever: 0,
                deliveries_ever: 0,
                unsent: 0,
                disconnected: Reasons::new(),
            },
            plan,
        }
    }

    pub(super) fn with_patience(mut self, patience_ns: u64) -> Self {
        self.patience_ns = patience_ns;
        self
    }

    /// No request is due any more from this moment on; a later moment changes nothing.
    pub(super) fn end(&mut self, to_ns: u64) {
        self.plan.to_ns = self.plan.to_ns.min(to_ns);
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step {
        self.collect_answers(engine);
        let now_ns = clock::now_ns();
        if now_ns < self.plan.start_ns {
            return Step::Wait(self.plan.start_ns);
        }
        self.watch(engine, now_ns);
        if now_ns >= self.plan.to_ns {
            return self.finish(engine);
        }
        while let Some(due_ns) = self.due(engine, now_ns) {
            match engine.idle_sender() {
                Some(sender) => self.send(engine, sender, due_ns),
                None => break, // an answer wakes us
            }
        }
        if !engine.answers.is_empty() {
            return Step::Wait(0); // a server that cannot be reached answers at once
        }
        let next_ns = match self.plan.pace {
            Pace::Rate(_) if engine.idle_sender().is_some() => self.next_due_ns(),
            Pace::Rate(_) | Pace::Max => u64::MAX,
        };
        // Rounded, since each new moment costs a system call.
        let stall_ns = (self.progress.1 + self.patience_ns).next_multiple_of(STALL_NS / 20);
        Step::Wait(super::soon(next_ns.min(self.plan.to_ns).min(stall_ns)))
    }

    /// When the next request goes out at a rate.
    pub(super) fn next_due_ns(&self) -> u64 {
        match self.plan.pace {
            Pace::Rate(per_second) => self.plan.start_ns + (self.begun as f64 * 1e9 / per_second) as u64,
            Pace::Max => self.plan.start_ns,
        }
    }

    /// The moment a request is due that may go out now.
    fn due(&self, engine: &Engine, now_ns: u64) -> Option<u64> {
        match self.plan.pace {
            Pace::Rate(_) => Some(self.next_due_ns()).filter(|due_ns| *due_ns <= now_ns),
            Pace::Max => {
                let outstanding = self.expected.saturating_sub(engine.shared.seen.total);
                let room = (self.plan.in_flight * self.plan.connected) as u64;
                (room == 0 || outstanding < room).then_some(now_ns)
            }
        }
    }

    fn send(&mut self, engine: &mut Engine, sender: usize, due_ns: u64) {
        let connected = self.connected.draw(self.plan.connected);
        let away = self.away.draw(self.plan.away);
        let setup = engine.setup().clone();
        let host = engine.provider().host.clone();
        self.body.clear();
        let targets = (connected, away);
        push_users_body(&mut self.body, &setup.names, targets, self.plan.when, due_ns, self.plan.data_bytes);
        let pending = Pending { due_ns, connected: connected.len() as u64 };
        self.begun += 1;
        self.expected += pending.connected;
        self.published.expected_ever += pending.connected;
        let body = &self.body;
        engine.send(sender, pending, |out| {
            notifications(&setup.api_key).push(out, &host, body);
        });
    }

    fn collect_answers(&mut self, engine: &mut Engine) {
        let window = self.plan.from_ns..self.plan.to_ns;
        for Answer { pending, at_ns, result } in engine.answers.drain(..) {
            match result {
                Ok(()) => {
                    self.published.accepted_ever += 1;
                    if window.contains(&at_ns) {
                        self.published.accepted += 1;
                        self.published.accept.record(pending.due_ns, at_ns);
                    }
                }
                Err(reason) => {
                    *self.published.refused.entry(reason).or_default() += 1;
                    self.expected = self.expected.saturating_sub(pending.connected);
                    self.published.expected_ever -= pending.connected;
                }
            }
        }
    }

    /// Writes off what does not come, so that it does not count as in flight for ever.
    fn watch(&mut self, engine: &mut Engine, now_ns: u64) {
        let seen = engine.shared.seen.total;
        if seen != self.progress.0 || seen >= self.expected {
            self.progress = (seen, now_ns);
        } else if now_ns.saturating_sub(self.progress.1) >= self.patience_ns {
            self.expected = seen;
            self.progress = (seen, now_ns);
        }
    }

    /// Waits for what is still on its way, then reports.
    fn finish(&mut self, engine: &mut Engine) -> Step {
        let outstanding = engine.shared.seen.total < self.expected;
        let unanswered = engine.senders_busy() > 0
            && clock::now_ns() < self.plan.to_ns + self.patience_ns.max(5 * STALL_NS);
        if outstanding || unanswered {
            return Step::Wait(super::soon(clock::now_ns() + STALL_NS / 20));
        }
        if let Pace::Rate(per_second) = self.plan.pace {
            let due = (self.plan.to_ns - self.plan.start_ns) as f64 / 1e9 * per_second;
            self.published.unsent = (due as u64).saturating_sub(self.begun);
        }
        let seen = &mut engine.shared.seen;
        self.published.deliveries = seen.in_window;
        self.published.deliveries_ever = seen.tell();
        self.published.bytes = seen.bytes;
        self.published.latency = take_latency(&mut seen.latency);
        seen.open_window(0..u64::MAX);
        drain_ended(engine, &mut self.published.disconnected);
        Step::Done(Report::Published(Box::new(self.published.clone())))
    }
}

impl Published {
    /// What another worker published at the same time.
    pub(crate) fn add(&mut self, other: Published) {
        self.accepted += other.accepted;
        self.accepted_ever += other.accepted_ever;
        self.accept.merge(&other.accept);
        self.deliveries += other.deliveries;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        self.expected_ever += other.expected_ever;
        self.deliveries_ever += other.deliveries_ever;
        self.unsent += other.unsent;
        add_reasons(&mut self.refused, other.refused);
        add_reasons(&mut self.disconnected, other.disconnected);
    }

    /// Deliveries that never came, of all workers together.
    pub(crate) fn lost(&self) -> u64 {
        self.expected_ever.saturating_sub(self.deliveries_ever)
    }
}

/// The request every notification is published with.
pub(crate) fn notifications(api_key: &str) -> Request<'_> {
    Request { method: "POST", path: "/v1/notifications", key: api_key, content_type: "application/json" }
}
