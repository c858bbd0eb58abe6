//! Publishes to connected and offline users and counts all deliveries.
//!
//! With a rate the load is open: requests are due at fixed times regardless of the server, and latency is
//! measured from the due time. Without one the load is closed: a fixed number of requests is in flight, and a
//! request counts as in flight until it is answered *and* its deliveries have arrived, so that no queue
//! builds up behind the answers.

use serde::{Deserialize, Serialize};

use super::{Reasons, Results, Step, add_reasons, drain_ended};
use crate::clock;
use crate::engine::Engine;
use crate::http::Request;
use crate::payload::{Draw, When, push_users_body};
use crate::sender::{Answer, Pending};
use crate::stats::Latency;

/// After this long without any delivery, missing deliveries are counted as lost.
const STALL_NS: u64 = 2_000_000_000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum Pace {
    /// Requests per second.
    Rate(f64),
    /// A request is in progress until its answer and all its deliveries have arrived.
    #[default]
    Max,
    /// A request is in progress until its answer has arrived: providers that send as fast as they are answered.
    Answered,
}

/// What to publish, and when. Times are those of [`clock::now_ns`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) start_ns: u64,
    /// The measured window; everything before it is warm-up.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// The number of requests, after which the window ends; `None`: as many as the time allows.
    pub(crate) requests: Option<usize>,
    pub(crate) pace: Pace,
    /// Maximum number of requests in flight.
    pub(crate) in_flight: usize,
    /// Connected targets per request.
    pub(crate) connected: usize,
    /// Offline targets per request, chosen from `away_devices`.
    pub(crate) away: usize,
    pub(crate) away_devices: usize,
    pub(crate) when: When,
    pub(crate) data_bytes: usize,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Published {
    /// Requests answered with success within the window.
    pub(crate) accepted: u64,
    /// All requests answered with success.
    pub(crate) accepted_ever: u64,
    /// When the last request was answered.
    pub(crate) answered_ns: u64,
    /// From a request's due time to its answer.
    pub(crate) accept: Latency,
    /// Failed requests, within the window or not.
    pub(crate) refused: Reasons,
    /// Those answered within the window.
    pub(crate) rejected: u64,
    /// From their due times to their answers.
    pub(crate) reject: Latency,
    /// Deliveries within the window.
    pub(crate) deliveries: u64,
    pub(crate) bytes: u64,
    /// From a request's due time to the arrival at each device.
    pub(crate) latency: Latency,
    /// Expected deliveries, and deliveries since the last report. If the server chooses the devices, as in
    /// the floor measurement, requests of this worker may reach devices of another one, so only the sums over
    /// all workers are comparable.
    pub(crate) expected_ever: u64,
    pub(crate) deliveries_ever: u64,
    /// Requests that were due but could not be sent: the rate was too high.
    pub(crate) unsent: u64,
    /// Connections closed during the run, by reason.
    pub(crate) disconnected: Reasons,
}

pub(super) struct Publishing {
    plan: Plan,
    connected: Draw,
    away: Draw,
    /// Requests started; with a rate also the number of the next one.
    begun: u64,
    /// The value of `seen` that the requests so far should lead to, without deliveries that were given up.
    expected: u64,
    /// The last value of `seen`, and when it last changed.
    progress: (u64, u64),
    body: Vec<u8>,
    /// After this long without any delivery, missing deliveries are counted as lost.
    stall_timeout_ns: u64,
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
            stall_timeout_ns: STALL_NS,
            published: Published::default(),
            plan,
        }
    }

    pub(super) fn with_stall_timeout(mut self, stall_timeout_ns: u64) -> Self {
        self.stall_timeout_ns = stall_timeout_ns;
        self
    }

    /// Sets the time after which no request is due; a later time than the current one has no effect.
    pub(super) fn end(&mut self, to_ns: u64) {
        self.plan.to_ns = self.plan.to_ns.min(to_ns);
    }

    pub(super) fn step(&mut self, engine: &mut Engine) -> Step<Published> {
        self.collect_answers(engine);
        let now_ns = clock::now_ns();
        if now_ns < self.plan.start_ns {
            return Step::Wait(self.plan.start_ns);
        }
        self.give_up_missing(engine, now_ns);
        if now_ns >= self.plan.to_ns || self.all_answered(engine) {
            return self.finish(engine);
        }
        while let Some(due_ns) = self.due(engine, now_ns) {
            match engine.idle_sender() {
                Some(sender) => self.send(engine, sender, due_ns),
                None => break, // an answer wakes this worker
            }
        }
        if !engine.answers.is_empty() {
            return Step::Wait(0); // if the server is unreachable, the request fails at once
        }
        let next_ns = match self.plan.pace {
            Pace::Rate(_) if engine.idle_sender().is_some() => self.next_due_ns(),
            Pace::Rate(_) | Pace::Max | Pace::Answered => u64::MAX,
        };
        // Rounded, because each change of the timer costs a system call.
        let stall_ns = (self.progress.1 + self.stall_timeout_ns).next_multiple_of(STALL_NS / 20);
        Step::Wait(super::soon(next_ns.min(self.plan.to_ns).min(stall_ns)))
    }

    /// When the next request is due, given a rate.
    pub(super) fn next_due_ns(&self) -> u64 {
        match self.plan.pace {
            Pace::Rate(per_second) => self.plan.start_ns + (self.begun as f64 * 1e9 / per_second) as u64,
            Pace::Max | Pace::Answered => self.plan.start_ns,
        }
    }

    /// Whether the requests were limited in number, and every one has its answer.
    fn all_answered(&self, engine: &Engine) -> bool {
        self.has_begun_all() && engine.senders_busy() == 0
    }

    fn has_begun_all(&self) -> bool {
        self.plan.requests.is_some_and(|requests| self.begun >= requests as u64)
    }

    /// The due time of a request that may be sent now.
    fn due(&self, engine: &Engine, now_ns: u64) -> Option<u64> {
        if self.has_begun_all() {
            return None;
        }
        match self.plan.pace {
            Pace::Rate(_) => Some(self.next_due_ns()).filter(|due_ns| *due_ns <= now_ns),
            Pace::Answered => Some(now_ns),
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
            Request::notification(&setup.api_key).push(out, &host, body);
        });
    }

    fn collect_answers(&mut self, engine: &mut Engine) {
        let window = self.plan.from_ns..self.plan.to_ns;
        for Answer { pending, at_ns, result } in engine.answers.drain(..) {
            match result {
                Ok(()) => {
                    self.published.accepted_ever += 1;
                    self.published.answered_ns = at_ns;
                    if window.contains(&at_ns) {
                        self.published.accepted += 1;
                        self.published.accept.record(pending.due_ns, at_ns);
                    }
                }
                Err(reason) => {
                    if window.contains(&at_ns) {
                        self.published.rejected += 1;
                        self.published.reject.record(pending.due_ns, at_ns);
                    }
                    *self.published.refused.entry(reason).or_default() += 1;
                    self.expected = self.expected.saturating_sub(pending.connected);
                    self.published.expected_ever -= pending.connected;
                }
            }
        }
    }

    /// Gives up missing deliveries, so that their requests do not stay in flight.
    fn give_up_missing(&mut self, engine: &mut Engine, now_ns: u64) {
        let seen = engine.shared.seen.total;
        if seen != self.progress.0 || seen >= self.expected {
            self.progress = (seen, now_ns);
        } else if now_ns.saturating_sub(self.progress.1) >= self.stall_timeout_ns {
            self.expected = seen;
            self.progress = (seen, now_ns);
        }
    }

    /// Waits for outstanding deliveries, then reports.
    fn finish(&mut self, engine: &mut Engine) -> Step<Published> {
        let outstanding = engine.shared.seen.total < self.expected;
        let unanswered = engine.senders_busy() > 0
            && clock::now_ns() < self.plan.to_ns + self.stall_timeout_ns.max(5 * STALL_NS);
        if outstanding || unanswered {
            return Step::Wait(super::soon(clock::now_ns() + STALL_NS / 20));
        }
        if let Pace::Rate(per_second) = self.plan.pace {
            let due = (self.plan.to_ns - self.plan.start_ns) as f64 / 1e9 * per_second;
            self.published.unsent = (due as u64).saturating_sub(self.begun);
        }
        let seen = &mut engine.shared.seen;
        self.published.deliveries = seen.in_window;
        self.published.deliveries_ever = seen.take_unreported();
        self.published.bytes = seen.bytes;
        self.published.latency = std::mem::take(&mut seen.latency);
        seen.open_window(0..u64::MAX);
        drain_ended(engine, &mut self.published.disconnected);
        Step::Done(self.published.clone())
    }
}

impl Results for Published {
    fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.accepted_ever += other.accepted_ever;
        self.answered_ns = self.answered_ns.max(other.answered_ns);
        self.accept.merge(&other.accept);
        self.rejected += other.rejected;
        self.reject.merge(&other.reject);
        self.deliveries += other.deliveries;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        self.expected_ever += other.expected_ever;
        self.deliveries_ever += other.deliveries_ever;
        self.unsent += other.unsent;
        add_reasons(&mut self.refused, other.refused);
        add_reasons(&mut self.disconnected, other.disconnected);
    }
}

impl Published {
    /// Deliveries that never arrived, of all workers together.
    pub(crate) fn lost(&self) -> u64 {
        self.expected_ever.saturating_sub(self.deliveries_ever)
    }
}
