//! How much an app has in the store: the store's last count, and what this node added since.
//!
//! ```text
//!   total = base (counted) + settled (added and committed since) + pending (reserved, not committed yet)
//! ```
//!
//! A count starts by noting `settled`. Its result becomes `base`, and the noted amount is subtracted. What is committed
//! while a count runs may count twice until the next count, but is never missed.

use std::time::{Duration, Instant};

use noroshi_types::quota::Quota;
use parking_lot::Mutex;

/// The pause between two counts while no request is refused.
const INTERVAL: Duration = Duration::from_secs(5);
/// The pause between two counts while requests are refused: removed rows count at most this long.
const INTERVAL_STALE: Duration = Duration::from_secs(1);
/// Counts take at most this part of one reader's time: 1 in 50, and 1 in 10 while requests are refused.
const SHARE: u32 = 50;
const SHARE_STALE: u32 = 10;
/// The shortest pause after a failed count; the pause lasts as long as the count took.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// A request that a count refused may pass after the next count.
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
    /// Quotas that limits need: a bit for each quota.
    wanted: u64,
    /// Quotas that were counted.
    counted: u64,
    /// When the last count ended, and how long it took.
    last: Option<(Instant, Duration)>,
    /// A count failed; the next one starts after this.
    paused_until: Option<Instant>,
    /// A request was refused since the last count.
    is_stale: bool,
}

#[derive(Default)]
pub(super) struct Counts {
    state: Mutex<State>,
    /// Serializes counts. Callers that cannot decide without a count wait for it.
    pub(super) counting: tokio::sync::Mutex<()>,
}

/// The state at the start of a count.
pub(super) struct CountStart {
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
        // A quota without a limit is not counted.
        state.counted &= wanted;
    }

    /// Whether every limited quota was counted at least once.
    pub(super) fn is_counted(&self) -> bool {
        let state = self.state.lock();
        state.counted == state.wanted
    }

    /// Whether the next count is due.
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

    /// The quotas to count.
    pub(super) fn wanted(&self) -> Vec<Quota> {
        let wanted = self.state.lock().wanted;
        Quota::STORED.into_iter().filter(|quota| wanted & bit(*quota) != 0).collect()
    }

    pub(super) fn begin(&self) -> CountStart {
        let state = self.state.lock();
        CountStart { settled: state.of.map(|count| count.settled), began: Instant::now() }
    }

    pub(super) fn end(&self, start: &CountStart, counted: &[(Quota, u64)]) {
        let mut state = self.state.lock();
        for (quota, base) in counted {
            let count = &mut state.of[*quota as usize];
            count.base = *base;
            count.settled = count.settled.saturating_sub(start.settled[*quota as usize]);
            state.counted |= bit(*quota) & state.wanted;
        }
        state.last = Some((Instant::now(), start.began.elapsed()));
        state.is_stale = false;
        state.paused_until = None;
    }

    /// A count failed after this time.
    pub(super) fn fail(&self, took: Duration) {
        self.state.lock().paused_until = Some(Instant::now() + took.max(FAILED_PAUSE));
    }

    /// A limited quota that was not counted yet.
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

    /// Ends a reservation, whose rows were committed or not.
    pub(super) fn settle(&self, reserved: &[(Quota, u64)], is_committed: bool) {
        let mut state = self.state.lock();
        for (quota, amount) in reserved {
            let count = &mut state.of[*quota as usize];
            count.pending = count.pending.saturating_sub(*amount);
            count.settled = count.settled.saturating_add(if is_committed { *amount } else { 0 });
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
    fn a_reservation_counts_until_it_is_released() {
        let counts = counts(8);
        assert!(counts.is_counted() && !counts.is_due());
        assert!(reserve(&counts, 2) && !reserve(&counts, 1));
        counts.settle(&[(Quota::Devices, 2)], false);
        assert_eq!(counts.total(Quota::Devices), Some(8));
        assert!(!reserve(&counts, 3), "a reservation is granted as a whole or refused");
        assert!(reserve(&counts, 0), "an empty reservation always has room");
    }

    #[test]
    fn a_count_replaces_only_what_was_added_before_it_started() {
        let counts = counts(0);
        assert!(reserve(&counts, 3));
        counts.settle(&[(Quota::Devices, 3)], true);
        let start = counts.begin();
        assert!(reserve(&counts, 1));
        counts.settle(&[(Quota::Devices, 1)], true);
        counts.end(&start, &[(Quota::Devices, 2)]);
        assert_eq!(counts.total(Quota::Devices), Some(3), "2 counted, 1 added while it ran");
    }

    #[test]
    fn an_app_over_its_limit_keeps_its_rows() {
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
        assert!(counts.is_counted() && !counts.is_due(), "without a limit nothing is counted");
    }

    #[test]
    fn a_failed_count_is_not_retried_at_once() {
        let counts = Counts::default();
        counts.want(|quota| quota == Quota::Devices);
        counts.fail(Duration::from_secs(3_600));
        assert!(!counts.is_counted() && !counts.is_due());
        counts.end(&counts.begin(), &[(Quota::Devices, 0)]);
        counts.want(|quota| matches!(quota, Quota::Devices | Quota::Topics));
        assert!(counts.is_due(), "the pause ends with a count");
    }
}
