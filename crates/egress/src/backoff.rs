//! How long to wait before a server that failed is asked again: twice as long each time, up to a bound, and never
//! quite as long as the neighbour does.

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

    /// What to wait now: between half and the whole of what it has come to, so that nodes which failed together do not
    /// come back together.
    pub fn pause(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(self.max);
        let random = RandomState::new().hash_one(0_u8) % 1_024;
        whole / 2 + whole / 2 * u32::try_from(random).unwrap_or(0) / 1_024
    }

    /// It went well: the next failure is the first again.
    pub fn reset(&mut self) {
        self.next = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound_and_begin_anew() {
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
