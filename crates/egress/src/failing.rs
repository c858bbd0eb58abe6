//! When to report that something fails: once when it begins, from time to time while it lasts, once when it is over.
//!
//! Failures that alternate with successes are one state, which ends after a calm period without a failure. So a server
//! that rejects every tenth request causes two reports, not two per request. Pure: time is an argument.

use std::time::{Duration, Instant};

/// The state ends after this time without a failure: at most two reports per minute.
const CALM: Duration = Duration::from_secs(60);
/// The interval of reports while the state lasts.
const REMINDER: Duration = Duration::from_secs(600);

/// Whether something fails, and what to report about it.
#[derive(Debug, Default)]
pub struct Failing(Option<State>);

#[derive(Debug)]
struct State {
    since: Instant,
    last_failure: Instant,
    last_report: Instant,
    failures: u64,
    /// Whether something succeeded after the last failure.
    succeeded: bool,
}

/// A report that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    Began,
    Lasts(Summary),
    Over(Summary),
}

/// The failures since the state began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub failures: u64,
    /// From the first failure to the last one.
    pub lasted: Duration,
}

impl Failing {
    /// An attempt failed.
    pub fn failed(&mut self, now: Instant) -> Option<Report> {
        // The calm period may have passed unnoticed. One report says enough: it fails again.
        let _ = self.check(now);
        let Some(state) = &mut self.0 else {
            let (failures, succeeded) = (1, false);
            self.0 = Some(State { since: now, last_failure: now, last_report: now, failures, succeeded });
            return Some(Report::Began);
        };
        state.failures += 1;
        (state.last_failure, state.succeeded) = (now, false);
        if now.saturating_duration_since(state.last_report) < REMINDER {
            return None;
        }
        state.last_report = now;
        Some(Report::Lasts(state.summary()))
    }

    /// An attempt succeeded.
    pub fn succeeded(&mut self, now: Instant) -> Option<Report> {
        self.0.as_mut()?.succeeded = true;
        self.check(now)
    }

    /// Call it at [`Failing::over_at`]: there may be no further attempt.
    pub fn check(&mut self, now: Instant) -> Option<Report> {
        if now < self.over_at()? {
            return None;
        }
        self.0.take().map(|state| Report::Over(state.summary()))
    }

    /// When the state ends if nothing fails until then. None: nothing has failed, or nothing has succeeded since.
    pub fn over_at(&self) -> Option<Instant> {
        self.0.as_ref().filter(|state| state.succeeded).map(|state| state.last_failure + CALM)
    }
}

impl State {
    fn summary(&self) -> Summary {
        Summary { failures: self.failures, lasted: self.last_failure.saturating_duration_since(self.since) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn alternating_failures_and_successes_are_reported_once() {
        let (mut failing, start) = (Failing::default(), Instant::now());
        assert_eq!(failing.succeeded(start), None);
        assert_eq!(failing.failed(start), Some(Report::Began));
        for second in 1..100 {
            let now = start + SECOND * second;
            assert_eq!(failing.succeeded(now), None);
            assert_eq!(failing.failed(now), None);
        }
        assert_eq!(failing.over_at(), None, "nothing has succeeded since");
        assert_eq!(failing.succeeded(start + SECOND * 100), None);
        let over = failing.over_at().expect("calm");
        assert_eq!(over, start + SECOND * 99 + CALM);
        assert_eq!(failing.check(over - SECOND), None);
        let summary = Summary { failures: 100, lasted: SECOND * 99 };
        assert_eq!(failing.check(over), Some(Report::Over(summary)));
        assert_eq!(failing.succeeded(over + SECOND), None);
        assert_eq!(failing.failed(over + SECOND * 2), Some(Report::Began));
    }

    #[test]
    fn a_long_failure_is_repeated_from_time_to_time() {
        let (mut failing, start) = (Failing::default(), Instant::now());
        let reports = (0..=1_800).filter_map(|second| failing.failed(start + SECOND * second)).count();
        assert_eq!(reports, 4, "the beginning, and after 10, 20 and 30 minutes");
    }
}
