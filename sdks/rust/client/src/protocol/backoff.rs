//! The wait after failures (B1).

use std::time::Duration;

const MAX_MS: f64 = 30_000.0;
const FIRST_MS: f64 = 500.0;

/// Half a second, doubled after each failure up to 30 s; the second half of it is random.
pub(super) fn backoff(failures: u32, random: f64) -> Duration {
    let ms = (FIRST_MS * f64::from(failures.min(30)).exp2()).min(MAX_MS);
    rounded(ms * (0.5 + random / 2.0))
}

/// Whole milliseconds.
pub(super) fn rounded(ms: f64) -> Duration {
    // Both limits are exact, so the conversion truncates nothing.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Duration::from_millis(ms.round().clamp(0.0, 9e15) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_thirty_seconds() {
        let check = |failures, random, ms| assert_eq!(backoff(failures, random), Duration::from_millis(ms));
        check(0, 0.0, 250);
        check(0, 0.5, 375);
        check(1, 0.0, 500);
        check(5, 0.999, 15_992);
        check(6, 0.0, 15_000);
        check(u32::MAX, 0.5, 22_500);
    }
}
