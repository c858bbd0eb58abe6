//! Token buckets: new connections of the node, and frames of one connection.
//!
//! May use nothing of this crate. The caller passes the time.

/// Refills at a steady rate up to a burst. Eight bytes: one lives in every connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    /// Thousandths of a token, so that slow rates refill too.
    millitokens: u32,
    /// Milliseconds of the owner's clock, which wraps: after 49 days of silence a bucket may be found less full than it
    /// is.
    refilled_ms: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) per_second: u32,
    pub(crate) burst: u32,
}

impl Rate {
    /// A tenth of a second's worth may arrive at once, and never less than a few.
    pub(crate) fn of_connects(per_second: u32) -> Self {
        Self { per_second, burst: (per_second / 10).max(32) }
    }
}

impl Bucket {
    pub(crate) fn full(rate: Rate, now_ms: u32) -> Self {
        Self { millitokens: rate.burst.saturating_mul(1_000), refilled_ms: now_ms }
    }

    /// Takes a token. False if there is none.
    pub(crate) fn take(&mut self, rate: Rate, now_ms: u32) -> bool {
        let elapsed_ms = u64::from(now_ms.wrapping_sub(self.refilled_ms));
        // A token a second is a thousandth of a token a millisecond.
        let refill = elapsed_ms.saturating_mul(u64::from(rate.per_second));
        let full = u64::from(rate.burst).saturating_mul(1_000).min(u64::from(u32::MAX));
        // Granted tokens stay above the burst until they are used.
        let had = u64::from(self.millitokens);
        let level = had.max(had.saturating_add(refill).min(full));
        self.refilled_ms = now_ms;
        let taken = level.checked_sub(1_000);
        self.millitokens = u32::try_from(taken.unwrap_or(level)).unwrap_or(u32::MAX);
        taken.is_some()
    }

    /// How long until there is a token; 0 if there is one.
    pub(crate) fn wait_ms(&self, rate: Rate, now_ms: u32) -> u64 {
        let refill =
            u64::from(now_ms.wrapping_sub(self.refilled_ms)).saturating_mul(u64::from(rate.per_second));
        let missing = 1_000_u64.saturating_sub(u64::from(self.millitokens).saturating_add(refill));
        missing.div_ceil(u64::from(rate.per_second.max(1)))
    }

    /// Adds tokens, also above the burst: a device that is sent a thousand notifications may acknowledge each.
    pub(crate) fn grant(&mut self, tokens: u32) {
        self.millitokens = self.millitokens.saturating_add(tokens.saturating_mul(1_000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let rate = Rate { per_second: 2, burst: 3 };
        let mut bucket = Bucket::full(rate, 0);
        assert_eq!((0..5).filter(|_| bucket.take(rate, 0)).count(), 3);
        assert!(!bucket.take(rate, 499));
        assert!(bucket.take(rate, 500), "half a second is one token at two a second");
        assert_eq!((0..9).filter(|_| bucket.take(rate, 3_600_000)).count(), 3, "never over the burst");
    }

    #[test]
    fn a_token_is_there_after_the_reported_wait() {
        let rate = Rate { per_second: 3, burst: 1 };
        let mut bucket = Bucket::full(rate, 0);
        assert_eq!(bucket.wait_ms(rate, 0), 0);
        assert!(bucket.take(rate, 0));
        assert_eq!((bucket.wait_ms(rate, 0), bucket.wait_ms(rate, 100)), (334, 234));
        assert!(!bucket.take(rate, 333));
        assert_eq!(bucket.wait_ms(rate, 333), 1);
        assert!(bucket.take(rate, 334));
    }

    #[test]
    fn granted_tokens_stay_until_they_are_used() {
        let rate = Rate { per_second: 1, burst: 2 };
        let mut bucket = Bucket::full(rate, 0);
        bucket.grant(5);
        assert_eq!((0..20).filter(|_| bucket.take(rate, 3_600_000)).count(), 7);
        bucket.grant(u32::MAX);
        assert!(bucket.take(rate, 3_600_000), "no overflow");
    }

    #[test]
    fn the_clock_may_wrap() {
        let rate = Rate { per_second: 1, burst: 1 };
        let mut bucket = Bucket::full(rate, u32::MAX - 10);
        assert!(bucket.take(rate, u32::MAX));
        assert!(bucket.take(rate, 1_000));
    }
}
