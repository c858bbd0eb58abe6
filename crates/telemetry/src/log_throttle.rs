//! Limits a log line that clients can trigger at will to one a second, which reports how many were suppressed since the
//! last one. The metrics count all.
//!
//! One value for the whole node, read and written by every thread without a lock: two lines at the same moment may both
//! be written.

use std::sync::atomic::{AtomicU64, Ordering};

use noroshi_types::Timestamp;

const INTERVAL_MS: u64 = 1_000;

#[derive(Default)]
pub struct LogThrottle {
    told_ms: AtomicU64,
    kept_back: AtomicU64,
}

impl LogThrottle {
    /// How many were suppressed, if this one may be written.
    pub fn take(&self, now: Timestamp) -> Option<u64> {
        // A clock that was set back suppresses nothing.
        if now.0.abs_diff(self.told_ms.load(Ordering::Relaxed)) < INTERVAL_MS {
            self.kept_back.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.told_ms.store(now.0, Ordering::Relaxed);
        Some(self.kept_back.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_is_written_and_the_rest_counted() {
        let log_throttle = LogThrottle::default();
        let take = |now_ms| log_throttle.take(Timestamp(now_ms));
        assert_eq!([take(5_000), take(5_000), take(5_999)], [Some(0), None, None]);
        assert_eq!([take(6_000), take(6_001)], [Some(2), None]);
        assert_eq!(take(1_000), Some(1), "the clock was set back");
    }
}
