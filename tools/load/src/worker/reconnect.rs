//! Devices that lost their connection reconnect like a well-behaved client: at once the first time, then at
//! the server's time plus jitter; without a hint from the server, with exponential backoff. An attempt
//! without response times out and counts as broken.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{Reasons, add_reasons, show_reasons};
use crate::connection::Ended;
use crate::engine::Engine;
use crate::stats::Latency;
use crate::{Error, clock};

/// Attempts started per step, so that events are handled in between.
const OPENS_PER_STEP: usize = 256;
/// The first pause without hint, doubled after each further failure.
const PAUSE_NS: u64 = 500_000_000;
const PAUSE_MAX_NS: u64 = 30_000_000_000;
/// Some clients wait less, none much longer.
const ANSWER_TIMEOUT_NS: u64 = 20_000_000_000;

/// Counts of failed attempts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FailedAttempts {
    /// With a reconnect delay: `Retry-After` before the WebSocket, or `after_ms` within.
    pub(crate) retry_after: u64,
    pub(crate) close_frame: u64,
    /// Without a reconnect delay.
    pub(crate) broken: u64,
    pub(crate) reasons: Reasons,
}

impl FailedAttempts {
    fn add(&mut self, other: FailedAttempts) {
        self.retry_after += other.retry_after;
        self.close_frame += other.close_frame;
        self.broken += other.broken;
        add_reasons(&mut self.reasons, other.reasons);
    }

    fn count(&mut self, ended: Ended) {
        match ended.after_ms {
            Some(_) if ended.reason.starts_with("HTTP") => self.retry_after += 1,
            Some(_) => self.close_frame += 1,
            None => self.broken += 1,
        }
        *self.reasons.entry(ended.reason).or_default() += 1;
    }
}

/// How devices reconnected.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Recovery {
    /// Devices that are connected now, and when the last one connected.
    pub(crate) back: usize,
    pub(crate) back_ns: u64,
    pub(crate) log_in: Latency,
    pub(crate) failed_attempts: FailedAttempts,
    /// The permanent failure that ended the attempts.
    pub(crate) fatal: Option<String>,
}

impl Recovery {
    pub(super) fn add(&mut self, other: Recovery) {
        self.back += other.back;
        self.back_ns = self.back_ns.max(other.back_ns);
        self.log_in.merge(&other.log_in);
        self.failed_attempts.add(other.failed_attempts);
        self.fatal = self.fatal.take().or(other.fatal);
    }

    /// Fails unless `wanted` devices are back.
    pub(crate) fn check(&self, wanted: usize, since_ns: u64) -> Result<(), Error> {
        if self.back >= wanted {
            return Ok(());
        }
        let fatal = self.fatal.as_ref().map(|reason| format!("Further attempts are useless: {reason}. "));
        let failed = show_reasons(&self.failed_attempts.reasons);
        Err(Error::NotConnected {
            wanted,
            connected: self.back,
            seconds: clock::now_ns().saturating_sub(since_ns) as f64 / 1e9,
            reasons: format!("{}Failed attempts: {failed}. ", fatal.unwrap_or_default()),
            advice: "Use --patience to allow more time".to_owned(),
        })
    }
}

pub(super) struct Reconnects {
    opening_max: usize,
    /// Devices and the times of their next attempts.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// Attempts in progress: timeout, device, and attempt number.
    in_progress: VecDeque<(u64, usize, u64)>,
    /// Consecutive failures, for devices that had any.
    failures: HashMap<usize, u32>,
    /// xorshift64: jitter needs to be spread, not unpredictable.
    state: u64,
    failed_attempts: FailedAttempts,
    /// The cause that makes further attempts of a device useless.
    pub(super) fatal: Option<String>,
}

impl Reconnects {
    pub(super) fn new(opening_max: usize, seed: u64) -> Self {
        Self {
            opening_max: opening_max.max(1),
            due: BinaryHeap::new(),
            in_progress: VecDeque::new(),
            failures: HashMap::new(),
            state: seed | 1,
            failed_attempts: FailedAttempts::default(),
            fatal: None,
        }
    }

    /// Schedules a device that lost its connection immediately.
    pub(super) fn lost(&mut self, number: usize, now_ns: u64) {
        self.due.push(Reverse((now_ns, number)));
    }

    /// Handles a failed attempt.
    pub(super) fn failed(&mut self, number: usize, ended: Ended, now_ns: u64) {
        if !ended.retry {
            self.fatal.get_or_insert_with(|| ended.reason.clone());
            self.failed_attempts.count(ended);
            return;
        }
        let failures = self.failures.entry(number).or_default();
        *failures += 1;
        let pause_ns = match ended.after_ms {
            Some(ms) => {
                let told_ns = ms.saturating_mul(1_000_000).min(PAUSE_MAX_NS);
                told_ns + self.random(told_ns / 2)
            }
            None => {
                let whole_ns = PAUSE_NS.saturating_mul(1 << (*failures).min(10)).min(PAUSE_MAX_NS);
                whole_ns / 2 + self.random(whole_ns / 2)
            }
        };
        self.due.push(Reverse((now_ns + pause_ns, number)));
        self.failed_attempts.count(ended);
    }

    /// Starts due attempts; returns the time of the next call.
    pub(super) fn step(&mut self, engine: &mut Engine, now_ns: u64) -> u64 {
        self.time_out(engine, now_ns);
        for _ in 0..OPENS_PER_STEP {
            if engine.opening >= self.opening_max {
                break;
            }
            let Some(Reverse((_, number))) = self.due.peek().filter(|due| due.0.0 <= now_ns).copied() else {
                break;
            };
            self.due.pop();
            engine.open(number);
            if let Some(opened_ns) = engine.opening_since_ns(number) {
                self.in_progress.push_back((now_ns + ANSWER_TIMEOUT_NS, number, opened_ns));
            }
        }
        // An attempt that fails at once produces no event.
        if !engine.ended.is_empty() {
            return now_ns;
        }
        // Without capacity, the end of an attempt triggers the next step.
        let room = engine.opening < self.opening_max;
        let due_ns = self.due.peek().filter(|_| room).map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns);
        due_ns.min(self.in_progress.front().map_or(u64::MAX, |(until_ns, ..)| *until_ns))
    }

    pub(super) fn take_recovery(&mut self, engine: &mut Engine) -> Recovery {
        Recovery {
            back: engine.ready,
            back_ns: engine.last_log_in_ns,
            log_in: std::mem::take(&mut engine.log_in),
            failed_attempts: std::mem::take(&mut self.failed_attempts),
            fatal: self.fatal.take(),
        }
    }

    fn time_out(&mut self, engine: &mut Engine, now_ns: u64) {
        while let Some((until_ns, number, opened_ns)) = self.in_progress.front().copied() {
            let still = engine.opening_since_ns(number) == Some(opened_ns);
            if still && until_ns > now_ns {
                return;
            }
            self.in_progress.pop_front();
            if still {
                engine.remove(number);
                let reason = format!("no response within {} s", ANSWER_TIMEOUT_NS / 1_000_000_000);
                self.failed(number, Ended { reason, retry: true, after_ms: None }, now_ns);
            }
        }
    }

    /// A number below `bound`; 0 for 0.
    fn random(&mut self, bound: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(reason: &str, after_ms: Option<u64>) -> Ended {
        Ended { reason: reason.to_owned(), retry: true, after_ms }
    }

    /// When device 0 retries.
    fn pause_ns(reconnects: &mut Reconnects, ended: Ended) -> u64 {
        reconnects.failed(0, ended, 0);
        let Reverse((due_ns, 0)) = reconnects.due.pop().unwrap() else { panic!("device 0") };
        due_ns
    }

    #[test]
    fn reconnect_delay_is_respected_with_jitter() {
        let mut reconnects = Reconnects::new(1, 7);
        let mut pauses: Vec<u64> =
            (0..50).map(|_| pause_ns(&mut reconnects, ended("HTTP 503 overloaded", Some(2_000)))).collect();
        assert!(pauses.iter().all(|pause| (2_000_000_000..3_000_000_000).contains(pause)), "{pauses:?}");
        pauses.sort_unstable();
        pauses.dedup();
        assert!(pauses.len() > 40, "they are spread");
        assert_eq!((reconnects.failed_attempts.retry_after, reconnects.failed_attempts.broken), (50, 0));
        pause_ns(&mut reconnects, ended("close frame: overloaded", Some(1)));
        assert_eq!(
            (reconnects.failed_attempts.close_frame, reconnects.failed_attempts.reasons.len()),
            (1, 2)
        );
    }

    #[test]
    fn pauses_without_hint_grow_to_their_limit() {
        let mut reconnects = Reconnects::new(1, 7);
        let pauses: Vec<u64> = (0..20).map(|_| pause_ns(&mut reconnects, ended("reset", None))).collect();
        assert!((PAUSE_NS / 2..2 * PAUSE_NS).contains(&pauses[0]), "{pauses:?}");
        assert!(pauses[19] >= PAUSE_MAX_NS / 2 && pauses.iter().all(|pause| *pause <= PAUSE_MAX_NS));
        assert_eq!(reconnects.failed_attempts.broken, 20);
    }

    #[test]
    fn permanent_failures_are_not_retried() {
        let mut reconnects = Reconnects::new(1, 7);
        reconnects.failed(0, Ended { reason: "HTTP 401".to_owned(), retry: false, after_ms: None }, 0);
        assert!(reconnects.due.is_empty());
        assert_eq!(reconnects.fatal.as_deref(), Some("HTTP 401"));
    }
}
