//! The wait before a failed server is retried: doubled each time up to a limit, with jitter.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// `0 < min <= max`
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// The present wait: between half and all of its value, so that nodes that failed together do not retry together.
    pub fn pause(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.max);
        let random = RandomState::new().hash_one(0_u8) % 1_024;
        whole / 2 + whole / 2 * u32::try_from(random).unwrap_or(0) / 1_024
    }

    /// After a success the next failure waits the minimum again.
    pub fn reset(&mut self) {
        self.next = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_and_restart() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, second * 3);
        for round in 0..2 {
            for whole in [1, 2, 3, 3] {
                let pause = backoff.pause();
                assert!(
                    (second * whole / 2..=second * whole).contains(&pause),
                    "{round}: {pause:?} of {whole}"
                );
            }
            backoff.reset();
        }
    }
}
