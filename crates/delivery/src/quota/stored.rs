//! Counts of what the store holds: the last count of the store, and what this node added since.
//!
//! ```text
//!   total = base (counted) + settled (added and committed since) + pending (reserved, not committed yet)
//! ```
//!
//! A count begins with a note of `settled`; when it is there it becomes `base` and what was noted is subtracted. What
//! is committed while it runs may be counted twice until the next one, never zero times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_types::quota::Quota;
use parking_lot::Mutex;

use super::OfApp;

/// Between two counts, while nobody is refused.
const INTERVAL: Duration = Duration::from_secs(5);
/// Between two counts, while somebody is: what was removed makes room this soon.
const INTERVAL_STALE: Duration = Duration::from_secs(1);
/// A count takes at most this part of one reader's time: 1 in 50, and 1 in 10 while somebody is refused.
const SHARE: u32 = 50;
const SHARE_STALE: u32 = 10;
/// After a count that failed nobody counts for as long as it took, and at least this long.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// What is refused by a count may go through after the next one.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    base: u64,
    settled: u64,
    pending: u64,
}

impl Count {
    fn total(self) -> u64 {
        self.base.saturating_add(self.settled).saturating_add(self.pending)
    }
}

#[derive(Debug, Default)]
struct State {
    of: [Count; Quota::COUNT],
    /// Those that limits need: a bit for each quota.
    wanted: u64,
    /// Those that were counted.
    counted: u64,
    /// When the last count ended, and how long it took.
    last: Option<(Instant, Duration)>,
    /// A count failed: nobody counts until then.
    paused_until: Option<Instant>,
    /// Somebody was refused since.
    is_stale: bool,
}

#[derive(Default)]
pub(super) struct Counts {
    state: Mutex<State>,
    /// One count at a time; awaited by those who cannot decide without it.
    pub(super) counting: tokio::sync::Mutex<()>,
}

/// What a count began with.
pub(super) struct Noted {
    settled: [u64; Quota::COUNT],
    pub(super) began: Instant,
}

pub(super) struct Refused {
    pub(super) quota: Quota,
    pub(super) limit: u64,
}

fn bit(quota: Quota) -> u64 {
    1 << (quota as u64)
}

impl Counts {
    pub(super) fn want(&self, is_limited: impl Fn(Quota) -> bool) {
        let wanted = Quota::STORED.into_iter().filter(|quota| is_limited(*quota)).map(bit).sum();
        let mut state = self.state.lock();
        state.wanted = wanted;
        // What is not limited any more is not counted any more either.
        state.counted &= wanted;
    }

    /// Whether all that is limited was counted once.
    pub(super) fn is_counted(&self) -> bool {
        let state = self.state.lock();
        state.counted == state.wanted
    }

    /// Whether it is time to count again.
    pub(super) fn is_due(&self) -> bool {
        let state = self.state.lock();
        if state.wanted == 0 || state.paused_until.is_some_and(|until| Instant::now() < until) {
            return false;
        }
        let (interval, share) =
            if state.is_stale { (INTERVAL_STALE, SHARE_STALE) } else { (INTERVAL, SHARE) };
        match state.last {
            Some((ended, took)) if state.counted == state.wanted => {
                ended.elapsed() >= interval.max(took * share)
            }
            _ => true,
        }
    }

    /// What to count.
    pub(super) fn wanted(&self) -> Vec<Quota> {
        let wanted = self.state.lock().wanted;
        Quota::STORED.into_iter().filter(|quota| wanted & bit(*quota) != 0).collect()
    }

    pub(super) fn begin(&self) -> Noted {
        let state = self.state.lock();
        Noted { settled: state.of.map(|count| count.settled), began: Instant::now() }
    }

    pub(super) fn end(&self, noted: &Noted, counted: &[(Quota, u64)]) {
        let mut state = self.state.lock();
        for (quota, base) in counted {
            let count = &mut state.of[*quota as usize];
            count.base = *base;
            count.settled = count.settled.saturating_sub(noted.settled[*quota as usize]);
            state.counted |= bit(*quota) & state.wanted;
        }
        state.last = Some((Instant::now(), noted.began.elapsed()));
        state.is_stale = false;
        state.paused_until = None;
    }

    /// A count failed after this time.
    pub(super) fn fail(&self, took: Duration) {
        self.state.lock().paused_until = Some(Instant::now() + took.max(FAILED_PAUSE));
    }

    /// A quota that is limited and was not counted yet.
    pub(super) fn uncounted(&self) -> Option<Quota> {
        let state = self.state.lock();
        let missing = state.wanted & !state.counted;
        Quota::STORED.into_iter().find(|quota| missing & bit(*quota) != 0)
    }

    pub(super) fn total(&self, quota: Quota) -> Option<u64> {
        let state = self.state.lock();
        (state.counted & bit(quota) != 0).then(|| state.of[quota as usize].total())
    }

    pub(super) fn reserve(
        &self,
        wanted: &[(Quota, u64)],
        limit_of: impl Fn(Quota) -> Option<u64>,
    ) -> Result<(), Refused> {
        let mut state = self.state.lock();
        for (quota, amount) in wanted.iter().filter(|(_, amount)| *amount > 0) {
            let Some(limit) = limit_of(*quota) else { continue };
            if state.of[*quota as usize].total().saturating_add(*amount) > limit {
                state.is_stale = true;
                return Err(Refused { quota: *quota, limit });
            }
        }
        for (quota, amount) in wanted {
            state.of[*quota as usize].pending += amount;
        }
        Ok(())
    }

    fn settle(&self, reserved: &[(Quota, u64)], is_committed: bool) {
        let mut state = self.state.lock();
        for (quota, amount) in reserved {
            let count = &mut state.of[*quota as usize];
            count.pending = count.pending.saturating_sub(*amount);
            count.settled = count.settled.saturating_add(if is_committed { *amount } else { 0 });
        }
    }
}

/// Room that is held for what is being written. Dropped, it is given back.
#[must_use]
pub struct Reservation {
    of: Arc<OfApp>,
    reserved: Vec<(Quota, u64)>,
}

impl Reservation {
    pub(super) fn new(of: Arc<OfApp>, reserved: Vec<(Quota, u64)>) -> Self {
        Self { of, reserved }
    }

    /// It was written.
    pub fn settle(mut self) {
        let reserved = std::mem::take(&mut self.reserved);
        self.of.counts.settle(&reserved, true);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.reserved.is_empty() {
            self.of.counts.settle(&self.reserved, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(base: u64) -> Counts {
        let counts = Counts::default();
        counts.want(|quota| quota == Quota::Devices);
        assert!(!counts.is_counted() && counts.is_due());
        counts.end(&counts.begin(), &[(Quota::Devices, base)]);
        counts
    }

    fn reserve(counts: &Counts, amount: u64) -> bool {
        counts.reserve(&[(Quota::Devices, amount)], |_| Some(10)).is_ok()
    }

    #[test]
    fn what_is_reserved_counts_until_it_is_given_back() {
        let counts = counts(8);
        assert!(counts.is_counted() && !counts.is_due());
        assert!(reserve(&counts, 2) && !reserve(&counts, 1));
        counts.settle(&[(Quota::Devices, 2)], false);
        assert_eq!(counts.total(Quota::Devices), Some(8));
        assert!(!reserve(&counts, 3), "all of it or nothing");
        assert!(reserve(&counts, 0), "nothing always has room");
    }

    #[test]
    fn a_count_takes_the_place_of_what_was_added_before_it_only() {
        let counts = counts(0);
        assert!(reserve(&counts, 3));
        counts.settle(&[(Quota::Devices, 3)], true);
        let noted = counts.begin();
        assert!(reserve(&counts, 1));
        counts.settle(&[(Quota::Devices, 1)], true);
        counts.end(&noted, &[(Quota::Devices, 2)]);
        assert_eq!(counts.total(Quota::Devices), Some(3), "2 counted, 1 added while it ran");
    }

    #[test]
    fn an_app_over_its_limit_keeps_what_it_has() {
        let counts = counts(50);
        assert!(!reserve(&counts, 1));
        assert_eq!(counts.total(Quota::Devices), Some(50));
    }

    #[test]
    fn a_new_limit_is_counted_before_it_refuses() {
        let counts = counts(0);
        counts.want(|quota| matches!(quota, Quota::Devices | Quota::Topics));
        assert!(!counts.is_counted() && counts.is_due());
        assert_eq!(counts.total(Quota::Topics), None);
        assert_eq!(counts.wanted(), [Quota::Devices, Quota::Topics]);
        assert_eq!(counts.uncounted(), Some(Quota::Topics));
        counts.want(|_| false);
        assert!(counts.is_counted() && !counts.is_due(), "nothing is counted without a limit");
    }

    #[test]
    fn a_count_that_failed_is_not_tried_again_at_once() {
        let counts = Counts::default();
        counts.want(|quota| quota == Quota::Devices);
        counts.fail(Duration::from_secs(3_600));
        assert!(!counts.is_counted() && !counts.is_due());
        counts.end(&counts.begin(), &[(Quota::Devices, 0)]);
        counts.want(|quota| matches!(quota, Quota::Devices | Quota::Topics));
        assert!(counts.is_due(), "the pause ends with a count");
    }
}
