//! How long to wait before a retry: twice as long each time, with jitter. Randomness is drawn only here, so that the
//! rest can be tested with fixed values.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Bounds of a series of waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub max: Duration,
}

impl Backoff {
    /// The wait after `failures` in a row (from 1): between half and all of `first × 2^(failures - 1)`, as `chance` in
    /// 0..1 selects. At least half, so that a series of failures cannot become a storm.
    pub fn delay(self, failures: u32, chance: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        let whole = self.first.saturating_mul(1 << doublings).min(self.max);
        whole.mul_f64(f64::midpoint(1.0, chance.clamp(0.0, 1.0)))
    }
}

/// A number in 0..1, from the random keys of the standard library's maps. Good enough to spread retries, and for
/// nothing else.
pub fn chance() -> f64 {
    let bits = RandomState::new().hash_one(0_u8);
    // 53 bits are what a double holds exactly.
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(60) };
        let check = |failures, chance, ms| {
            assert_eq!(backoff.delay(failures, chance), Duration::from_millis(ms), "{failures} {chance}");
        };
        check(0, 1.0, 1_000);
        check(1, 1.0, 1_000);
        check(1, 0.0, 500);
        check(2, 0.5, 1_500);
        check(7, 1.0, 60_000);
        check(u32::MAX, 0.0, 30_000);
    }

    #[test]
    fn chance_covers_its_range() {
        let drawn: Vec<f64> = (0..1_000).map(|_| chance()).collect();
        assert!(drawn.iter().all(|x| (0.0..1.0).contains(x)));
        let low = drawn.iter().filter(|x| **x < 0.5).count();
        assert!((300..700).contains(&low), "{low} of 1,000 in the lower half");
    }
}
