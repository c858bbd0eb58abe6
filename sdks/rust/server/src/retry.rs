//! When a request is repeated, and after which wait.

use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

const FIRST: Duration = Duration::from_millis(200);
const MAX: Duration = Duration::from_secs(10);

/// Limits of a request with all its attempts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Of each attempt.
    pub(crate) timeout: Duration,
    /// Of all attempts and the waits between them.
    pub(crate) deadline: Duration,
    pub(crate) attempts: u32,
}

/// A random part of 200 ms, doubled after each attempt up to 10 s; at least as long as the service says.
pub(crate) fn wait(attempt: u32, random: f64, retry_after: Option<Duration>) -> Duration {
    let ceiling = FIRST.saturating_mul(1 << (attempt - 1).min(16)).min(MAX);
    ceiling.mul_f64(random).max(retry_after.unwrap_or_default())
}

/// Whether another attempt may help. `can_repeat`: it does no harm if the service has processed this one.
pub(crate) fn may_help(status: u16, can_repeat: bool) -> bool {
    match status {
        425 | 429 | 503 => true, // the service has not processed it
        408 | 500 | 502 | 504 => can_repeat,
        _ => false,
    }
}

/// A number from 0 up to, but not including, 1.
#[cfg(not(test))]
pub(crate) fn random() -> f64 {
    let mut bytes = [0; 4];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0),
        // Without random bytes: half.
        Err(_) => 0.5,
    }
}

/// An idempotency key: 128 random bits.
pub(crate) fn key() -> Option<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(format!("{:032x}", u128::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_ten_seconds() {
        let waits: Vec<u128> = (1..=8).map(|attempt| wait(attempt, 0.5, None).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(wait(u32::MAX, 0.0, None), Duration::ZERO);
        assert_eq!(wait(1, 0.9, Some(Duration::from_secs(3))), Duration::from_secs(3));
        assert_eq!(wait(1, 0.5, Some(Duration::ZERO)), Duration::from_millis(100));
    }

    #[test]
    fn keys_differ() {
        assert_ne!(key(), key());
        assert_eq!(key().map(|key| key.len()), Some(32));
    }
}
