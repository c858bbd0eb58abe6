//! When to retry: exponential backoff with jitter, never earlier than the push service asks for, and never after the
//! message has expired. A pause fits the remaining life: a push that lives for 10 s gets several attempts, too. Pure.

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

/// A pause takes at most this part of the remaining life, so that several attempts fit into it.
const LIFE_PART: u32 = 4;

/// The remaining life shortens a pause to this part of it at most. At the end of a long outage a push then has a few
/// attempts more, not dozens: each is work for the store.
const USUAL_PART: u32 = 8;

/// The remaining life shortens no pause further than to this.
const PAUSE_MIN: Duration = Duration::from_secs(1);

impl Backoff {
    /// When the attempt after `attempt` (the first is 0) is due; `None` if the message has expired by then. `seed`
    /// spreads simultaneous failures over half the pause, or over half of the life that remains after it.
    pub(crate) fn due_at(
        self,
        now: Timestamp,
        after: Duration,
        attempt: u32,
        seed: u64,
        expires_at: Timestamp,
    ) -> Option<Timestamp> {
        // 2^20 × a base of at least a millisecond exceeds any sensible maximum.
        let usual = self.base.saturating_mul(1 << attempt.min(20)).min(self.max);
        let left = expires_at.saturating_since(now);
        let fitting = (left / LIFE_PART).max(usual / USUAL_PART).max(PAUSE_MIN);
        let delay = usual.min(fitting).max(after);
        let range = (delay / 2).min(left.saturating_sub(delay) / 2);
        let jitter = range * u32::from(u16::try_from(spread(seed) >> 48).unwrap_or(0)) / u32::from(u16::MAX);
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

    /// The seconds of all attempts at a push that lives for `ttl` seconds and fails each time after `answer`.
    fn attempts(ttl: u64, after: Duration, answer: Duration, batch: u64) -> Vec<f64> {
        let expires_at = NOW.saturating_add(Duration::from_secs(ttl));
        let (mut now, mut times) = (NOW, Vec::new());
        for attempt in 0.. {
            times.push(now.saturating_since(NOW).as_secs_f64());
            let failed = now.saturating_add(answer);
            let seed = seed(BatchId(batch), attempt);
            match Backoff::default().due_at(failed, after, attempt, seed, expires_at) {
                Some(due_at) => now = due_at,
                None => break,
            }
        }
        times
    }

    #[test]
    fn a_short_life_has_several_attempts_and_a_long_one_few() {
        let ms = Duration::from_millis;
        for batch in 0..1_000 {
            let count = |ttl, answer| attempts(ttl, Duration::ZERO, answer, batch).len();
            for (ttl, answer_ms, least, most) in [
                (5, 50, 3, 4),
                (10, 50, 4, 6),
                (10, 1_000, 3, 5),
                (15, 300, 4, 6),
                (20, 300, 4, 7),
                (60, 300, 5, 9),
                (3_600, 300, 9, 20),
                (28 * 86_400, 300, 1_700, 2_800),
            ] {
                let count = count(ttl, ms(answer_ms));
                assert!((least..=most).contains(&count), "{ttl} s: {count} attempts");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn every_pause_fits_the_life_and_respects_the_service(
            ttl in 0_u64..200_000, after_ms in 0_u64..60_000, attempt in 0_u32..40, batch: u64,
        ) {
            let (after, expires_at) = (Duration::from_millis(after_ms), NOW.saturating_add(Duration::from_millis(ttl)));
            let seed = seed(BatchId(batch), attempt);
            let Some(due_at) = Backoff::default().due_at(NOW, after, attempt, seed, expires_at) else {
                // Only if the service forbids it, or the shortest pause is too long.
                let usual = Backoff::default().base.saturating_mul(1 << attempt.min(20)).min(Duration::from_secs(900));
                let shortest = after.max((usual / USUAL_PART).max(PAUSE_MIN));
                proptest::prop_assert!(Duration::from_millis(ttl) <= shortest.max(Duration::from_millis(ttl) / LIFE_PART));
                return Ok(());
            };
            let pause = due_at.saturating_since(NOW);
            proptest::prop_assert!(due_at < expires_at && pause >= after && pause >= PAUSE_MIN);
            // The usual pause is the longest, with its jitter.
            let usual = Backoff::default().base.saturating_mul(1 << attempt.min(20)).min(Duration::from_secs(900));
            proptest::prop_assert!(pause <= usual.max(after) * 3 / 2);
        }
    }
}
