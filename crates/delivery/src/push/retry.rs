//! When to retry: exponential backoff with jitter, never earlier than the push service asks for, and never after the
//! message has expired. Pure.

use std::time::Duration;

use noroshi_types::{BatchId, Timestamp};

/// The pauses between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The pause before the second attempt; it doubles for each further one.
    pub base: Duration,
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        // A push service that needs more than 5 s asks for it. An attempt every quarter of an hour costs almost
        // nothing, and notices the end of an outage soon enough.
        Self { base: Duration::from_secs(5), max: Duration::from_secs(900) }
    }
}

impl Backoff {
    /// When the attempt after `attempt` (the first is 0) is due; `None` if the message has expired by then. `seed`
    /// spreads simultaneous failures over half the pause.
    pub(crate) fn due_at(
        self,
        now: Timestamp,
        after: Duration,
        attempt: u32,
        seed: u64,
        expires_at: Timestamp,
    ) -> Option<Timestamp> {
        // 2^20 × a base of at least a millisecond exceeds any sensible maximum.
        let doubled = self.base.saturating_mul(1 << attempt.min(20)).min(self.max);
        let delay = doubled.max(after);
        let jitter =
            delay / 2 * u32::from(u16::try_from(spread(seed) >> 48).unwrap_or(0)) / u32::from(u16::MAX);
        Some(now.saturating_add(delay + jitter)).filter(|due_at| *due_at < expires_at)
    }
}

/// The seed that spreads the retries of a batch; it differs for each attempt.
pub(crate) fn seed(batch: BatchId, attempt: u32) -> u64 {
    batch.0.wrapping_mul(31).wrapping_add(u64::from(attempt))
}

/// Spreads neighbouring numbers over all 64 bits (the finalizer of MurmurHash3).
fn spread(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);
    const NEVER: Timestamp = Timestamp(u64::MAX);

    #[test]
    fn the_wait_doubles_up_to_its_maximum_and_is_spread() {
        let backoff = Backoff { base: Duration::from_secs(5), max: Duration::from_secs(60) };
        for (attempt, after_s, least_s) in
            [(0, 0, 5), (1, 0, 10), (2, 0, 20), (3, 0, 40), (4, 0, 60), (99, 0, 60), (0, 30, 30), (4, 90, 90)]
        {
            for seed in 0..200 {
                let due_at = backoff.due_at(NOW, Duration::from_secs(after_s), attempt, seed, NEVER);
                let waited = due_at.expect("never expires").saturating_since(NOW).as_millis();
                let least = least_s * 1_000;
                assert!((least..=least * 3 / 2).contains(&waited), "{attempt} {after_s}: {waited}");
            }
        }
    }

    #[test]
    fn what_failed_together_comes_back_spread() {
        let due = |batch| Backoff::default().due_at(NOW, Duration::ZERO, 0, seed(BatchId(batch), 0), NEVER);
        let mut due: Vec<_> = (0..100).map(due).collect();
        due.sort_unstable();
        due.dedup();
        assert!(due.len() > 80, "{}", due.len());
    }

    #[test]
    fn nothing_is_tried_after_its_time() {
        let backoff = Backoff::default();
        let due = |expires_at| backoff.due_at(NOW, Duration::from_secs(10), 0, 0, Timestamp(expires_at));
        assert_eq!(due(NOW.0 + 10_000), None);
        assert!(due(NOW.0 + 20_000).is_some());
    }
}
