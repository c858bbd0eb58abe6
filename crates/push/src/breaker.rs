//! The circuit breaker of a credential: while an operator has to act, or a push service is down, only one push at a
//! time probes the service, and not before a wait after the last failure.
//!
//! It holds no clock: the caller passes the time and reports what answers meant. Open, it says for how long; half open,
//! it passes exactly one push, whose answer closes or opens it.

use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::push::Reason;

/// Starts closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breaker {
    state: State,
    probes: Backoff,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Closed,
    Open { reason: Reason, until: Instant, failures: u32, probing: Option<Instant> },
}

/// The state for operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Closed,
    /// Nothing is sent for this long.
    Open {
        reason: Reason,
        after: Duration,
    },
    /// One push may be sent, or was: its answer decides.
    HalfOpen {
        reason: Reason,
    },
}

/// What may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Everything.
    All,
    /// One push, whose answer decides.
    Probe,
    /// Nothing for this long.
    None { reason: Reason, after: Duration },
}

impl Breaker {
    pub fn new(probes: Backoff) -> Self {
        Self { state: State::Closed, probes }
    }

    pub fn open(&self) -> Option<Reason> {
        match self.state {
            State::Closed => None,
            State::Open { reason, .. } => Some(reason),
        }
    }

    pub fn condition(&self, now: Instant) -> Condition {
        match self.state {
            State::Closed => Condition::Closed,
            State::Open { reason, until, .. } if now < until => {
                Condition::Open { reason, after: until - now }
            }
            State::Open { reason, .. } => Condition::HalfOpen { reason },
        }
    }

    /// `probe_lost_after`: when to give up waiting for the answer to a probe.
    pub fn pass(&mut self, now: Instant, probe_lost_after: Duration) -> Pass {
        let State::Open { reason, until, probing, .. } = &mut self.state else { return Pass::All };
        if now < *until {
            return Pass::None { reason, after: *until - now };
        }
        let waited_for = probing.map(|since| since + probe_lost_after).filter(|lost| *lost > now);
        match waited_for {
            Some(lost) => Pass::None { reason, after: lost - now },
            None => {
                *probing = Some(now);
                Pass::Probe
            }
        }
    }

    /// The probe was not sent: the next push may be one.
    pub fn unsent(&mut self) {
        if let State::Open { probing, .. } = &mut self.state {
            *probing = None;
        }
    }

    /// An answer to a push that was sent at `sent_at` shows that the credential works. True if it closed the breaker:
    /// only the answer to a probe does, not one to a push that was in flight when the breaker opened.
    pub fn succeeded(&mut self, sent_at: Instant) -> bool {
        let closes = matches!(self.state, State::Open { until, .. } if sent_at >= until);
        if closes {
            self.state = State::Closed;
        }
        closes
    }

    /// An answer shows that the credential fails. Answers to pushes that were in flight when the breaker opened change
    /// nothing.
    pub fn failed(&mut self, reason: Reason, sent_at: Instant, now: Instant, chance: f64) -> Failed {
        let (opened, failures) = match self.state {
            State::Closed => (true, 1),
            State::Open { until, .. } if sent_at < until => {
                let after = until.saturating_duration_since(now).max(Duration::from_secs(1));
                return Failed { opened: false, after };
            }
            State::Open { failures, .. } => (false, failures.saturating_add(1)),
        };
        let after = self.probes.delay(failures, chance);
        self.state = State::Open { reason, until: now + after, failures, probing: None };
        Failed { opened, after }
    }
}

/// The effect of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// Whether the breaker was closed until now.
    pub opened: bool,
    /// How long nothing is sent.
    pub after: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Duration = Duration::from_secs(30);
    const BAD: Reason = "InvalidProviderToken";

    fn breaker() -> (Breaker, Instant) {
        let probes = Backoff { first: Duration::from_secs(10), max: Duration::from_secs(40) };
        (Breaker::new(probes), Instant::now())
    }

    #[test]
    fn one_failure_opens_it_and_a_successful_probe_closes_it() {
        let (mut breaker, start) = breaker();
        assert_eq!(breaker.pass(start, LOST), Pass::All);
        let failed = breaker.failed(BAD, start, start, 1.0);
        assert_eq!(failed, Failed { opened: true, after: Duration::from_secs(10) });
        let soon = start + Duration::from_secs(4);
        assert_eq!(breaker.pass(soon, LOST), Pass::None { reason: BAD, after: Duration::from_secs(6) });
        assert_eq!(breaker.condition(soon), Condition::Open { reason: BAD, after: Duration::from_secs(6) });
        let due = start + Duration::from_secs(10);
        assert!(!breaker.succeeded(start), "it was sent before");
        assert_eq!(breaker.condition(due), Condition::HalfOpen { reason: BAD });
        assert_eq!(breaker.pass(due, LOST), Pass::Probe);
        assert_eq!(breaker.condition(due), Condition::HalfOpen { reason: BAD });
        assert!(breaker.succeeded(due));
        assert_eq!(breaker.condition(due), Condition::Closed);
        assert_eq!(breaker.pass(due, LOST), Pass::All);
        assert!(!breaker.succeeded(due), "it was closed already");
    }

    #[test]
    fn half_open_passes_one_push_at_a_time() {
        let (mut breaker, start) = breaker();
        breaker.failed(BAD, start, start, 1.0);
        let due = start + Duration::from_secs(10);
        assert_eq!(breaker.pass(due, LOST), Pass::Probe);
        assert_eq!(breaker.pass(due, LOST), Pass::None { reason: BAD, after: LOST });
        assert_eq!(breaker.pass(due + LOST, LOST), Pass::Probe, "the first one's answer never came");
        breaker.unsent();
        assert_eq!(breaker.pass(due + LOST, LOST), Pass::Probe);
    }

    #[test]
    fn every_failed_probe_doubles_the_wait() {
        let (mut breaker, start) = breaker();
        let mut now = start;
        for seconds in [10, 20, 40, 40] {
            let failed = breaker.failed(BAD, now, now, 1.0);
            assert_eq!(failed.after, Duration::from_secs(seconds));
            let late = breaker.failed("late", start, now + Duration::from_secs(1), 1.0);
            assert_eq!(late.after, Duration::from_secs(seconds - 1), "pushes in flight do not double it");
            now += failed.after;
        }
        assert_eq!(breaker.open(), Some(BAD));
    }
}
