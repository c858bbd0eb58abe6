//! Detects stalled threads. Has no clock: the watchdog passes the elapsed time.

use std::collections::HashMap;
use std::time::Duration;

use noroshi_supervision::{Kind, Sample};

/// A thread that makes no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stall {
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) busy: Duration,
}

struct Seen {
    count: u64,
    busy: Duration,
    is_told: bool,
}

pub(super) struct Stalls {
    /// Zero: stalls are not detected.
    limit: Duration,
    /// By name. Ended threads are removed.
    seen: HashMap<String, Seen>,
}

impl Stalls {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, seen: HashMap::new() }
    }

    /// Threads that stalled since the last check, each once until it makes progress. `elapsed`: since that check.
    pub(super) fn check(&mut self, samples: &[Sample], elapsed: Duration) -> Vec<Stall> {
        self.seen.retain(|name, _| samples.iter().any(|sample| sample.name == *name));
        let mut stalls = Vec::new();
        for Sample { kind, name, count, is_working, .. } in samples {
            let new = Seen { count: *count, busy: Duration::ZERO, is_told: false };
            // The time before the first check does not belong to this work.
            let Some(seen) = self.seen.get_mut(name) else {
                self.seen.insert(name.clone(), new);
                continue;
            };
            if seen.count != *count || !is_working {
                *seen = new;
                continue;
            }
            seen.busy += elapsed;
            if !self.limit.is_zero() && seen.busy >= self.limit && !std::mem::replace(&mut seen.is_told, true)
            {
                stalls.push(Stall { kind: *kind, name: name.clone(), busy: seen.busy });
            }
        }
        stalls
    }

    /// How long each thread has been working without progress.
    pub(super) fn busy(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.seen.iter().map(|(name, seen)| (name.as_str(), seen.busy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn sample(count: u64) -> Sample {
        let (kind, busy) = (Kind::Shard, Duration::ZERO);
        Sample { kind, name: "shard-0".to_owned(), count, is_working: count % 2 == 1, busy }
    }

    /// Checks every second whether a stall of three seconds is reported.
    fn check(counts: &[u64], expected: &[bool]) {
        let mut stalls = Stalls::new(3 * SECOND);
        let told: Vec<bool> =
            counts.iter().map(|count| !stalls.check(&[sample(*count)], SECOND).is_empty()).collect();
        assert_eq!(told, expected, "{counts:?}");
    }

    #[test]
    fn a_stall_is_reported_once() {
        check(&[1, 1, 1, 1, 1, 1], &[false, false, false, true, false, false]);
    }

    #[test]
    fn progress_and_waiting_are_not_stalls() {
        check(&[1, 1, 1, 3, 3, 3], &[false; 6]);
        check(&[2, 2, 2, 2, 2, 2], &[false; 6]);
    }

    #[test]
    fn a_stall_after_progress_is_reported_again() {
        check(&[1, 1, 1, 1, 3, 3, 3, 3], &[false, false, false, true, false, false, false, true]);
    }

    #[test]
    fn a_pause_of_the_process_counts_up_to_one_check() {
        let mut stalls = Stalls::new(3 * SECOND);
        stalls.check(&[sample(1)], SECOND);
        // Stopped for an hour, of which the watchdog counts little.
        assert_eq!(stalls.check(&[sample(1)], 2 * SECOND), []);
        assert_eq!(stalls.busy().next(), Some(("shard-0", 2 * SECOND)));
        assert_eq!(stalls.check(&[], SECOND), []);
        assert_eq!(stalls.busy().next(), None);
    }

    #[test]
    fn without_a_limit_nothing_is_reported() {
        let mut stalls = Stalls::new(Duration::ZERO);
        for _ in 0..100 {
            assert_eq!(stalls.check(&[sample(1)], 60 * SECOND), []);
        }
    }
}
