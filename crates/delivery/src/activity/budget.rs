//! How many updates of an activity may have a high priority. Pure.
//!
//! iOS gives each activity a budget of pushes with priority 10, which Apple does not state, and delays all pushes of an
//! activity that exceeds it. Pushes with priority 5 do not count. So each activity has a bucket of tokens here; when it
//! is empty, an update has priority 5.

use noroshi_types::Timestamp;
use serde::{Deserialize, Serialize};

/// Tokens of a full bucket, and the milliseconds until one more is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    burst: u32,
    refill_ms: u64,
}

/// About ten an hour.
const USUAL: Rate = Rate { burst: 10, refill_ms: 360_000 };
/// Apps with `NSSupportsLiveActivitiesFrequentUpdates` have a larger budget.
const FREQUENT: Rate = Rate { burst: 60, refill_ms: 60_000 };

/// The state of a bucket. The default is a full one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Budget {
    /// When the bucket is full again.
    full_at_ms: u64,
}

impl Budget {
    /// Takes a token if there is one. Returns the budget after that, and whether there was one.
    pub(crate) fn take(self, frequent: bool, now: Timestamp) -> (Self, bool) {
        let rate = rate(frequent);
        let full_at_ms = self.full_at_ms.max(now.0).saturating_add(rate.refill_ms);
        match full_at_ms - now.0 <= rate.refill_ms.saturating_mul(rate.burst.into()) {
            true => (Self { full_at_ms }, true),
            false => (self, false),
        }
    }

    /// Tokens in the bucket.
    pub(crate) fn left(self, frequent: bool, now: Timestamp) -> u32 {
        let rate = rate(frequent);
        let missing = self.full_at_ms.saturating_sub(now.0).div_ceil(rate.refill_ms);
        rate.burst.saturating_sub(u32::try_from(missing).unwrap_or(u32::MAX))
    }
}

fn rate(frequent: bool) -> Rate {
    if frequent { FREQUENT } else { USUAL }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(1_800_000_000_000 + seconds * 1_000)
    }

    #[test]
    fn a_burst_uses_the_budget_and_time_refills_it() {
        let mut budget = Budget::default();
        for left in (0..10).rev() {
            let (next, granted) = budget.take(false, at(0));
            assert!(granted);
            assert_eq!(next.left(false, at(0)), left);
            budget = next;
        }
        assert_eq!(budget.take(false, at(0)), (budget, false));
        assert_eq!(budget.take(false, at(359)), (budget, false));
        let (after, granted) = budget.take(false, at(360));
        assert!(granted);
        assert_eq!(after.left(false, at(360)), 0);
        assert_eq!(after.left(false, at(36_000)), 10, "never more than the burst");
    }

    #[test]
    fn frequent_updates_have_a_larger_budget() {
        let mut budget = Budget::default();
        let mut granted = 0;
        for second in 0..600 {
            let (next, was_granted) = budget.take(true, at(second));
            granted += u32::from(was_granted);
            budget = next;
        }
        assert_eq!(granted, 60 + 9, "one a minute after the burst");
    }
}
